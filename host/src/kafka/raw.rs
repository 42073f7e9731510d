//! The one place with unsafe code: what librdkafka offers and its safe wrapper does not. Batches from the queue of one
//! partition, a transactional producer whose queue we serve ourselves, the group's generation, and metadata of offsets
//! that somebody else may have written.
//!
//! Every pointer has one owner here, which frees it when it is dropped. Strings that go in are copied by the library;
//! what comes out of a message lives as long as the message.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rdkafka::ClientConfig;
use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::TopicPartitionList;

pub use super::fault::Fault;
pub use super::pack::{Lent, Pack};

mod queue;

pub use queue::{Message, PartitionQueue};

/// Records of a pack that are handed over at once.
const PACKED: usize = 1024;

/// What the library says of a producer on threads of its own.
#[derive(Debug, Default)]
struct Signals {
    /// A request timed out or a connection was cut: a copy of it may arrive late (KAFKA-17754).
    tainted: AtomicBool,
    /// How often that happened since it was asked last.
    cuts: AtomicU64,
}

/// A producer in event mode: successes are not reported, failures are, to whoever serves its queue.
#[derive(Debug)]
pub struct Producer {
    rk: *mut rd::rd_kafka_t,
    main: *mut rd::rd_kafka_queue_t,
    topics: Vec<*mut rd::rd_kafka_topic_t>,
    signals: Arc<Signals>,
    failed: Option<Fault>,
    /// Packs that the library reads from until all is delivered, and such that are free.
    lent: Vec<Pack>,
    free: Vec<Pack>,
    /// The same for values of single records.
    values: Lent,
}

// The library is thread safe; the rest is used by one thread at a time.
unsafe impl Send for Producer {}

/// One record to produce.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Number of the topic, as given to `Producer::new`.
    pub topic: usize,
    /// Its partition; must exist.
    pub partition: i32,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Number of the memory it lies in, if that is lent (`Producer::values`): then it is not copied.
    pub lent: Option<usize>,
    /// Milliseconds since 1970; 0: now.
    pub timestamp: i64,
    /// Its headers.
    pub headers: &'a [(String, Option<Vec<u8>>)],
}

impl Producer {
    /// A producer for some topics, not yet connected.
    pub fn new(config: &ClientConfig, topics: &[String]) -> Result<Producer, Fault> {
        let invalid = |text: String| Fault::of(RDKafkaErrorCode::InvalidArgument, text);
        let native = config.create_native_config().map_err(|error| invalid(super::settings::plain(&error)))?;
        let signals = Arc::new(Signals::default());
        let mut text: [c_char; 512] = [0; 512];
        // Safety: the configuration is copied, and the copy belongs to the client if it is made. The opaque pointer
        // lives in `signals` for as long as the client.
        let rk = unsafe {
            let conf = rd::rd_kafka_conf_dup(native.ptr());
            rd::rd_kafka_conf_set_events(conf, rd::RD_KAFKA_EVENT_DR | rd::RD_KAFKA_EVENT_ERROR);
            rd::rd_kafka_conf_set_log_cb(conf, Some(on_log));
            rd::rd_kafka_conf_set_opaque(conf, Arc::as_ptr(&signals).cast_mut().cast());
            let rk = rd::rd_kafka_new(rd::rd_kafka_type_t::RD_KAFKA_PRODUCER, conf, text.as_mut_ptr(), text.len());
            if rk.is_null() {
                rd::rd_kafka_conf_destroy(conf);
                return Err(invalid(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()));
            }
            rk
        };
        // Safety: the client is alive; each topic handle is freed in `drop`.
        let main = unsafe { rd::rd_kafka_queue_get_main(rk) };
        let (lent, free) = (Vec::new(), Vec::new());
        let values = Lent::default();
        let mut producer = Producer { rk, main, topics: Vec::new(), signals, failed: None, lent, free, values };
        for topic in topics {
            let name = CString::new(topic.as_str()).map_err(|_| invalid(format!("`{topic}` is no topic name")))?;
            let handle = unsafe { rd::rd_kafka_topic_new(rk, name.as_ptr(), null_mut()) };
            if handle.is_null() {
                return Err(invalid(format!("`{topic}` is no topic name")));
            }
            producer.topics.push(handle);
        }
        Ok(producer)
    }

    /// Gets an id of its own for the transactions, and ends what the last holder of the name left open. Resumable.
    pub fn init_transactions(&mut self, wait_ms: i32) -> Result<(), Fault> {
        // Asked before it is connected, the library asks again after half a second and no sooner.
        let mut brokers = std::ptr::null();
        // Safety: the client is alive; what it gives is given back, if only nothing.
        unsafe {
            rd::rd_kafka_metadata(self.rk, 0, null_mut(), &mut brokers, wait_ms);
            rd::rd_kafka_metadata_destroy(brokers);
        }
        // Safety: the client is alive.
        result(unsafe { rd::rd_kafka_init_transactions(self.rk, wait_ms) })
    }

    /// Begins a transaction; what tainted the producer before does not count for it.
    pub fn begin(&mut self) -> Result<(), Fault> {
        self.failed = None;
        // Safety: the client is alive.
        result(unsafe { rd::rd_kafka_begin_transaction(self.rk) })
    }

    /// Memory that values of the records which are produced next may lie in, which are not copied then.
    pub fn values(&mut self) -> &mut Lent {
        &mut self.values
    }

    /// Hands a record to the library, which copies it, but for a value that was lent. `QueueFull`: serve, and try again.
    pub fn produce(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        let topic = self.topic(record.topic)?;
        let memory = |bytes: Option<&[u8]>| rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
            ptr: bytes.map_or(null_mut(), |b| b.as_ptr().cast_mut().cast()),
            size: bytes.map_or(0, <[u8]>::len),
        };
        type Union = rd::rd_kafka_vu_s__bindgen_ty_1;
        use rd::rd_kafka_vtype_t as kind;
        let part = |vtype, u| rd::rd_kafka_vu_t { vtype, u };
        let is_lent = record.lent.zip(record.value).is_some_and(|(number, value)| self.values.has(number, value));
        let flags = if is_lent { 0 } else { rd::RD_KAFKA_MSG_F_COPY };
        let mut parts = [
            part(kind::RD_KAFKA_VTYPE_RKT, Union { rkt: topic }),
            part(kind::RD_KAFKA_VTYPE_PARTITION, Union { i32_: record.partition }),
            part(kind::RD_KAFKA_VTYPE_MSGFLAGS, Union { i: flags }),
            part(kind::RD_KAFKA_VTYPE_TIMESTAMP, Union { i64_: record.timestamp }),
            part(kind::RD_KAFKA_VTYPE_KEY, Union { mem: memory(record.key) }),
            part(kind::RD_KAFKA_VTYPE_VALUE, Union { mem: memory(record.value) }),
            part(kind::RD_KAFKA_VTYPE_END, Union { i: 0 }),
        ];
        let mut count = parts.len() - 1;
        let mut headers = null_mut();
        if !record.headers.is_empty() {
            headers = new_headers(record.headers);
            parts[count] = part(kind::RD_KAFKA_VTYPE_HEADERS, Union { headers });
            count += 1;
        }
        // Safety: the parts are of the kinds they say; a value that is not copied stays as it is until all is delivered,
        // since two own it and nobody can write to it; headers go over to the library if it takes the record.
        let done = result(unsafe { rd::rd_kafka_produceva(self.rk, parts.as_ptr(), count) });
        if done.is_err() && !headers.is_null() {
            unsafe { rd::rd_kafka_headers_destroy(headers) };
        }
        done
    }

    fn topic(&self, number: usize) -> Result<*mut rd::rd_kafka_topic_t, Fault> {
        let found = self.topics.get(number).copied();
        found.ok_or_else(|| Fault::of(RDKafkaErrorCode::UnknownTopic, "no such topic"))
    }

    /// An empty pack.
    pub fn pack(&mut self) -> Pack {
        self.free.pop().unwrap_or_default()
    }

    /// Hands the records of a pack over, waiting while the queue is full; `waits` is called every now and then. The
    /// partition must exist.
    pub fn produce_pack(&mut self, topic: usize, partition: i32, pack: Pack, waits: impl Fn()) -> Result<(), Fault> {
        let topic = self.topic(topic)?;
        let (count, mut done, mut at, mut messages) = (pack.len(), 0, 0, Vec::with_capacity(PACKED));
        let mut refused = None;
        while done < count && refused.is_none() {
            let mut behind = at;
            pack.messages(done..count.min(done + PACKED), &mut behind, &mut messages);
            // Safety: the messages point into the pack, which stays as it is until all is delivered.
            let taken = unsafe {
                rd::rd_kafka_produce_batch(topic, partition, 0, messages.as_mut_ptr(), messages.len() as c_int)
            };
            let first = messages.iter().find(|message| code(message.err) != RDKafkaErrorCode::NoError);
            match first.map(|message| code(message.err)) {
                None => at = behind,
                Some(RDKafkaErrorCode::QueueFull) => {
                    // The first so many were taken.
                    let taken = messages.get(..usize::try_from(taken).unwrap_or(0)).unwrap_or_default();
                    at += taken.iter().map(|message| message.key_len + message.len).sum::<usize>();
                    self.serve(2);
                    waits();
                }
                Some(other) => refused = Some(Fault::of(other, "a record was not taken")),
            }
            done += usize::try_from(taken).unwrap_or(0);
        }
        self.lent.push(pack);
        refused.map_or(Ok(()), Err)
    }

    /// Reads what the library reports, waiting at most so long for the first report.
    pub fn serve(&mut self, wait_ms: i32) {
        let mut wait = wait_ms;
        // Safety: an event is ours until it is destroyed, and so are the messages in it.
        unsafe {
            loop {
                let event = rd::rd_kafka_queue_poll(self.main, wait);
                if event.is_null() {
                    return;
                }
                wait = 0;
                match rd::rd_kafka_event_type(event) {
                    rd::RD_KAFKA_EVENT_DR => loop {
                        let message = rd::rd_kafka_event_message_next(event);
                        let Some(message) = message.as_ref() else { break };
                        if code(message.err) != RDKafkaErrorCode::NoError && self.failed.is_none() {
                            let text = "a record was not delivered".to_owned();
                            self.failed = Some(Fault::of(code(message.err), text));
                        }
                    },
                    rd::RD_KAFKA_EVENT_ERROR => {
                        self.signals.tainted.store(true, Ordering::Relaxed);
                        let text = CStr::from_ptr(rd::rd_kafka_event_error_string(event));
                        tracing::debug!("kafka: {}", text.to_string_lossy());
                    }
                    _ => {}
                }
                rd::rd_kafka_event_destroy(event);
            }
        }
    }

    /// The first record that was not delivered since `begin`.
    pub fn failed(&self) -> Option<&Fault> {
        self.failed.as_ref()
    }

    /// Waits at most so long until everything is delivered; true: it is.
    pub fn flush(&mut self, wait_ms: i32) -> bool {
        // Safety: the client is alive.
        let done = unsafe { rd::rd_kafka_flush(self.rk, wait_ms) };
        self.serve(0);
        let all = code(done) == RDKafkaErrorCode::NoError;
        if all {
            for mut pack in self.lent.drain(..) {
                pack.clear();
                self.free.push(pack);
            }
            self.values.free();
        }
        all
    }

    /// Puts positions into the transaction. There must be at least one that is concrete, else nothing is fenced.
    pub fn send_offsets(
        &mut self,
        offsets: &TopicPartitionList,
        group: &GroupMetadata,
        wait_ms: i32,
    ) -> Result<(), Fault> {
        // Safety: the client, the list and the metadata are alive for the call.
        result(unsafe { rd::rd_kafka_send_offsets_to_transaction(self.rk, offsets.ptr(), group.0, wait_ms) })
    }

    /// Commits; while it answers retriable it must be called again.
    pub fn commit(&mut self, wait_ms: i32) -> Result<(), Fault> {
        // Safety: the client is alive.
        result(unsafe { rd::rd_kafka_commit_transaction(self.rk, wait_ms) })
    }

    /// Aborts; while it answers retriable it must be called again.
    pub fn abort(&mut self, wait_ms: i32) -> Result<(), Fault> {
        // Safety: the client is alive.
        result(unsafe { rd::rd_kafka_abort_transaction(self.rk, wait_ms) })
    }

    /// Whether anything since the last call makes late copies of requests possible.
    pub fn take_taint(&mut self) -> bool {
        self.signals.tainted.swap(false, Ordering::Relaxed)
    }

    /// How often since the last call a request timed out or a connection failed or was cut.
    pub fn take_cuts(&self) -> u64 {
        self.signals.cuts.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Safety: each is freed once. A producer that goes is never used again, so that purging does no harm.
        unsafe {
            rd::rd_kafka_purge(self.rk, rd::RD_KAFKA_PURGE_F_QUEUE | rd::RD_KAFKA_PURGE_F_INFLIGHT);
            self.serve(0);
            self.topics.iter().for_each(|&topic| rd::rd_kafka_topic_destroy(topic));
            rd::rd_kafka_queue_destroy(self.main);
            rd::rd_kafka_destroy(self.rk);
        }
    }
}

/// Called by the library on its threads.
unsafe extern "C" fn on_log(rk: *const rd::rd_kafka_t, level: c_int, fac: *const c_char, text: *const c_char) {
    // Safety: both texts are C strings for the call; the opaque pointer is that of `Producer::new`.
    unsafe {
        let fac = CStr::from_ptr(fac).to_string_lossy();
        if let Some(signals) = rd::rd_kafka_opaque(rk).cast::<Signals>().as_ref()
            && matches!(&*fac, "REQTMOUT" | "FAIL" | "DISCONN")
        {
            signals.tainted.store(true, Ordering::Relaxed);
            signals.cuts.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(level, "kafka: {fac}: {}", CStr::from_ptr(text).to_string_lossy());
    }
}

fn new_headers(headers: &[(String, Option<Vec<u8>>)]) -> *mut rd::rd_kafka_headers_t {
    // Safety: names and values are copied.
    unsafe {
        let list = rd::rd_kafka_headers_new(headers.len());
        for (name, value) in headers {
            let (bytes, size) = value.as_ref().map_or((null_mut(), 0), |v| (v.as_ptr().cast_mut(), v.len() as isize));
            rd::rd_kafka_header_add(list, name.as_ptr().cast(), name.len() as isize, bytes.cast(), size);
        }
        list
    }
}

fn result(error: *mut rd::rd_kafka_error_t) -> Result<(), Fault> {
    if error.is_null() {
        return Ok(());
    }
    // Safety: the error is ours and freed once.
    unsafe {
        let fault = Fault {
            code: code(rd::rd_kafka_error_code(error)),
            text: CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy().into_owned(),
            retriable: rd::rd_kafka_error_is_retriable(error) != 0,
            abort: rd::rd_kafka_error_txn_requires_abort(error) != 0,
            fatal: rd::rd_kafka_error_is_fatal(error) != 0,
        };
        rd::rd_kafka_error_destroy(error);
        Err(fault)
    }
}

fn code(error: rd::rd_kafka_resp_err_t) -> RDKafkaErrorCode {
    RDKafkaErrorCode::from(error)
}

/// Which member of which generation of its group a consumer is now.
pub struct GroupMetadata(*mut rd::rd_kafka_consumer_group_metadata_t);

impl GroupMetadata {
    /// That of a consumer; `None`: it is in no group, or in no generation of it. Without a generation the broker would
    /// not fence.
    pub fn of<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> Option<GroupMetadata> {
        // Safety: the consumer is alive; the metadata is ours.
        unsafe {
            let metadata = rd::rd_kafka_consumer_group_metadata(consumer.client().native_ptr());
            if metadata.is_null() {
                return None;
            }
            let metadata = GroupMetadata(metadata);
            (rd::rd_kafka_consumer_group_metadata_generation_id(metadata.0) >= 0).then_some(metadata)
        }
    }

    /// That of somebody who is no member: the broker takes positions of him only while the group has no members.
    pub fn outside(group: &str) -> Option<GroupMetadata> {
        let name = CString::new(group).ok().filter(|name| !name.is_empty())?;
        // Safety: the name is copied; the metadata is ours.
        let metadata = unsafe { rd::rd_kafka_consumer_group_metadata_new(name.as_ptr()) };
        (!metadata.is_null()).then_some(GroupMetadata(metadata))
    }
}

impl Drop for GroupMetadata {
    fn drop(&mut self) {
        // Safety: freed once.
        unsafe { rd::rd_kafka_consumer_group_metadata_destroy(self.0) }
    }
}

/// The end of a partition as the last fetch saw it; nothing before the first.
pub fn high_watermark<C: ConsumerContext>(consumer: &BaseConsumer<C>, topic: &str, partition: i32) -> Option<i64> {
    let name = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    let client = consumer.client().native_ptr();
    // Safety: the client is alive, the name ends with zero, both numbers are ours.
    unsafe { rd::rd_kafka_get_watermark_offsets(client, name.as_ptr(), partition, &mut low, &mut high) };
    (high >= 0).then_some(high)
}

/// Lets freed memory stay with the process, as far as 128 MB at the end of a heap: the client frees and wants some
/// megabytes for every request, and each page that the system takes and gives anew is cleared by it.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // Safety: both are settings of the allocator, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h.
    unsafe {
        unsafe extern "C" {
            fn mallopt(setting: c_int, value: c_int) -> c_int;
        }
        mallopt(-1, 128 << 20);
        mallopt(-3, 32 << 20);
    }
}

fn bytes<'a>(start: *mut c_void, length: usize) -> Option<&'a [u8]> {
    // Safety: start and length are those of the library, for memory that lives as long as the message.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// Topic, partition, offset and metadata of each element; the metadata as bytes, for anybody may have written it.
pub fn committed(list: &TopicPartitionList) -> Vec<(String, i32, i64, Vec<u8>)> {
    // Safety: the list is alive, and says how many elements it has.
    unsafe {
        let Some(list) = list.ptr().as_ref().filter(|list| !list.elems.is_null()) else { return Vec::new() };
        let elements = std::slice::from_raw_parts(list.elems, usize::try_from(list.cnt).unwrap_or(0));
        let of = |e: &rd::rd_kafka_topic_partition_t| {
            let topic = CStr::from_ptr(e.topic).to_string_lossy().into_owned();
            (topic, e.partition, e.offset, bytes(e.metadata, e.metadata_size).unwrap_or_default().to_vec())
        };
        elements.iter().map(of).collect()
    }
}
