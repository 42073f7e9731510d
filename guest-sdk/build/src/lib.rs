//! Build guest crates and pack them as components.
