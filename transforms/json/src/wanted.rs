//! What the pipeline wants of each row, and where it was found.

use tamis_guest::path::{self, Step};
use tamis_guest::{Decoded, DecodedColumn, kind};

use crate::escape;

/// Number of a place below the root that some path goes through.
pub type Level = u16;
/// No path goes through here.
pub const NOWHERE: Level = Level::MAX;
/// The whole document.
pub const ROOT: Level = 0;

/// A member that a path names.
#[derive(Debug)]
struct Member {
    name: Box<[u8]>,
    /// The first eight bytes of the name, zeros after its end.
    word: u64,
    level: Level,
}

/// What the paths want at one place.
#[derive(Debug, Default)]
struct Place {
    members: Vec<Member>,
    /// A bit for each member, by its length and first byte: most names of a record are told apart without comparing.
    bits: u64,
    /// The member after the one found last: records tend to have their members in one order.
    guess: usize,
    elements: Vec<(u32, Level)>,
    /// The result that is the value here.
    result: Option<u16>,
    /// All results at or below this place.
    below: Vec<u16>,
}

/// The paths, as a tree.
#[derive(Debug)]
pub struct Wanted {
    places: Vec<Place>,
    /// The result that each column is: equal paths are found once.
    columns: Vec<u16>,
    results: usize,
}

impl Wanted {
    /// Of paths as `open` gets them. The error says which is wrong.
    pub fn new(paths: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted { places: vec![Place::default()], columns: Vec::new(), results: 0 };
        for path in paths {
            let mut way = vec![ROOT];
            for step in path::parse(path)? {
                let here = way.last().copied().unwrap_or(ROOT);
                way.push(wanted.step(here, step)?);
            }
            let end = usize::from(way.last().copied().unwrap_or(ROOT));
            let result = match wanted.places[end].result {
                Some(result) => result,
                None => {
                    let result = wanted.results as u16;
                    wanted.results += 1;
                    wanted.places[end].result = Some(result);
                    for level in way {
                        wanted.places[usize::from(level)].below.push(result);
                    }
                    result
                }
            };
            wanted.columns.push(result);
        }
        Ok(wanted)
    }

    fn step(&mut self, from: Level, step: Step) -> Result<Level, String> {
        let next = Level::try_from(self.places.len()).ok().filter(|&next| next != NOWHERE).ok_or("too many paths")?;
        let place = &mut self.places[usize::from(from)];
        match step {
            Step::Member(name) => {
                if let Some(member) = place.members.iter().find(|member| *member.name == *name.as_bytes()) {
                    return Ok(member.level);
                }
                let mut word = [0; 8];
                word.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
                // The byte after an empty name is its quote.
                place.bits |= 1 << bit(name.len(), name.bytes().next().unwrap_or(b'"'));
                let name = name.into_bytes().into();
                place.members.push(Member { name, word: u64::from_le_bytes(word), level: next });
            }
            Step::Element(number) => {
                if let Some(&(_, level)) = place.elements.iter().find(|(wanted, _)| *wanted == number) {
                    return Ok(level);
                }
                place.elements.push((number, next));
            }
        }
        self.places.push(Place::default());
        Ok(next)
    }
}

#[inline(always)]
fn bit(length: usize, first: u8) -> usize {
    (length * 8 + usize::from(first)) & 63
}

/// Where the values of the rows of one call were found.
#[derive(Debug, Default)]
pub struct Results {
    columns: Vec<DecodedColumn>,
    /// What is not in the payloads as it is wanted.
    pub heap: Vec<u8>,
    /// Bytes in the payloads, where the heap's numbering starts.
    pub payloads: usize,
    /// The row that is being read.
    pub row: usize,
    /// Containers wanted whole, to be built when the row has proved valid: result, start and end in the payloads.
    pub containers: Vec<(u16, usize, usize)>,
}

/// Offsets in the heap of the two booleans.
const BOOLEANS: [u8; 2] = [0, 1];

impl Results {
    /// For a call of `rows` rows: everything is missing.
    pub fn new(wanted: &Wanted, rows: usize, payloads: usize) -> Results {
        let column = || DecodedColumn { kinds: vec![kind::MISSING; rows], spans: vec![0; 2 * rows] };
        Results {
            columns: (0..wanted.results).map(|_| column()).collect(),
            heap: BOOLEANS.to_vec(),
            payloads,
            row: 0,
            containers: Vec::new(),
        }
    }

    /// Writes a result of the current row; the offset counts in payloads and heap.
    #[inline(always)]
    pub fn put(&mut self, result: u16, kind: u8, offset: usize, length: usize) {
        let Some(column) = self.columns.get_mut(usize::from(result)) else { return };
        if let Some(cell) = column.kinds.get_mut(self.row) {
            *cell = kind;
        }
        if let Some([from, size]) = column.spans.as_chunks_mut::<2>().0.get_mut(self.row) {
            *from = offset as u32;
            *size = length as u32;
        }
    }

    /// Sets every result of the current row to one kind without bytes.
    pub fn fill(&mut self, kind: u8) {
        self.containers.clear();
        for result in 0..self.columns.len() as u16 {
            self.put(result, kind, 0, 0);
        }
    }

    /// The answer of `decode`, without failures.
    pub fn finish(mut self, wanted: &Wanted) -> Decoded {
        let mut columns: Vec<DecodedColumn> = Vec::with_capacity(wanted.columns.len());
        for (place, result) in wanted.columns.iter().enumerate() {
            let again = wanted.columns.iter().take(place).position(|earlier| earlier == result);
            let column = match again {
                Some(earlier) => {
                    DecodedColumn { kinds: columns[earlier].kinds.clone(), spans: columns[earlier].spans.clone() }
                }
                None => std::mem::replace(&mut self.columns[usize::from(*result)], DecodedColumn::with_capacity(0)),
            };
            columns.push(column);
        }
        Decoded { columns, heap: self.heap, failures: Vec::new() }
    }
}

/// Takes what a scanner finds. Both scanners use it, so that they agree on what a path means.
#[derive(Debug)]
pub struct Taker<'a> {
    /// The paths.
    pub wanted: &'a mut Wanted,
    /// Where finds go.
    pub results: &'a mut Results,
    /// Offset of the row in the payloads.
    pub start: usize,
}

impl Taker<'_> {
    /// Where a member of this name leads. `name` is its bytes in the row; `rest` the row from the name on.
    #[inline(always)]
    pub fn member(&mut self, level: Level, rest: &[u8], length: usize) -> Level {
        let Some(place) = self.wanted.places.get_mut(usize::from(level)) else { return NOWHERE };
        let first = rest.first().copied().unwrap_or(0);
        if place.bits >> bit(length, first) & 1 == 0 {
            return NOWHERE;
        }
        let Some(chunk) = rest.first_chunk::<8>() else {
            return place.search(rest.get(..length).unwrap_or_default());
        };
        let mut word = u64::from_le_bytes(*chunk);
        if length < 8 {
            word &= (1 << (8 * length)) - 1;
        }
        if let Some(member) = place.members.get(place.guess)
            && member.word == word
            && member.name.len() == length
            && (length <= 8 || rest.get(8..length) == member.name.get(8..))
        {
            let level = member.level;
            place.guess += 1;
            if place.guess == place.members.len() {
                place.guess = 0;
            }
            return level;
        }
        place.search(rest.get(..length).unwrap_or_default())
    }

    /// As `member`, for a name with escapes.
    #[cold]
    pub fn escaped_member(&mut self, level: Level, name: &[u8]) -> Level {
        let mut resolved = Vec::new();
        escape::resolve(name, &mut resolved);
        self.wanted.places.get_mut(usize::from(level)).map_or(NOWHERE, |place| place.search(&resolved))
    }

    /// Where the element of this number leads.
    pub fn element(&self, level: Level, number: u32) -> Level {
        let Some(place) = self.wanted.places.get(usize::from(level)) else { return NOWHERE };
        place.elements.iter().find(|(wanted, _)| *wanted == number).map_or(NOWHERE, |&(_, level)| level)
    }

    /// Before a value is read: what an earlier member of the same name left below this place does not count.
    #[inline(always)]
    pub fn begin(&mut self, level: Level) {
        if self
            .wanted
            .places
            .get(usize::from(level))
            .is_some_and(|place| place.below.len() > 1 || place.result.is_none())
        {
            self.forget(level);
        }
    }

    #[inline(never)]
    fn forget(&mut self, level: Level) {
        let below = self.wanted.places.get(usize::from(level)).map(|place| place.below.as_slice()).unwrap_or_default();
        for &result in below {
            self.results.put(result, kind::MISSING, 0, 0);
        }
        self.results.containers.retain(|(result, ..)| !below.contains(result));
    }

    #[inline(always)]
    fn result(&self, level: Level) -> Option<u16> {
        self.wanted.places.get(usize::from(level)).and_then(|place| place.result)
    }

    /// Text without its quotes, at these places of the row. `escaped`: it may have escapes.
    #[inline(always)]
    pub fn text(&mut self, level: Level, row: &[u8], from: usize, to: usize, escaped: bool) {
        let Some(result) = self.result(level) else { return };
        self.settle(result);
        if escaped && let Some(text) = row.get(from..to).filter(|text| text.contains(&b'\\')) {
            return self.resolved(result, text);
        }
        self.results.put(result, kind::TEXT, self.start + from, to - from);
    }

    #[cold]
    fn resolved(&mut self, result: u16, text: &[u8]) {
        let from = self.results.heap.len();
        escape::resolve(text, &mut self.results.heap);
        let length = self.results.heap.len() - from;
        self.results.put(result, kind::TEXT, self.results.payloads + from, length);
    }

    /// A number, at these places of the row.
    #[inline(always)]
    pub fn number(&mut self, level: Level, from: usize, to: usize) {
        if let Some(result) = self.result(level) {
            self.settle(result);
            self.results.put(result, kind::NUMBER, self.start + from, to - from);
        }
    }

    /// A boolean.
    pub fn boolean(&mut self, level: Level, value: bool) {
        if let Some(result) = self.result(level) {
            self.settle(result);
            self.results.put(result, kind::BOOL, self.results.payloads + usize::from(value), 1);
        }
    }

    /// Null.
    pub fn null(&mut self, level: Level) {
        if let Some(result) = self.result(level) {
            self.settle(result);
            self.results.put(result, kind::NULL, 0, 0);
        }
    }

    /// A container, at these places of the row, brackets included.
    pub fn container(&mut self, level: Level, from: usize, to: usize) {
        if let Some(result) = self.result(level) {
            self.settle(result);
            self.results.containers.push((result, self.start + from, self.start + to));
        }
    }

    /// A container that an earlier member of the same name left does not count.
    #[inline(always)]
    fn settle(&mut self, result: u16) {
        if !self.results.containers.is_empty() {
            self.results.containers.retain(|(other, ..)| *other != result);
        }
    }
}

impl Place {
    #[inline(never)]
    fn search(&mut self, name: &[u8]) -> Level {
        let Some(at) = self.members.iter().position(|member| *member.name == *name) else { return NOWHERE };
        self.guess = if at + 1 == self.members.len() { 0 } else { at + 1 };
        self.members[at].level
    }
}
