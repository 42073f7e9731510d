#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn cells_come_back_as_they_were_pushed() {
    let mut column = Column::default();
    column.push(Cell::text("é"));
    column.push(Cell::NULL);
    column.push_i64(kind::TIMESTAMP, -5);
    column.push_f64(0.5);
    column.push_bool(true);
    assert_eq!(column.cell(0).as_text(), Some("é"));
    assert!(column.cell(1).is_none());
    assert_eq!(column.cell(2).as_i64(), Some(-5));
    assert_eq!(column.cell(3).as_f64(), Some(0.5));
    assert_eq!(column.cell(4).as_bool(), Some(true));
    assert_eq!(column.cell(5), Cell::MISSING);
    assert_eq!(column.offsets, [0, 2, 2, 10, 18, 19]);
}

#[test]
fn a_cell_is_only_what_its_kind_says() {
    let number = Cell { kind: kind::NUMBER, bytes: b"1.50" };
    assert_eq!((number.as_number(), number.as_text(), number.as_f64()), (Some("1.50"), None, None));
    assert_eq!(Cell::bytes(b"x").as_text(), None);
    assert!(Cell::MISSING.is_none() && Cell::NULL.is_none() && !Cell::UNCHANGED.is_none());
}

#[test]
fn a_column_without_cells_still_has_its_first_offset() {
    let mut column = Column::default();
    assert_eq!(column.offsets, [0]);
    column.push(Cell::text("abc"));
    column.pop();
    assert_eq!(column, Column::default());
    column.push(Cell::text("abc"));
    column.clear();
    assert_eq!(column, Column::default());
}
