//! Files that grow, appear, and get other names while a run follows them.

use std::io::Write;
use std::time::Duration;

use tamis_tests::program::Folder;

use super::{stop, wait_for};

/// Every record once by its id, over the files that `in/*.log*` names.
fn folder(name: &str, more: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::create_dir(folder.path("in")).unwrap();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\nname: p\nsource: {{ file: {{ path: \"in/*.log*\", follow: true }} }}\nsink: {{ file: out }}\n\
             run: {{ commit: 10ms }}\n{more}"
        ),
    );
    folder
}

const UNIQUE: &str =
    "stages: [{ uses: dedup, id: d, key: value.id, state: { retention: { for: 1d, clock: processing } } }]\n";

fn append(folder: &Folder, name: &str, text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(folder.path(name)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn files_that_appear_are_read_and_share_one_state() {
    let folder = folder("appear", UNIQUE);
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("the run", || folder.path("out").exists());
    append(&folder, "in/a.log", "{\"id\":1}\n");
    wait_for("the first file", || folder.read("out") == "{\"id\":1}\n");
    append(&folder, "in/b.log", "{\"id\":1}\n{\"id\":2}\n");
    wait_for("the second file", || folder.read("out") == "{\"id\":1}\n{\"id\":2}\n");
    stop(child).exits(0);
    // The next run knows both, and the one that has appeared since.
    append(&folder, "in/a.log", "{\"id\":3}\n");
    append(&folder, "in/0.log", "{\"id\":2}\n{\"id\":4}\n");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("what was appended", || folder.read("out").lines().count() == 4);
    stop(child).exits(0);
    let mut rows: Vec<String> = folder.read("out").lines().map(str::to_owned).collect();
    rows.sort();
    assert_eq!(rows, [1, 2, 3, 4].map(|id| format!("{{\"id\":{id}}}")));
}

#[test]
fn rotated_files_that_the_glob_names_too_are_read_once() {
    // No dedup: what is read twice leaves twice.
    let folder = folder("rotate", "");
    let rotate = || {
        std::fs::rename(folder.path("in/a.log"), folder.path("in/a.log.1")).unwrap();
    };
    append(&folder, "in/a.log", "{\"id\":1}\n");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("the first file", || folder.read("out").lines().count() == 1);
    // The last line of the old file has no end.
    append(&folder, "in/a.log", "{\"id\":2}\n{\"id\":3}");
    wait_for("the second line", || folder.read("out").lines().count() == 2);
    rotate();
    append(&folder, "in/a.log", "{\"id\":4}\n");
    wait_for("the new file", || folder.read("out").lines().count() == 4);
    std::thread::sleep(Duration::from_millis(1200));
    stop(child).exits(0);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n{\"id\":4}\n");
    // While nothing runs: the old file has grown before it was rotated.
    append(&folder, "in/a.log", "{\"id\":5}\n");
    std::fs::rename(folder.path("in/a.log.1"), folder.path("in/a.log.2")).unwrap();
    rotate();
    append(&folder, "in/a.log", "{\"id\":6}\n");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("both", || folder.read("out").lines().count() == 6);
    std::thread::sleep(Duration::from_millis(1200));
    stop(child).exits(0);
    let mut rows: Vec<String> = folder.read("out").lines().map(str::to_owned).collect();
    rows.sort();
    assert_eq!(rows, [1, 2, 3, 4, 5, 6].map(|id| format!("{{\"id\":{id}}}")));
}

#[test]
fn a_file_that_is_far_ahead_of_another_waits_for_it() {
    let folder = folder(
        "drift",
        "time: { field: value.t, max_drift: 2s }\nlimits: { batch: { rows: 1 } }\nstages: [{ uses: dedup, id: d, key: \
         value.id, with: { window: { horizon: 1h } } }]\n",
    );
    let ahead: String = (0..10).map(|i| format!("{{\"id\":{i},\"t\":{}}}\n", i * 1000)).collect();
    append(&folder, "in/a.log", &ahead);
    append(&folder, "in/b.log", "{\"id\":100,\"t\":0}\n");
    let child = folder.start(&["run", "p.yaml"]);
    // Up to the first record that is more than 2 s ahead; what comes then is not read.
    wait_for("what may be read", || folder.read("out").lines().count() == 5);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(folder.read("out").lines().count(), 5, "{}", folder.read("out"));
    append(&folder, "in/b.log", "{\"id\":101,\"t\":9000}\n");
    wait_for("the rest", || folder.read("out").lines().count() == 12);
    stop(child).exits(0);
}
