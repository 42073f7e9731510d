//! The fast path: was this key here before.

use super::marks::MARK_BYTES;
use super::quota::Sum;
use super::session::breach;
use super::{Keyed, Session, Step, mark_item};
use crate::batch::Origin;
use crate::format::StoredMark;
use crate::guest::call::Refusal;

/// Rows whose lookups read memory ahead together.
const AHEAD: usize = 64;

impl Session {
    /// `state.seen`.
    pub(super) fn seen_rows(
        &mut self,
        space: i64,
        expires: &[i64],
        clears: &[u32],
        refresh: bool,
    ) -> Result<Vec<u8>, Refusal> {
        let rows = self.rows();
        if expires.len() != 1 && expires.len() != rows {
            return Err(breach(format!("seen with {} expiries for {rows} rows", expires.len())));
        }
        if let Some(row) = clears.iter().find(|&&row| row as usize >= rows) {
            return Err(breach(format!("seen clears row {row} of {rows}")));
        }
        let mut is_clear = vec![false; if clears.is_empty() { 0 } else { rows }];
        for &row in clears {
            is_clear[row as usize] = true;
        }
        if self.found.is_empty() {
            self.found = vec![None; rows];
        }
        let mut answer = Vec::with_capacity(rows);
        for row in 0..rows {
            if row % AHEAD == 0 {
                let ahead = &self.begin.keys[row..rows.min(row + AHEAD)];
                self.keyed.spaces.entry(space).or_default().marks.touch(ahead);
            }
            let clears = is_clear.get(row).copied().unwrap_or(false);
            let until = expires[if expires.len() == 1 { 0 } else { row }];
            answer.push(self.seen_row(space, row, until, clears, refresh)?);
        }
        Ok(answer)
    }

    /// One row of `seen`.
    fn seen_row(&mut self, space: i64, row: usize, until: i64, clears: bool, refresh: bool) -> Result<u8, Refusal> {
        let (hash, clock) = (self.begin.keys[row], self.clock(row));
        let table = self.keyed.spaces.entry(space).or_default();
        let found = table.marks.find(hash).map(|place| (place, table.marks.at(place)));
        let is_bound = self.keyed.quota.is_bound();
        if let Some((place, old)) = found
            && old.expires > clock
        {
            if clears {
                self.keyed.unmark_logged(space, hash);
                return Ok(3);
            }
            self.found[row] = Some(Origin { input: old.input, epoch: -1, offset: old.offset, child: 0 });
            if refresh && until > old.expires {
                let new = StoredMark { expires: until, ..old };
                table.marks.replace(place, new);
                self.keyed.log.push(Step::Unmarked { space, hash, old });
                self.keyed.log.push(Step::Marked { space, hash, new });
                if is_bound {
                    self.keyed.quota.sub(&mark_item(space, hash, &old));
                    self.keyed.quota.add(&mark_item(space, hash, &new));
                }
            }
            return Ok(2);
        }
        if clears {
            return Ok(4);
        }
        if is_bound && !self.keyed.make_room(clock, Sum { count: 1, bytes: MARK_BYTES }) {
            return Err(self.refuse(row, clock));
        }
        let origin = self.origin(row as u32);
        let born = self.keyed.next_born();
        let new = StoredMark { expires: until, offset: origin.offset, input: origin.input, born };
        let Keyed { spaces, log, quota, .. } = &mut self.keyed;
        let table = spaces.entry(space).or_default();
        if let Some((place, old)) = found {
            table.marks.replace(place, new);
            log.push(Step::Unmarked { space, hash, old });
            quota.sub(&mark_item(space, hash, &old));
        } else {
            table.marks.insert(hash, new, self.floor, |hash, old| {
                log.push(Step::Unmarked { space, hash, old });
                quota.sub(&mark_item(space, hash, &old));
            });
        }
        log.push(Step::Marked { space, hash, new });
        quota.add(&mark_item(space, hash, &new));
        Ok(1)
    }
}
