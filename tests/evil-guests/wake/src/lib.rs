//! A stage whose wakes misbehave. Each record is held until its own time; then it leaves, or its wake does what `how`
//! says, if its `value.n` is `n`.

use serde_json::Value;
use tamis_guest::{Check, ExpiresBy, Keyed, Kind, NEVER, Out, Row, Slot, Stamp, Verdict};

struct EvilWake {
    how: String,
    n: i64,
}

tamis_guest::keyed!(EvilWake, include_str!("../manifest.json"));

impl Keyed for EvilWake {
    fn check(_params: &Value, _context: &Value) -> Check {
        let mut check = Check::of(&["value.n"], &[]);
        check.traits.keyed = true;
        check.traits.wants_time = true;
        check.traits.clock = Some("event".to_string());
        check.traits.expires_by = Some("seen".to_string());
        check.traits.output = Some("append".to_string());
        check
    }

    fn open(params: &Value, _context: &Value) -> Result<EvilWake, String> {
        let how = params["how"].as_str().unwrap_or_default().to_string();
        Ok(EvilWake { how, n: params["n"].as_i64().unwrap_or_default() })
    }

    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Seen
    }

    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, _out: &mut Out) -> Verdict {
        let cell = row.cell(0);
        let n = cell.as_i64().or_else(|| cell.as_number()?.parse().ok()).unwrap_or_default();
        if slot.value().is_some() {
            return Verdict::Duplicate;
        }
        slot.put(&n.to_le_bytes(), NEVER);
        slot.keep(0, row);
        slot.wake_at(row.time(), &[]);
        Verdict::Held
    }

    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        if slot.value() == Some(&self.n.to_le_bytes()) {
            match self.how.as_str() {
                "trap" => panic!("evil: wake"),
                "loop" => loop {
                    std::hint::black_box(at);
                },
                "again" => return slot.wake_at(at, &[]),
                _ => {}
            }
        }
        out.emit_kept(slot, 0, Kind::Insert, None);
        slot.remove();
    }
}
