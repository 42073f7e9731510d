#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::path;

/// `{"id": 7, "user": {"name": "ann", "tags": ["x", 1.50]}, "ok": true, "none": null}`
fn example() -> Vec<u8> {
    let mut b = Builder::new();
    b.open(kind::MAP);
    b.name(b"id");
    b.int(7);
    b.name(b"user");
    b.open(kind::MAP);
    b.name(b"name");
    b.text("ann");
    b.name(b"tags");
    b.open(kind::ARRAY);
    b.text("x");
    b.bytes(kind::NUMBER, b"1.50");
    b.close();
    b.close();
    b.name(b"ok");
    b.boolean(true);
    b.name(b"none");
    b.null();
    b.close();
    assert_eq!(b.faults(), 0);
    let (kind, bytes) = b.finish();
    assert_eq!(kind, kind::MAP);
    bytes
}

/// A document as text, for comparing.
fn show(node: Node<'_>) -> String {
    let name = node.name();
    let value = match node.kind() {
        kind::ARRAY => format!("[{}]", node.children().map(show).collect::<Vec<_>>().join(",")),
        kind::MAP | kind::STRUCT => format!("{{{}}}", node.children().map(show).collect::<Vec<_>>().join(",")),
        kind::NULL => "null".to_owned(),
        kind::BOOL => node.as_bool().unwrap().to_string(),
        kind::INT64 => node.as_i64().unwrap().to_string(),
        _ => String::from_utf8_lossy(node.scalar().unwrap()).into_owned(),
    };
    if name.is_empty() { value } else { format!("{name}:{value}") }
}

fn check(bytes: &[u8], text: &str) {
    assert_eq!(show(Doc::new(bytes).unwrap().root()), text);
}

#[test]
fn the_layout_is_that_of_the_page() {
    let mut b = Builder::new();
    b.open(kind::MAP);
    b.name(b"n");
    b.int(-2);
    b.name(b"t");
    b.text("xyz");
    b.name(b"a");
    b.open(kind::ARRAY);
    b.boolean(true);
    b.close();
    b.close();
    let golden: Vec<u8> = [
        &[1, 0, 0, 0, 5, 0, 0, 0][..],
        &[0x61, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0],
        &[0x20, 0, 1, 0, 0, 0, 0, 0, 0xfe, 255, 255, 255, 255, 255, 255, 255],
        &[0x40, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
        &[0x60, 0, 1, 0, 5, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0],
        &[0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        b"ntxyza",
    ]
    .concat();
    assert_eq!(b.finish(), (kind::MAP, golden));
}

#[test]
fn values_are_found_by_path() {
    let bytes = example();
    let doc = Doc::new(&bytes).unwrap();
    let find = |text: &str| doc.find(&path::parse(text).unwrap()).map(show);
    assert_eq!(find("id").unwrap(), "id:7");
    assert_eq!(find("user.name").unwrap(), "name:ann");
    assert_eq!(find("user.tags[1]").unwrap(), "1.50");
    assert_eq!(find("none").unwrap(), "none:null");
    for missing in ["x", "user.x", "user.tags[2]", "user[0]", "id.x", "user.tags.x", "none.x"] {
        assert_eq!(find(missing), None, "{missing}");
    }
    assert_eq!(doc.root().len(), 4);
    assert_eq!(doc.root().children().map(|c| c.name()).collect::<Vec<_>>(), ["id", "user", "ok", "none"]);
}

#[test]
fn a_value_is_replaced_added_or_removed() {
    let bytes = example();
    let doc = Doc::new(&bytes).unwrap();
    let change = |at: &str, cell| {
        let mut into = Vec::new();
        set(doc, &path::parse(at).unwrap(), cell, &mut into).map(|_| show(Doc::new(&into).unwrap().root()))
    };
    let text = (kind::TEXT, &b"***"[..]);
    assert_eq!(change("user.name", text).unwrap(), "{id:7,user:{name:***,tags:[x,1.50]},ok:true,none:null}");
    assert_eq!(change("user.tags[0]", text).unwrap(), "{id:7,user:{name:ann,tags:[***,1.50]},ok:true,none:null}");
    assert_eq!(change("user", text).unwrap(), "{id:7,user:***,ok:true,none:null}");
    assert_eq!(change("user.new", text).unwrap(), "{id:7,user:{name:ann,tags:[x,1.50],new:***},ok:true,none:null}");
    assert_eq!(change("new", text).unwrap(), "{id:7,user:{name:ann,tags:[x,1.50]},ok:true,none:null,new:***}");
    assert_eq!(change("user.tags", (kind::MAP, &bytes)).unwrap().matches("ann").count(), 2);
    for nowhere in ["a.b", "user.tags[2]", "id.x", "user.tags.x"] {
        assert_eq!(change(nowhere, text), None, "{nowhere}");
    }
    assert_eq!(change("id", (kind::MISSING, &[])), None);
    assert_eq!(change("id", (kind::INT64, &[1])), None);

    let without = |at: &str| {
        let mut into = Vec::new();
        remove(doc, &path::parse(at).unwrap(), &mut into).map(|_| show(Doc::new(&into).unwrap().root()))
    };
    assert_eq!(without("user").unwrap(), "{id:7,ok:true,none:null}");
    assert_eq!(without("user.tags[0]").unwrap(), "{id:7,user:{name:ann,tags:[1.50]},ok:true,none:null}");
    assert_eq!(without("x"), None);
    assert_eq!(without(""), None);

    let mut whole = Vec::new();
    assert_eq!(set(doc, &[], text, &mut whole), Some(kind::TEXT));
    assert_eq!(whole, b"***");
}

#[test]
fn of_repeated_names_the_last_counts_in_the_place_of_the_first() {
    let mut b = Builder::new();
    b.open(kind::MAP);
    b.name(b"a");
    b.open(kind::MAP);
    b.name(b"x");
    b.int(1);
    b.name(b"x");
    b.int(2);
    b.close();
    b.name(b"b");
    b.open(kind::ARRAY);
    b.int(3);
    b.close();
    b.name(b"a");
    b.open(kind::ARRAY);
    b.open(kind::ARRAY);
    b.int(4);
    b.close();
    b.int(5);
    b.close();
    b.name(b"c");
    b.open(kind::ARRAY);
    b.close();
    b.close();
    check(&b.finish().1, "{a:[[4],5],b:[3],c:[]}");

    let mut b = Builder::new();
    b.open(kind::MAP);
    for i in 0..100 {
        b.name(format!("n{}", i % 40).as_bytes());
        b.int(i);
    }
    b.close();
    let bytes = b.finish().1;
    let doc = Doc::new(&bytes).unwrap();
    assert_eq!(doc.root().len(), 40);
    assert_eq!(doc.root().member("n5").unwrap().as_i64(), Some(85));
    assert_eq!(doc.root().member("n25").unwrap().as_i64(), Some(65));
}

#[test]
fn a_part_is_a_document_of_its_own() {
    let bytes = example();
    let doc = Doc::new(&bytes).unwrap();
    let mut part = Vec::new();
    assert_eq!(doc.root().member("user").unwrap().cell_into(&mut part), kind::MAP);
    check(&part, "{name:ann,tags:[x,1.50]}");
    let mut scalar = Vec::new();
    assert_eq!(doc.root().member("ok").unwrap().cell_into(&mut scalar), kind::BOOL);
    assert_eq!(scalar, [1]);
}

#[test]
fn depth_ends_at_128() {
    let nested = |depth: usize| {
        let mut b = Builder::new();
        (0..depth).for_each(|_| b.open(kind::ARRAY));
        (0..depth).for_each(|_| b.close());
        b.finish().1
    };
    assert!(Doc::new(&nested(128)).is_ok());
    assert_eq!(Doc::new(&nested(129)).unwrap_err().what, "deeper than 128");
}

#[test]
fn scalars_are_cells_and_no_documents() {
    let mut b = Builder::new();
    b.text("x");
    assert_eq!(b.finish(), (kind::TEXT, b"x".to_vec()));
    b.clear();
    b.float(1.5);
    assert_eq!(b.finish(), (kind::FLOAT64, 1.5f64.to_le_bytes().to_vec()));
    b.clear();
    assert_eq!(b.finish(), (kind::MISSING, vec![]));
    assert!(is_cell(kind::NULL, &[]) && !is_cell(kind::NULL, &[0]));
    assert!(is_cell(kind::BOOL, &[1]) && !is_cell(kind::BOOL, &[2]));
    assert!(is_cell(kind::NUMBER, b"1e5") && !is_cell(kind::NUMBER, b"1e"));
    assert!(!is_cell(kind::TEXT, &[0xff]) && is_cell(kind::BYTES, &[0xff]));
    assert!(!is_cell(kind::UNCHANGED, &[]) && !is_cell(0x70, &[]));
    assert!(is_cell(kind::MAP, &example()) && !is_cell(kind::ARRAY, &example()));
}

#[test]
fn bytes_beside_text_in_the_heap_do_not_harm_it() {
    let mut b = Builder::new();
    b.open(kind::MAP);
    b.name("ä".as_bytes());
    b.bytes(kind::BYTES, &[0x80, 0xff, 0xe2]);
    b.name("b".as_bytes());
    b.text("é");
    b.name("".as_bytes());
    b.bytes(kind::BYTES, &[0xc3]);
    b.close();
    let bytes = b.finish().1;
    assert!(Doc::new(&bytes).is_ok());
    // Text that begins or ends within a character.
    for shift in [(1u32, 0u32), (0, 1)] {
        let mut broken = bytes.clone();
        let at = HEADER + 2 * NODE + 8;
        let offset = u32_at(&broken, at) + shift.0;
        broken[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        broken[at + 4..at + 8].copy_from_slice(&(2 - shift.0 - shift.1).to_le_bytes());
        assert!(Doc::new(&broken).is_err());
    }
}

/// Reads everything a reader can read.
fn walk(node: Node<'_>, steps: &mut u32) {
    *steps += 1;
    let _ = (node.name(), node.scalar(), node.as_bool(), node.as_i64(), node.as_f64(), node.as_text(), node.len());
    if *steps < 10_000 {
        node.children().for_each(|child| walk(child, steps));
    }
}

#[test]
fn hostile_bytes_never_panic() {
    let good = example();
    let mut state = 1u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit
    };
    let mut accepted = 0;
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + below(3) {
            let at = below(bytes.len());
            bytes[at] = [0, 1, 2, 0x60, 0x61, 0x80, 0xff, 16][below(8)];
        }
        bytes.truncate(bytes.len() - [0, 0, 0, 1, 7][below(5)]);
        if let Ok(doc) = Doc::new(&bytes) {
            accepted += 1;
            walk(doc.root(), &mut 0);
            let mut copy = Builder::new();
            copy.copy(doc.root());
            let copy = copy.finish().1;
            assert_eq!(show(Doc::new(&copy).unwrap().root()), show(doc.root()));
        }
        if let Ok(doc) = Doc::unchecked(&bytes) {
            walk(doc.root(), &mut 0);
            let _ = doc.find(&path::parse("user.tags[1]").unwrap());
            Builder::new().copy(doc.root());
        }
    }
    assert!(accepted > 100);
}

#[test]
fn a_scalar_put_in_the_place_of_a_scalar_makes_the_document_that_a_copy_makes() {
    let bytes = example();
    let doc = Doc::new(&bytes).unwrap();
    let minus = (-5i64).to_le_bytes();
    let cells: [(u8, &[u8]); 6] = [
        (kind::TEXT, b"a longer text"),
        (kind::TEXT, b""),
        (kind::NUMBER, b"7"),
        (kind::INT64, &minus),
        (kind::BOOL, &[1]),
        (kind::NULL, b""),
    ];
    for index in 1..doc.len() {
        let node = doc.node(index).unwrap();
        for cell in cells {
            let mut spliced = Vec::new();
            let is_done = splice(node, cell, &mut spliced);
            assert_eq!(is_done, !node.is_container());
            if is_done {
                let mut builder = Builder::new();
                builder.copy_with(doc.root(), &Change::Replace(index, cell));
                assert_eq!((kind::MAP, spliced), builder.finish());
            }
        }
    }
}

#[test]
fn bytes_that_two_values_share_are_left_to_the_other() {
    let mut bytes = example();
    // The text of `name` is made to begin where the name of the member `ok` stands.
    let doc = Doc::new(&bytes).unwrap();
    let shared = doc.find(&path::parse("ok").unwrap()).unwrap();
    let (index, offset) = (doc.find(&path::parse("user.name").unwrap()).unwrap().index(), u32_at(shared.bytes(), 4));
    let at = HEADER + index as usize * NODE + 8;
    bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&2u32.to_le_bytes());
    let doc = Doc::new(&bytes).unwrap();
    let mut changed = Vec::new();
    set(doc, &path::parse("user.name").unwrap(), (kind::TEXT, b"z"), &mut changed).unwrap();
    check(&changed, "{id:7,user:{name:z,tags:[x,1.50]},ok:true,none:null}");
}
