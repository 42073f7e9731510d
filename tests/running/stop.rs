//! SIGTERM: open scopes stay, or leave as partial results; the time to drain has an end.

use super::{evil, run, signal, stop, wait_for, words};
use tamis_tests::program::Folder;

/// Counts per hour that wait for the watermark, over a file that may grow.
fn windows(name: &str, more: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("in", "{\"id\":1,\"t\":1}\n{\"id\":2,\"t\":2}\n{\"id\":1,\"t\":3600000}\n");
    folder.write(
        "p.yaml",
        format!(
            "version: 1\nname: p\nsource: {{ file: {{ path: in, follow: true }} }}\ntime: value.t\nstages:\n  - {{ uses: \
             dedup, id: d, key: value.id, with: {{ window: {{ tumbling: 1h }} }} }}\nsink: {{ file: {{ path: out, format: \
             envelope }} }}\nrun: {{ commit: 10ms }}\n{more}"
        ),
    );
    folder
}

/// Id of each row, and whether it says that it is partial.
fn rows(folder: &Folder) -> Vec<(i64, bool)> {
    let text = folder.read("out");
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    rows.map(|row| (row["value"]["id"].as_i64().unwrap(), row["headers"]["tamis.partial"] == "true")).collect()
}

#[test]
fn with_state_in_memory_a_stop_flushes_open_windows_as_partial() {
    let folder = windows("partial", "state: memory\n");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("the first hour", || rows(&folder).len() == 2);
    stop(child).exits(0);
    assert_eq!(rows(&folder), [(1, false), (2, false), (1, true)]);
}

#[test]
fn with_durable_state_a_stop_emits_nothing_early_and_the_next_run_goes_on() {
    let folder = windows("not-partial", "");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("the first hour", || rows(&folder).len() == 2);
    stop(child).exits(0);
    assert_eq!(rows(&folder), [(1, false), (2, false)]);
    folder.write("in", format!("{}{}", folder.read("in"), "{\"id\":3,\"t\":7200000}\n"));
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("the second hour", || rows(&folder).len() == 3);
    stop(child).exits(0);
    assert_eq!(rows(&folder), [(1, false), (2, false), (1, false)]);
}

/// Records that are committed one by one up to one at which the guest never comes back.
fn stuck(name: &str, stop: &str) -> Folder {
    let more = format!("limits: {{ call: 10m, batch: {{ rows: 1 }} }}\nrun: {{ commit: 1ns, stop: {stop} }}\n");
    evil(name, "{ how: loop-at, n: 50 }", &more, 60)
}

/// Waits until the guest does not come back.
fn is_stuck(folder: &Folder) {
    wait_for("a good part of the output", || folder.read("out").lines().count() >= 20);
    std::thread::sleep(std::time::Duration::from_secs(2));
}

#[test]
fn a_run_that_does_not_drain_in_time_ends_and_the_next_one_goes_on() {
    let folder = stuck("drain", "300ms");
    let child = folder.start(&words(&run()));
    is_stuck(&folder);
    stop(child).exits(1).says(&["p had not come to an end 300ms after", "run.stop"]);
    assert!(folder.read("out").lines().count() <= 50);
    let text = folder.read("p.yaml").replace("how: loop-at, n: 50", "how: passing");
    folder.write("p.yaml", text);
    folder.run(&words(&run())).exits(0);
    assert_eq!(folder.read("out"), super::lines(0..60));
}

#[test]
fn a_second_signal_ends_the_run_at_once() {
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let folder = stuck("second-signal", "10m");
        let child = folder.start(&words(&run()));
        is_stuck(&folder);
        signal(&child, name);
        // Two at once would count as one.
        std::thread::sleep(std::time::Duration::from_millis(300));
        signal(&child, name);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(code));
    }
}
