//! The guests that come with the binary.

/// Name and component of each, as `build.rs` packed them.
pub fn all() -> &'static [(&'static str, &'static [u8])] {
    include!(concat!(env!("OUT_DIR"), "/bundled.rs"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;
    use crate::batch::Column;
    use crate::config::pipeline::Limits;
    use crate::guest::call::Call;
    use crate::guest::{Engine, Module, Opening, Shape};

    fn load(engine: &Engine, wanted: &str) -> Module {
        let (name, bytes) = all().iter().find(|(name, _)| *name == wanted).expect("a bundled guest");
        engine.load(name, bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn column(cells: &[(u8, &[u8])]) -> Column {
        let mut column = Column::default();
        for (kind, bytes) in cells {
            column.push(*kind, bytes);
        }
        column
    }

    #[test]
    fn every_bundled_guest_loads_under_its_own_name() {
        let engine = Engine::new(None).unwrap();
        for (name, _) in all() {
            assert_eq!(load(&engine, name).manifest().name, *name);
        }
    }

    #[test]
    fn string_decodes_text_in_the_sandbox_and_names_the_row_that_is_none() {
        let module = load(&Engine::new(None).unwrap(), "string");
        let opening = Opening::Codec { params: "{}".into(), paths: vec![String::new()] };
        let payloads = column(&[(0x50, b"abc"), (0x50, &[0xff]), (0x01, b"")]);
        let decoded = module.guest(opening, Limits::default()).decode(&payloads).unwrap();
        assert_eq!(decoded.columns[0].kinds[0], 0x40);
        assert_eq!(decoded.columns[0].spans[..2], [0, 3]);
        assert_eq!((decoded.failures.len(), decoded.failures[0].row), (1, 1));
    }

    #[test]
    fn mask_masks_in_the_sandbox() {
        let module = load(&Engine::new(None).unwrap(), "mask");
        let params = json!({"fields": ["value.name"], "text": "-"});
        let check = module.check(&params, &json!({}), &Limits::default()).unwrap();
        assert_eq!(check["writes"], json!(["value.name"]));
        let opening = Opening::Transform { params: params.to_string(), context: "{}".into() };
        let call = Call { rows: 2, columns: vec![column(&[(0x40, b"Ada"), (0, b"")])], ..Call::default() };
        let shape = Shape { writes: 1, ..Shape::default() };
        let (outcome, _) = module.guest(opening, Limits::default()).process(&call, &shape, None);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.verdicts, [2, 0]);
        assert_eq!(outcome.output.columns[0].cell(0).bytes, b"-");
    }
}
