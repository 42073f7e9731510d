//! The broker of the tests and the proxy before it do what the other tests take for granted.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tamis_tests::kafka::broker::{behind_proxy, shared};
use tamis_tests::kafka::proxy::{Fault, api};
use tamis_tests::kafka::topics::{Rec, unique};

#[test]
fn what_is_written_is_read_with_keys_headers_times_and_places() {
    let cluster = shared();
    let topic = cluster.topic("harness", 3);
    let written = [
        Rec::new("a", "1").timed(1_000),
        Rec::new("b", "2").at(2).timed(2_000).with("h", "x").with("h", "y"),
        Rec { key: None, value: None, timestamp: 3_000, partition: 2, ..Rec::default() },
    ];
    cluster.write(&topic, &written);
    let read = cluster.read(&topic);
    let places: Vec<(i32, i64)> = read.iter().map(|r| (r.partition, r.offset)).collect();
    assert_eq!(places, [(0, 0), (2, 0), (2, 1)]);
    let plain: Vec<Rec> = read.into_iter().map(|r| Rec { offset: 0, ..r }).collect();
    assert_eq!(plain, written);
}

#[test]
fn every_fault_happens_to_the_request_it_was_planned_for() {
    let cluster = behind_proxy();
    let topic = cluster.topic("harness-faults", 1);
    let proxy = &cluster.proxies()[0];
    let faults = [
        Fault::Delay(Duration::from_millis(300)),
        Fault::DropRequest,
        Fault::DropReply,
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::Hold,
        Fault::Stall(Duration::from_millis(300)),
    ];
    let mut expected = Vec::new();
    for (i, fault) in faults.into_iter().enumerate() {
        let client = unique("harness");
        let producer: BaseProducer = cluster
            .client()
            .set("bootstrap.servers", cluster.proxied())
            .set("client.id", &client)
            .set("enable.idempotence", "true")
            .set("request.timeout.ms", "1000")
            .set("socket.timeout.ms", "1000")
            .set("retry.backoff.ms", "10")
            .create()
            .expect("a producer");
        let planned = proxy.plan(&client, api::PRODUCE, 2, fault);
        for n in 0..3 {
            let value = format!("{i}-{n}");
            producer.send(BaseRecord::<str, str>::to(&topic).payload(&value).key("k")).expect("queued");
            producer.flush(Duration::from_secs(20)).unwrap_or_else(|e| panic!("{fault:?}: {e}"));
            assert_eq!(planned.fired(), u64::from(n > 0), "{fault:?}");
            expected.push(value);
        }
        assert!(proxy.seen(&client, api::PRODUCE) >= 3, "{fault:?}");
        assert_eq!(planned.release().len(), usize::from(fault == Fault::Hold));
    }
    // The client is idempotent: each record is there once, whatever happened to its request.
    let read: Vec<String> = cluster.read(&topic).iter().map(Rec::text).collect();
    assert_eq!(read, expected);
}
