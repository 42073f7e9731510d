//! The fast path: was this key here before.

use super::marks::{AHEAD, MARK_BYTES};
use super::quota::Sum;
use super::session::breach;
use super::{Keyed, Session, Space, Step, mark_item};
use crate::batch::Origin;
use crate::format::StoredMark;
use crate::guest::call::Refusal;

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
        // The space is taken out for the call, so that no row looks for it.
        let mut table = self.keyed.spaces.remove(&space).unwrap_or_default();
        let mut answer = Vec::with_capacity(rows);
        let mut refused = None;
        for row in 0..rows {
            if row % AHEAD == 0 {
                table.marks.touch(&self.begin.keys[row..rows.min(row + AHEAD)]);
            }
            let clears = is_clear.get(row).copied().unwrap_or(false);
            let until = expires[if expires.len() == 1 { 0 } else { row }];
            match self.seen_row(&mut table, space, row, until, clears, refresh) {
                Ok(byte) => answer.push(byte),
                Err(why) => {
                    refused = Some(why);
                    break;
                }
            }
        }
        self.keyed.spaces.insert(space, table);
        refused.map_or(Ok(answer), Err)
    }

    /// One row of `seen`.
    fn seen_row(
        &mut self,
        table: &mut Space,
        space: i64,
        row: usize,
        until: i64,
        clears: bool,
        refresh: bool,
    ) -> Result<u8, Refusal> {
        let (hash, clock) = (self.begin.keys[row], self.clock(row));
        let found = table.marks.find(hash).map(|place| (place, table.marks.at(place)));
        if let Some((place, old)) = found
            && old.expires > clock
        {
            if !clears {
                self.found[row] = Some(Origin { input: old.input, epoch: -1, offset: old.offset, child: 0 });
                if !refresh || until <= old.expires {
                    return Ok(2);
                }
            }
            self.keyed.log.push(Step::Unmarked { space, hash, old });
            self.keyed.quota.sub(&mark_item(space, hash, &old));
            if clears {
                table.marks.take(place);
                return Ok(3);
            }
            let new = StoredMark { expires: until, ..old };
            table.marks.replace(place, new);
            self.keyed.log.push(Step::Marked { space, hash, new });
            self.keyed.quota.add(&mark_item(space, hash, &new));
            return Ok(2);
        }
        if clears {
            return Ok(4);
        }
        if self.keyed.quota.is_bound() {
            let clock = self.quota_clock(row);
            // In place of a mark that still counts there is always room.
            let replaces = found.is_some_and(|(_, old)| old.expires > clock);
            if !replaces && !self.room(table, space, clock) {
                return Err(self.refuse(row, clock));
            }
        }
        let origin = self.origin(row as u32);
        let born = self.keyed.next_born();
        let new = StoredMark { expires: until, offset: origin.offset, input: origin.input, born };
        let Keyed { log, quota, expired, .. } = &mut self.keyed;
        let mut freed = |hash: u128, old: StoredMark| {
            *expired += 1;
            log.push(Step::Unmarked { space, hash, old });
            quota.sub(&mark_item(space, hash, &old));
        };
        match found {
            Some((place, old)) => {
                freed(hash, old);
                table.marks.replace(place, new);
            }
            None => table.marks.insert(hash, new, self.floor, freed),
        }
        self.keyed.log.push(Step::Marked { space, hash, new });
        self.keyed.quota.add(&mark_item(space, hash, &new));
        Ok(1)
    }

    /// There is room for a mark, if need be after evicting, which wants to see this space too.
    fn room(&mut self, table: &mut Space, space: i64, clock: i64) -> bool {
        let mark = Sum { count: 1, bytes: MARK_BYTES };
        let live = self.keyed.quota.live(clock);
        if self.keyed.quota.fits(live, mark) {
            return true;
        }
        self.keyed.spaces.insert(space, std::mem::take(table));
        let has_room = self.keyed.make_room(clock, mark);
        *table = self.keyed.spaces.remove(&space).unwrap_or_default();
        has_room
    }
}
