//! The guests that come with the binary.

/// Name and component of each, as `build.rs` packed them.
pub fn all() -> &'static [(&'static str, &'static [u8])] {
    include!(concat!(env!("OUT_DIR"), "/bundled.rs"))
}
