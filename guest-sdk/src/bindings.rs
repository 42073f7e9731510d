//! What wit-bindgen makes of `wit/guest.wit`, generated once for all guests. Authors use the types that the crate
//! re-exports; the modules here are for the macros.

#![allow(missing_docs, unsafe_code, clippy::all)]

/// The world of keys. The types and the log that all worlds share are generated here.
pub mod key {
    wit_bindgen::generate!({
        path: "wit",
        world: "key-guest",
        pub_export_macro: true,
        export_macro_name: "export_key",
        default_bindings_module: "tamis_guest::bindings::key",
        additional_derives: [PartialEq, Eq, Default],
        additional_derives_ignore: ["column"],
        generate_all,
    });
}

/// The worlds of stages. One serves both: what a stage without state does not import, its component does not name.
pub mod stage {
    wit_bindgen::generate!({
        path: "wit",
        world: "keyed-guest",
        pub_export_macro: true,
        export_macro_name: "export_stage",
        default_bindings_module: "tamis_guest::bindings::stage",
        additional_derives: [PartialEq, Eq, Default],
        with: {
            "tamis:guest/types@0.1.0": crate::bindings::types,
            "tamis:guest/log@0.1.0": crate::bindings::log,
        },
        generate_all,
    });
}

/// The world of codecs.
pub mod codec {
    wit_bindgen::generate!({
        path: "wit",
        world: "codec-guest",
        pub_export_macro: true,
        export_macro_name: "export_codec",
        default_bindings_module: "tamis_guest::bindings::codec",
        additional_derives: [PartialEq, Eq, Default],
        with: {
            "tamis:guest/types@0.1.0": crate::bindings::types,
            "tamis:guest/log@0.1.0": crate::bindings::log,
        },
        generate_all,
    });
}

pub use codec::exports::tamis::guest::codec as codec_exports;
pub use codec::tamis::guest::schemas;
pub use key::exports::tamis::guest::key as key_exports;
pub use key::tamis::guest::log;
pub use key::tamis::guest::types;
pub use stage::exports::tamis::guest::transform as stage_exports;
pub use stage::tamis::guest::state;
