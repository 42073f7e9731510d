//! The baseline **copy**: what goes in goes out, by librdkafka alone. Batches from the queues of the partitions, produced
//! without a copy, no decoding, positions committed every 200 ms once all before them is delivered. The clients have the
//! settings that ours have. Nothing else of the host is in it, not even its way of calling the library.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::{Offset, TopicPartitionList};
use tamis::kafka::client::Clients;

use crate::kafka_job::PARTITIONS;

/// Messages that are taken from a queue at once.
const BATCH: usize = 1000;
/// Between two commits.
const COMMIT: Duration = Duration::from_millis(200);

/// Copies what is in a topic now, or whatever comes, to one with as many partitions.
/// Its clients are those of the pipeline in a file.
pub fn copy(file: &str, source: &str, sink: &str, follow: bool) {
    let text = std::fs::read_to_string(file).expect("the pipeline");
    let pipeline = tamis::config::read(&text, None, &|_| None).expect("a pipeline that is sound");
    let clients = Clients::of(&pipeline, &BTreeMap::new(), Path::new("")).unwrap_or_else(|_| panic!("its clients"));
    let consumer: BaseConsumer = clients.consumer().create().expect("a consumer");
    let producer: BaseProducer = clients.producer(None).create().expect("a producer");
    let (from, to) = (consumer.client().native_ptr(), producer.client().native_ptr());
    let name = |topic: &str| CString::new(topic).expect("no zero in it");
    consumer.fetch_metadata(Some(source), Duration::from_secs(20)).expect("metadata");
    producer.client().fetch_metadata(Some(sink), Duration::from_secs(20)).expect("metadata");
    let ends: Vec<i64> = (0..PARTITIONS)
        .map(|p| consumer.fetch_watermarks(source, p, Duration::from_secs(20)).expect("offsets").1)
        .collect();
    // Safety: the clients outlive queues and topic, and every message, which is freed once, after its delivery.
    let (queues, topic) = unsafe {
        let queue = |p| rd::rd_kafka_queue_get_partition(from, name(source).as_ptr(), p);
        let queues: Vec<_> = (0..PARTITIONS).map(queue).collect();
        queues.iter().for_each(|&queue| rd::rd_kafka_queue_forward(queue, null_mut()));
        (queues, rd::rd_kafka_topic_new(to, name(sink).as_ptr(), null_mut()))
    };
    let mut list = TopicPartitionList::new();
    (0..PARTITIONS).for_each(|p| list.add_partition_offset(source, p, Offset::Beginning).expect("an offset"));
    consumer.assign(&list).expect("assigned");
    let mut next = vec![0; ends.len()];
    let (mut held, mut batch) = (Vec::new(), vec![null_mut(); BATCH]);
    let mut committed = Instant::now();
    loop {
        let mut any = false;
        for (&queue, next) in queues.iter().zip(&mut next) {
            let count = unsafe { rd::rd_kafka_consume_batch_queue(queue, 0, batch.as_mut_ptr(), BATCH) };
            for &message in &batch[..count.max(0) as usize] {
                any = true;
                held.push(message);
                let message: &rd::rd_kafka_message_t = unsafe { &*message };
                assert!(RDKafkaErrorCode::from(message.err) == RDKafkaErrorCode::NoError, "a record");
                produce(to, topic, message);
                *next = message.offset + 1;
            }
        }
        let all = !follow && next.iter().zip(&ends).all(|(next, end)| next >= end);
        if all || committed.elapsed() > COMMIT {
            while RDKafkaErrorCode::from(unsafe { rd::rd_kafka_flush(to, 100) }) != RDKafkaErrorCode::NoError {
                producer.poll(Duration::ZERO);
            }
            held.drain(..).for_each(|message| unsafe { rd::rd_kafka_message_destroy(message) });
            let mut list = TopicPartitionList::new();
            for (p, &next) in next.iter().enumerate() {
                list.add_partition_offset(source, p as i32, Offset::Offset(next)).expect("an offset");
            }
            consumer.commit(&list, CommitMode::Sync).expect("committed");
            committed = Instant::now();
        }
        if all {
            break;
        }
        if !any {
            // What is there leaves before it waits for more, as with us.
            unsafe { rd::rd_kafka_flush(to, 1) };
            consumer.poll(Duration::from_millis(1));
        }
    }
    unsafe {
        queues.into_iter().for_each(|queue| rd::rd_kafka_queue_destroy(queue));
        rd::rd_kafka_topic_destroy(topic);
    }
}

/// Hands a message on as it is, with its timestamp, to the partition of its number.
fn produce(to: *mut rd::rd_kafka_t, topic: *mut rd::rd_kafka_topic_t, message: &rd::rd_kafka_message_t) {
    use rd::rd_kafka_vtype_t as kind;
    type Union = rd::rd_kafka_vu_s__bindgen_ty_1;
    let memory = |ptr, size| Union { mem: rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size } };
    let part = |vtype, u| rd::rd_kafka_vu_t { vtype, u };
    let mut stamped = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    let timestamp = unsafe { rd::rd_kafka_message_timestamp(message, &mut stamped) };
    let parts = [
        part(kind::RD_KAFKA_VTYPE_RKT, Union { rkt: topic }),
        part(kind::RD_KAFKA_VTYPE_PARTITION, Union { i32_: message.partition }),
        part(kind::RD_KAFKA_VTYPE_MSGFLAGS, Union { i: 0 }),
        part(kind::RD_KAFKA_VTYPE_TIMESTAMP, Union { i64_: timestamp }),
        part(kind::RD_KAFKA_VTYPE_KEY, memory(message.key, message.key_len)),
        part(kind::RD_KAFKA_VTYPE_VALUE, memory(message.payload, message.len)),
    ];
    loop {
        // Safety: the parts are of the kinds they say; the message is held until it is delivered.
        let error = unsafe { rd::rd_kafka_produceva(to, parts.as_ptr(), parts.len()) };
        if error.is_null() {
            return;
        }
        let code = unsafe {
            let code = RDKafkaErrorCode::from(rd::rd_kafka_error_code(error));
            rd::rd_kafka_error_destroy(error);
            code
        };
        assert_eq!(code, RDKafkaErrorCode::QueueFull);
        std::thread::sleep(Duration::from_millis(1));
    }
}
