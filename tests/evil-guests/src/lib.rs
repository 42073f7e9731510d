//! Misbehaving guests.
