//! A custom key.
