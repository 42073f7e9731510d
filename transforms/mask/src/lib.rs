//! The bundled guest.
