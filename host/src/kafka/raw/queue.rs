//! What comes in: batches from the queue of one partition, and the messages in them.

use std::any::Any;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::thread::Thread;

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;

use super::{bytes, code};
use crate::batch::Headers;

/// The queue of one partition, apart from the consumer's own. The consumer lives at least as long.
#[derive(Debug)]
pub struct PartitionQueue {
    queue: *mut rd::rd_kafka_queue_t,
    /// Messages that were taken from the queue; those before `next` are freed.
    messages: Vec<*mut rd::rd_kafka_message_t>,
    next: usize,
    waker: Option<Box<Thread>>,
    _consumer: Arc<dyn Any + Send + Sync>,
}

// The library is thread safe; the messages are ours.
unsafe impl Send for PartitionQueue {}

impl PartitionQueue {
    /// Takes the queue of a partition; call it before the partition is assigned, or messages go elsewhere. `waker` is
    /// unparked when the queue is no longer empty. `None`: the topic's name is none.
    pub fn open<C: ConsumerContext + 'static>(
        consumer: &Arc<BaseConsumer<C>>,
        topic: &str,
        partition: i32,
        waker: Option<Thread>,
    ) -> Option<PartitionQueue> {
        let name = CString::new(topic).ok()?;
        let waker = waker.map(Box::new);
        // Safety: the consumer is alive, and kept. The waker stays where it is until the callback is taken away.
        let queue = unsafe {
            let queue = rd::rd_kafka_queue_get_partition(consumer.client().native_ptr(), name.as_ptr(), partition);
            if queue.is_null() {
                return None;
            }
            rd::rd_kafka_queue_forward(queue, null_mut());
            if let Some(waker) = &waker {
                let waker: *const Thread = &**waker;
                rd::rd_kafka_queue_cb_event_enable(queue, Some(on_nonempty), waker.cast_mut().cast());
            }
            queue
        };
        let consumer: Arc<dyn Any + Send + Sync> = Arc::<BaseConsumer<C>>::clone(consumer);
        Some(PartitionQueue { queue, messages: Vec::new(), next: 0, waker, _consumer: consumer })
    }

    /// The next message, if one is there; at most `batch` are taken from the queue at once. Never waits.
    pub fn peek(&mut self, batch: usize) -> Option<Message<'_>> {
        if self.next == self.messages.len() {
            self.messages.clear();
            self.messages.resize(batch, null_mut());
            self.next = 0;
            // Safety: there is room for `batch` pointers, of which the answer says how many are messages, now ours.
            let count = unsafe { rd::rd_kafka_consume_batch_queue(self.queue, 0, self.messages.as_mut_ptr(), batch) };
            self.messages.truncate(usize::try_from(count).unwrap_or(0));
        }
        // Safety: it is freed by `pass`, which cannot be called while this is borrowed.
        self.messages.get(self.next).and_then(|message| unsafe { message.as_ref() }).map(Message)
    }

    /// How many messages were taken from the queue and not freed.
    pub fn taken(&self) -> usize {
        self.messages.len() - self.next
    }

    /// Frees the message that was looked at last.
    pub fn pass(&mut self) {
        if let Some(&message) = self.messages.get(self.next) {
            self.next += 1;
            // Safety: each is freed once.
            unsafe { rd::rd_kafka_message_destroy(message) };
        }
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        while self.next < self.messages.len() {
            self.pass();
        }
        // Safety: the callback goes before what it points to.
        unsafe {
            if self.waker.is_some() {
                rd::rd_kafka_queue_cb_event_enable(self.queue, None, null_mut());
            }
            rd::rd_kafka_queue_destroy(self.queue);
        }
    }
}

unsafe extern "C" fn on_nonempty(_rk: *mut rd::rd_kafka_t, waker: *mut c_void) {
    // Safety: `open` gave a thread, which lives until the callback is taken away.
    if let Some(waker) = unsafe { waker.cast::<Thread>().as_ref() } {
        waker.unpark();
    }
}

/// A message, or what the consumer says in place of one.
pub struct Message<'a>(&'a rd::rd_kafka_message_t);

impl Message<'_> {
    /// What it says in place of a record: `PartitionEOF`, or an error. `NoError`: it is a record.
    pub fn error(&self) -> RDKafkaErrorCode {
        code(self.0.err)
    }

    /// Its offset; with `PartitionEOF` that of the next record to come.
    pub fn offset(&self) -> i64 {
        self.0.offset
    }

    /// Leader epoch of its partition, -1 if unknown.
    pub fn epoch(&self) -> i32 {
        // Safety: the message is alive.
        unsafe { rd::rd_kafka_message_leader_epoch(self.0) }
    }

    /// Milliseconds since 1970; `None`: it has none.
    pub fn timestamp(&self) -> Option<i64> {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // Safety: the message is alive.
        let timestamp = unsafe { rd::rd_kafka_message_timestamp(self.0, &mut kind) };
        (kind != rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && timestamp >= 0).then_some(timestamp)
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        bytes(self.0.key, self.0.key_len)
    }

    /// Its value; an error's text.
    pub fn value(&self) -> Option<&[u8]> {
        bytes(self.0.payload, self.0.len)
    }

    /// Its headers; names that are not UTF-8 are made so.
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        if self.has_none() {
            return headers;
        }
        let mut list = null_mut();
        // Safety: the list and what is in it live as long as the message.
        unsafe {
            if code(rd::rd_kafka_message_headers(self.0, &mut list)) != RDKafkaErrorCode::NoError {
                return headers;
            }
            for at in 0.. {
                let (mut name, mut value, mut size) = (std::ptr::null(), std::ptr::null(), 0);
                let found = rd::rd_kafka_header_get_all(list, at, &mut name, &mut value, &mut size);
                if code(found) != RDKafkaErrorCode::NoError {
                    break;
                }
                let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                headers.push((name, bytes(value.cast_mut(), size).map(<[u8]>::to_vec)));
            }
        }
        headers
    }

    /// Whether it has no headers, told at a glance; false: they must be looked for, which costs two allocations.
    ///
    /// In a record of version 2 (KIP-98) the number of its headers stands right behind its value, as a varint, and both
    /// lie where they were received. Only records of that version come with a leader epoch (KIP-320).
    fn has_none(&self) -> bool {
        let is_version_2 = self.epoch() >= 0;
        let behind =
            self.value().filter(|value| is_version_2 && !value.is_empty()).map(|value| value.as_ptr_range().end);
        // Safety: there is always such a number, and the batch's checksum was right (`check.crcs`).
        behind.is_some_and(|number| unsafe { *number == 0 })
    }
}
