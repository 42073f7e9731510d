//! Records that end the process: after it has died at the same position again and again, the one to blame is sent aside
//! as it came, and everything else goes on.

use std::time::{Duration, Instant};

use tamis_tests::kafka::broker::shared;
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

use crate::faults::evil_guests;

/// A process that is killed with this value.
struct Alive(std::process::Child);

impl Drop for Alive {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_record_that_ends_the_process_again_and_again_is_sent_aside_as_it_came() {
    let (cluster, name) = (shared(), unique("poison"));
    let [source, sink, dead] = ["in", "out", "dead"].map(|end| format!("{name}-{end}"));
    for topic in [&source, &sink, &dead] {
        cluster.create(topic, 1, &[]);
    }
    let records: Vec<Rec> =
        (0..40).map(|n| Rec::new(&format!("k{n}"), &format!("{{\"n\": {n} }}")).with("own", "x")).collect();
    cluster.write(&source, &records);
    let folder = Folder::new(&name);
    // The guest never comes back from record 17, and the call may last an hour: only somebody's `kill -9` helps, be it
    // the kernel's for want of memory or a supervisor's. A static id: the next process need not wait for the last one's
    // session.
    folder.write(
        "p.yaml",
        format!(
            "version: 1
name: {name}
source: {{ kafka: {{ topics: {source}, brokers: '{}', until: end, properties: {{ group.instance.id: one }} }} }}
stages:
  - {{ uses: evil-stage, id: e, key: value.n, scope: partition, state: {{ unbounded: true }}, with: {{ how: loop-at, n: 17 }} }}
sink: {{ kafka: {{ topic: {sink} }} }}
errors: {{ dead_letter: {{ kafka: {{ topic: {dead} }} }} }}
state: {{ changelog: {{ create: true, replication: 1 }} }}
limits: {{ call: 1h }}
run: {{ commit: 100ms, http: none }}
",
            cluster.brokers()
        ),
    );
    let modules = evil_guests().display().to_string();
    let attempts = folder.path(&format!("state/tamis/{name}/one/attempts/{source}-0"));
    let noted = || std::fs::read_to_string(&attempts).unwrap_or_default();
    let mut deaths = 0;
    let status = loop {
        let mut child = Alive(folder.command(&["run", "p.yaml", "-q", "--modules", &modules]).spawn().unwrap());
        let (before, started) = (noted(), Instant::now());
        // It is at work on the record when it notes nothing more: that it began, or which record it begins.
        let (mut ended, mut last, mut since) = (None, before.clone(), Instant::now());
        while ended.is_none() && (last == before || since.elapsed() < Duration::from_millis(2_500)) {
            assert!(started.elapsed() < Duration::from_secs(150), "{deaths} deaths, and noted is only: {last}");
            std::thread::sleep(Duration::from_millis(50));
            ended = child.0.try_wait().unwrap();
            let now = noted();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        if let Some(status) = ended {
            break status;
        }
        drop(child);
        deaths += 1;
    };
    assert_eq!((status.code(), deaths), (Some(0), 6), "three that nobody knows why, three with the record in hand");
    let out: Vec<String> = cluster.read(&sink).iter().map(Rec::text).collect();
    assert_eq!(out, (0..40).filter(|n| *n != 17).map(|n| format!("{{\"n\": {n} }}")).collect::<Vec<_>>());
    let dead = cluster.read(&dead);
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].key_text().as_str(), dead[0].text().as_str()), ("k17", "{\"n\": 17 }"), "as it came");
    for (header, value) in [
        ("own", "x"),
        ("__connect.errors.topic", source.as_str()),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "17"),
        ("__connect.errors.connector.name", name.as_str()),
        ("__connect.errors.exception.class.name", "tamis.poison"),
        ("__connect.errors.exception.message", "the process ended 3 times while it worked on this record"),
        ("tamis.error.code", "poison"),
    ] {
        assert_eq!(dead[0].header(header).as_deref(), Some(value), "{header}");
    }
    assert_eq!(noted(), "", "all is forgotten");
}
