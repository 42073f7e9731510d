//! What is handed to the producer without a copy: records that leave together, changes of state for the most part, and
//! values of single ones.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

use rdkafka::bindings::{rd_kafka_message_t, rd_kafka_resp_err_t};

/// Records of one partition that leave together, without headers and with the time of now. The library does not copy
/// them: whoever hands them over keeps the pack as it is until they are delivered.
#[derive(Debug, Default)]
pub struct Pack {
    bytes: Vec<u8>,
    /// Length of each key, which lies before its value, and of the value.
    lengths: Vec<(usize, Option<usize>)>,
}

impl Pack {
    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lengths.push((key.len(), value.map(<[u8]>::len)));
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    /// Some of the records as the library takes them. `at`: where the first of them begins in the bytes; it moves on.
    pub fn messages(&self, numbers: Range<usize>, at: &mut usize, into: &mut Vec<rd_kafka_message_t>) {
        into.clear();
        let start = |at: usize| -> *mut c_void {
            self.bytes.get(at..).map_or(null_mut(), |bytes| bytes.as_ptr().cast_mut().cast())
        };
        for &(key_len, value_len) in self.lengths.get(numbers).unwrap_or_default() {
            into.push(rd_kafka_message_t {
                err: rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                rkt: null_mut(),
                partition: 0,
                payload: value_len.map_or(null_mut(), |_| start(*at + key_len)),
                len: value_len.unwrap_or(0),
                key: start(*at),
                key_len,
                offset: 0,
                _private: null_mut(),
            });
            *at += key_len + value_len.unwrap_or(0);
        }
    }
}

/// Bytes that are lent at most, about: more would be much to hold for a long interval between commits.
const MOST: usize = 32 << 20;

/// Memory that the library reads values from until all is delivered. Nobody can write to what two own.
#[derive(Debug, Default)]
pub struct Lent {
    held: Vec<Arc<Vec<u8>>>,
    size: usize,
    free: Option<Vec<u8>>,
}

impl Lent {
    /// Holds memory, and gives its number; none: it is too much together, and what lies in it is copied.
    pub fn hold(&mut self, bytes: &Arc<Vec<u8>>) -> Option<usize> {
        if self.size + bytes.capacity() > MOST {
            return None;
        }
        self.size += bytes.capacity();
        self.held.push(Arc::clone(bytes));
        Some(self.held.len() - 1)
    }

    /// Whether a value lies in the memory with this number, which is held.
    pub fn has(&self, number: usize, value: &[u8]) -> bool {
        let value = value.as_ptr_range();
        let is_in = |held: &Arc<Vec<u8>>| {
            let held = held.as_ptr_range();
            held.start <= value.start && value.end <= held.end
        };
        self.held.get(number).is_some_and(is_in)
    }

    /// Empty memory to fill next.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.free.take().unwrap_or_default()
    }

    /// All is delivered: nothing is held any more.
    pub fn free(&mut self) {
        self.size = 0;
        for bytes in self.held.drain(..) {
            // Whoever lent it may hold it still.
            if let Ok(mut bytes) = Arc::try_unwrap(bytes) {
                bytes.clear();
                self.free = Some(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which bytes of the pack each message has as key and value: start and length, a null value without start.
    fn places(pack: &Pack, numbers: Range<usize>, at: &mut usize) -> Vec<(usize, usize, Option<usize>, usize)> {
        let mut messages = Vec::new();
        pack.messages(numbers, at, &mut messages);
        let first = pack.bytes.as_ptr() as usize;
        let place = |m: &rd_kafka_message_t| {
            let value = (!m.payload.is_null()).then(|| m.payload as usize - first);
            (m.key as usize - first, m.key_len, value, m.len)
        };
        messages.iter().map(place).collect()
    }

    #[test]
    fn messages_point_to_their_bytes_wherever_a_part_of_a_pack_begins() {
        let mut pack = Pack::default();
        pack.push(b"one", Some(b"1"));
        pack.push(b"two", None);
        pack.push(b"three", Some(b""));
        let mut at = 0;
        assert_eq!(places(&pack, 0..1, &mut at), [(0, 3, Some(3), 1)]);
        assert_eq!(places(&pack, 1..3, &mut at), [(4, 3, None, 0), (7, 5, Some(12), 0)]);
        assert_eq!((at, pack.len()), (12, 3));
        pack.clear();
        assert_eq!((places(&pack, 0..1, &mut 0), pack.is_empty()), (Vec::new(), true));
    }

    #[test]
    fn a_value_that_is_lent_lies_in_what_is_held_under_its_number_until_all_is_delivered() {
        let mut lent = Lent::default();
        let (one, two) = (Arc::new(b"one".to_vec()), Arc::new(b"two".to_vec()));
        assert_eq!((lent.hold(&one), lent.hold(&two)), (Some(0), Some(1)));
        assert!(lent.has(0, &one[..]) && lent.has(0, &one[1..2]) && lent.has(1, &two[..]));
        assert!(!lent.has(1, &one[..]) && !lent.has(2, &two[..]) && !lent.has(0, b"one"));
        drop(one);
        lent.free();
        assert!(!lent.has(1, &two[..]), "it is not held any more");
        let buffer = lent.buffer();
        assert_eq!((buffer.len(), buffer.capacity() >= 3), (0, true), "the first one's memory");
        assert_eq!(lent.buffer().capacity(), 0, "the other is somebody's still");
        let large = Arc::new(vec![0; MOST + 1]);
        assert_eq!(lent.hold(&large), None, "too much: it is copied");
    }
}
