//! The macros that make a guest of a type, and what they expand to.
