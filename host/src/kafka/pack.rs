//! Records that are handed to the producer together: changes of state, for the most part.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

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
}
