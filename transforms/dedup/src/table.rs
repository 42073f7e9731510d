//! The decision table of the deduplication rules (section 2), the only place where it stands.
//!
//! A cell says what a combination of window, keep, order, clock, output and emit does, or why it is refused. `check`
//! reads it to refuse and to propose, `open` to know how to judge.

/// Which of several equal records stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The one with the smallest order value.
    First,
    /// The one with the greatest.
    Last,
}

/// What the order and the clock amount to: a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Order time under the event clock.
    Event,
    /// Order arrival under the processing clock.
    Proc,
    /// Order arrival under the event or the ingestion clock.
    Offset,
    /// Order by fields, or by time under a clock that is not event.
    Field,
}

/// Kind of output: a group of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Inserts only.
    Append,
    /// Keyed writes and tombstones.
    Upsert,
    /// Old and new images.
    Retract,
}

/// When a result leaves: a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// At once.
    Immediate,
    /// When its scope is final.
    Close,
    /// At once, but only if content changed.
    Change,
}

/// Shape of the window: a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Shape {
    None,
    Tumbling,
    Hopping,
    Cumulative,
    Session,
    Horizon,
}

/// What a cell says. The two letters are those of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The first arrival leaves at once, never corrected.
    FA,
    /// The smallest order value leaves once, when nothing smaller can come.
    FE,
    /// The first arrival leaves at once; a strictly smaller order value replaces it.
    FU,
    /// As FU, but equal content is not written.
    FC,
    /// The greatest order value leaves once, when the scope closes.
    LE,
    /// What is greater or equal replaces and is written.
    LU,
    /// As LU, but equal content is not written.
    LC,
    /// As FE or LE at close, then corrections within the lateness.
    WU,
    /// As FU or LU, and absorbed sessions are deleted.
    MU,
    /// Refused: an earlier record could invalidate what was sent.
    NO1,
    /// Refused: keep last needs updates.
    NO2,
    /// Refused on unbounded input: the scope never closes.
    NO3,
    /// The same as the cell for emit immediate.
    Same,
}

use Code::{FA, FC, FE, FU, LC, LE, LU, MU, NO1, NO2, NO3, Same, WU};

/// Cells by output (append, upsert, retract), then emit (immediate, close, change).
type Cells = [[Code; 3]; 3];
/// Rows: keep first by event, proc, offset, field, then keep last by the same.
type Rows = [Cells; 8];

/// The first arrival, whenever it may leave.
const FIRST_ARRIVAL: Cells = [[FA, Same, Same], [FA, Same, Same], [FA, Same, Same]];

/// 2.1
const NONE: Rows = [
    [[NO1, FE, NO1], [FU, FE, FC], [FU, FE, FC]],
    FIRST_ARRIVAL,
    FIRST_ARRIVAL,
    [[NO1, NO3, NO1], [FU, NO3, FC], [FU, NO3, FC]],
    [[NO2, NO3, NO2], [LU, NO3, LC], [LU, NO3, LC]],
    [[NO2, NO3, NO2], [LU, NO3, LC], [LU, NO3, LC]],
    [[NO2, NO3, NO2], [LU, NO3, LC], [LU, NO3, LC]],
    [[NO2, NO3, NO2], [LU, NO3, LC], [LU, NO3, LC]],
];

/// 2.2, and 2.3 the same
const TUMBLING: Rows = [
    [[NO1, FE, NO1], [FU, WU, FC], [FU, WU, FC]],
    [[FA, FE, Same], [FA, FE, FA], [FA, FE, FA]],
    [[FA, FE, Same], [FA, WU, FA], [FA, WU, FA]],
    [[NO1, FE, NO1], [FU, WU, FC], [FU, WU, FC]],
    [[NO2, LE, NO2], [LU, WU, LC], [LU, WU, LC]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, NO2], [LU, WU, LC], [LU, WU, LC]],
    [[NO2, LE, NO2], [LU, WU, LC], [LU, WU, LC]],
];

/// 2.4: as 2.2, but append and change is legal in every row: on close, steps whose winner is another than before
const CUMULATIVE: Rows = [
    [[NO1, FE, FE], [FU, WU, FC], [FU, WU, FC]],
    [[FA, FE, FE], [FA, FE, FA], [FA, FE, FA]],
    [[FA, FE, FE], [FA, WU, FA], [FA, WU, FA]],
    [[NO1, FE, FE], [FU, WU, FC], [FU, WU, FC]],
    [[NO2, LE, LE], [LU, WU, LC], [LU, WU, LC]],
    [[NO2, LE, LE], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, LE], [LU, WU, LC], [LU, WU, LC]],
    [[NO2, LE, LE], [LU, WU, LC], [LU, WU, LC]],
];

/// 2.5
const SESSION: Rows = [
    [[NO1, FE, NO1], [MU, WU, MU], [MU, WU, MU]],
    [[FA, FE, Same], [FA, FE, FA], [FA, FE, FA]],
    [[FA, FE, Same], [MU, WU, MU], [MU, WU, MU]],
    [[NO1, FE, NO1], [MU, WU, MU], [MU, WU, MU]],
    [[NO2, LE, NO2], [MU, WU, MU], [MU, WU, MU]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, NO2], [MU, WU, MU], [MU, WU, MU]],
    [[NO2, LE, NO2], [MU, WU, MU], [MU, WU, MU]],
];

/// 2.6; field order and keep first: what has left cannot be taken back, so append must wait
const HORIZON: Rows = [
    [[FA, FE, Same], [FU, FE, FC], [FU, FE, FC]],
    [[FA, FE, Same], [FA, FE, FA], [FA, FE, FA]],
    [[FA, FE, Same], [FA, FE, FA], [FA, FE, FA]],
    [[NO1, FE, NO1], [FU, FE, FC], [FU, FE, FC]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
    [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]],
];

/// A combination of settings: where in the table one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub struct Place {
    pub shape: Shape,
    pub keep: Keep,
    pub axis: Axis,
    pub output: Output,
    pub emit: Emit,
}

impl Place {
    /// What the table says here, `=` as it stands there.
    pub fn written(self) -> Code {
        let rows = match self.shape {
            Shape::None => &NONE,
            Shape::Tumbling | Shape::Hopping => &TUMBLING,
            Shape::Cumulative => &CUMULATIVE,
            Shape::Session => &SESSION,
            Shape::Horizon => &HORIZON,
        };
        let row = self.keep as usize * 4 + self.axis as usize;
        rows[row][self.output as usize][self.emit as usize]
    }

    /// What the table says here, `=` resolved.
    pub fn code(self) -> Code {
        match self.written() {
            Same => Place { emit: Emit::Immediate, ..self }.written(),
            code => code,
        }
    }

    /// May this run? `bounded`: the input ends.
    pub fn is_legal(self, bounded: bool) -> bool {
        match self.code() {
            NO1 | NO2 => false,
            NO3 => bounded,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: Shape, keep: Keep, axis: Axis, wanted: [[Code; 3]; 3]) {
        for (o, output) in [Output::Append, Output::Upsert, Output::Retract].into_iter().enumerate() {
            for (e, emit) in [Emit::Immediate, Emit::Close, Emit::Change].into_iter().enumerate() {
                let place = Place { shape, keep, axis, output, emit };
                assert_eq!(place.code(), wanted[o][e], "{place:?}");
            }
        }
    }

    #[test]
    fn cells_are_found_where_the_rules_have_them() {
        check(Shape::None, Keep::First, Axis::Event, [[NO1, FE, NO1], [FU, FE, FC], [FU, FE, FC]]);
        check(Shape::None, Keep::First, Axis::Proc, [[FA; 3]; 3]);
        check(Shape::None, Keep::Last, Axis::Field, [[NO2, NO3, NO2], [LU, NO3, LC], [LU, NO3, LC]]);
        check(Shape::Tumbling, Keep::First, Axis::Offset, [[FA, FE, FA], [FA, WU, FA], [FA, WU, FA]]);
        check(Shape::Hopping, Keep::Last, Axis::Proc, [[NO2, LE, NO2], [LU, LE, LC], [LU, LE, LC]]);
        check(Shape::Cumulative, Keep::Last, Axis::Event, [[NO2, LE, LE], [LU, WU, LC], [LU, WU, LC]]);
        check(Shape::Session, Keep::First, Axis::Event, [[NO1, FE, NO1], [MU, WU, MU], [MU, WU, MU]]);
        check(Shape::Horizon, Keep::First, Axis::Field, [[NO1, FE, NO1], [FU, FE, FC], [FU, FE, FC]]);
    }

    #[test]
    fn only_bounded_input_closes_what_has_no_end() {
        let place = Place {
            shape: Shape::None,
            keep: Keep::Last,
            axis: Axis::Event,
            output: Output::Append,
            emit: Emit::Close,
        };
        assert!(place.is_legal(true) && !place.is_legal(false));
    }
}
