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
    length: usize,
    /// The first eight bytes of the name, zeros after its end.
    word: u64,
    /// Bits of the word that belong to the name.
    mask: u64,
    /// The member to try after this one: records tend to have their members in one order.
    next: usize,
    level: Level,
}

/// What the paths want at one place.
#[derive(Debug, Default)]
struct Place {
    members: Vec<Member>,
    /// A bit for each member, by its length and first two bytes: most other names of a record need no comparing.
    bits: u64,
    /// The member to try first.
    guess: usize,
    /// There are places below.
    inner: bool,
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
        place.inner = true;
        match step {
            Step::Member(name) => {
                if let Some(member) = place.members.iter().find(|member| *member.name == *name.as_bytes()) {
                    return Ok(member.level);
                }
                let mut word = [0; 8];
                word.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
                let length = name.len();
                let mask = if length < 8 { (1 << (8 * length)) - 1 } else { u64::MAX };
                place.bits |= match *name.as_bytes() {
                    // What stands after the quote is not known.
                    [] => u64::MAX,
                    [first] => 1 << bit(1, u16::from_le_bytes([first, b'"'])),
                    [first, second, ..] => 1 << bit(length, u16::from_le_bytes([first, second])),
                };
                let name = name.into_bytes().into();
                let count = place.members.len();
                if let Some(last) = place.members.last_mut() {
                    last.next = count;
                }
                place.members.push(Member { name, length, word: u64::from_le_bytes(word), mask, next: 0, level: next });
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
fn bit(length: usize, two: u16) -> usize {
    let two = usize::from(two);
    length.wrapping_mul(8).wrapping_add(two).wrapping_add(two >> 5) & 63
}

/// Where the values of the rows of one call were found.
#[derive(Debug, Default)]
pub struct Results {
    /// Number of rows.
    rows: usize,
    /// All rows of the first result, then of the second, and so on: one step from a result to its cell.
    kinds: Vec<u8>,
    spans: Vec<[u32; 2]>,
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
        let cells = wanted.results * rows;
        Results {
            rows,
            kinds: vec![kind::MISSING; cells],
            spans: vec![[0; 2]; cells],
            heap: BOOLEANS.to_vec(),
            payloads,
            row: 0,
            containers: Vec::new(),
        }
    }

    /// Writes a result of the current row; the offset counts in payloads and heap.
    #[inline(always)]
    pub fn put(&mut self, result: u16, kind: u8, offset: usize, length: usize) {
        let at = usize::from(result) * self.rows + self.row;
        if let (Some(cell), Some(span)) = (self.kinds.get_mut(at), self.spans.get_mut(at)) {
            *cell = kind;
            *span = [offset as u32, length as u32];
        }
    }

    /// Sets every result of the current row to one kind without bytes.
    pub fn fill(&mut self, wanted: &Wanted, kind: u8) {
        self.containers.clear();
        for result in 0..wanted.results as u16 {
            self.put(result, kind, 0, 0);
        }
    }

    /// The answer of `decode`, without failures.
    pub fn finish(self, wanted: &Wanted) -> Decoded {
        let column = |&result: &u16| {
            let from = usize::from(result) * self.rows;
            let cells = from..from + self.rows;
            DecodedColumn {
                kinds: self.kinds.get(cells.clone()).unwrap_or_default().to_vec(),
                spans: self.spans.get(cells).unwrap_or_default().as_flattened().to_vec(),
            }
        };
        Decoded { columns: wanted.columns.iter().map(column).collect(), heap: self.heap, failures: Vec::new() }
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

/// Can a name of this length, followed by a quote, be a member that has one of the `bits`? `two`: its first two bytes.
#[inline(always)]
pub fn may_be_member(bits: u64, length: usize, two: u16) -> bool {
    bits >> bit(length, two) & 1 != 0
}

impl Taker<'_> {
    /// What tells most other names from the members wanted at this level.
    #[inline(always)]
    pub fn bits(&self, level: Level) -> u64 {
        self.wanted.places.get(usize::from(level)).map_or(0, |place| place.bits)
    }

    /// Where the member leads whose name stands between these places of the row.
    #[inline(always)]
    pub fn member(&mut self, level: Level, row: &[u8], from: usize, to: usize) -> Level {
        let Some(place) = self.wanted.places.get_mut(usize::from(level)) else { return NOWHERE };
        if let Some(member) = place.members.get(place.guess)
            && let Some(chunk) = row.get(from..).and_then(|rest| rest.first_chunk::<8>())
            && u64::from_le_bytes(*chunk) & member.mask == member.word
            && to.wrapping_sub(from) == member.length
            && (member.length <= 8 || row.get(from + 8..to) == member.name.get(8..))
        {
            place.guess = member.next;
            return member.level;
        }
        place.search(row.get(from..to).unwrap_or_default())
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

    /// A value that is the cell as it stands in the row: a number, or text without its quotes and without escapes.
    #[inline(never)]
    pub fn plain(&mut self, level: Level, kind: u8, from: usize, to: usize) {
        if let Some(result) = self.settle(level) {
            self.results.put(result, kind, self.start + from, to.wrapping_sub(from));
        }
    }

    /// Text without its quotes that may have escapes, at these places of the row.
    #[cold]
    pub fn text(&mut self, level: Level, row: &[u8], from: usize, to: usize) {
        let text = row.get(from..to).unwrap_or_default();
        if !text.contains(&b'\\') {
            return self.plain(level, kind::TEXT, from, to);
        }
        let Some(result) = self.settle(level) else { return };
        let start = self.results.heap.len();
        escape::resolve(text, &mut self.results.heap);
        let length = self.results.heap.len() - start;
        self.results.put(result, kind::TEXT, self.results.payloads + start, length);
    }

    /// A boolean.
    pub fn boolean(&mut self, level: Level, value: bool) {
        if let Some(result) = self.settle(level) {
            self.results.put(result, kind::BOOL, self.results.payloads + usize::from(value), 1);
        }
    }

    /// Null.
    pub fn null(&mut self, level: Level) {
        if let Some(result) = self.settle(level) {
            self.results.put(result, kind::NULL, 0, 0);
        }
    }

    /// Before a container is read: see `settle`.
    pub fn begin(&mut self, level: Level) {
        self.settle(level);
    }

    /// A container that has been read, at these places of the row, brackets included.
    pub fn container(&mut self, level: Level, from: usize, to: usize) {
        if let Some(result) = self.wanted.places.get(usize::from(level)).and_then(|place| place.result) {
            self.results.containers.push((result, self.start + from, self.start + to));
        }
    }

    /// The result that is the value at this level. What an earlier member of the same name left here or below does not
    /// count any more.
    #[inline(always)]
    fn settle(&mut self, level: Level) -> Option<u16> {
        let place = self.wanted.places.get(usize::from(level))?;
        let result = place.result;
        if place.inner || !self.results.containers.is_empty() {
            self.forget(level);
        }
        result
    }

    #[inline(never)]
    fn forget(&mut self, level: Level) {
        let below = self.wanted.places.get(usize::from(level)).map(|place| place.below.as_slice()).unwrap_or_default();
        for &result in below {
            self.results.put(result, kind::MISSING, 0, 0);
        }
        self.results.containers.retain(|(result, ..)| !below.contains(result));
    }
}

impl Place {
    #[inline(never)]
    fn search(&mut self, name: &[u8]) -> Level {
        let Some(member) = self.members.iter().find(|member| *member.name == *name) else { return NOWHERE };
        self.guess = member.next;
        member.level
    }
}
