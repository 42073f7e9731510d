//! What is asked of a pipeline on files, running or not: to forget, and to go on under another file (X11, R8). Kills come
//! right behind the answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Child;

use serde_json::Value;
use tamis_tests::program::Folder;

use super::{signal, stop, wait_for};

/// A pipeline over a file that grows. `stages`: the lines of its stages.
struct Asked {
    folder: Folder,
    child: Option<Child>,
}

const IDS: &str = "  - { uses: dedup, id: ids, key: value.id, state: { unbounded: true } }\n";

impl Asked {
    fn new(name: &str, stages: &str) -> Asked {
        let asked = Asked { folder: Folder::new(name), child: None };
        asked.folder.write("in", "");
        asked.stages(stages);
        asked
    }

    fn stages(&self, stages: &str) {
        self.file(stages, "");
    }

    fn file(&self, stages: &str, more: &str) {
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: p\nsource: {{ file: {{ path: in, follow: true }} }}\ntime: value.t\nstages:\n{stages}\
                 sink: {{ file: out }}\nrun: {{ commit: 20ms, http: '127.0.0.1:0' }}\n{more}"
            ),
        );
    }

    /// Starts it, and waits until it reads: it can be asked then.
    fn start(&mut self) {
        let mut child = self.folder.start(&["run", "p.yaml"]);
        let said = self.folder.path("said");
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::fs::File::create(said).unwrap()));
        self.child = Some(child);
        wait_for("its address", || self.folder.path("state/tamis/p/control").exists());
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn hang_up(&self) {
        signal(self.child.as_ref().unwrap(), "HUP");
    }

    fn give(&self, lines: &[&str]) {
        let mut file = std::fs::File::options().append(true).open(self.folder.path("in")).unwrap();
        file.write_all(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes()).unwrap();
    }

    fn said(&self) -> String {
        self.folder.read("said")
    }

    /// Gives records and waits for one that is unique behind them: what is written by then is all of it.
    #[track_caller]
    fn check(&self, lines: &[&str], expected: &[&str]) {
        let last = format!("{{\"id\":\"last {}\",\"t\":0}}", self.folder.read("in").len());
        self.give(lines);
        self.give(&[&last]);
        let before = self.folder.read("out").lines().count();
        wait_for("the last of them", || self.folder.read("out").contains(&last));
        let out = self.folder.read("out");
        let new: Vec<&str> = out.lines().skip(before).filter(|line| *line != last).collect();
        assert_eq!(new, expected, "{}", self.said());
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const ONE: &str = r#"{"id":1,"t":1}"#;
const TWO: &str = r#"{"id":2,"t":2}"#;

#[test]
fn a_key_that_was_forgotten_is_new_even_if_the_run_is_killed_right_after() {
    let mut asked = Asked::new("forget-key", IDS);
    asked.start();
    asked.check(&[ONE, TWO, ONE], &[ONE, TWO]);
    let answer = asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id":1.0}"#]);
    asked.kill();
    let answer = answer.exits(0).says(&["p: 1 entry forgotten"]);
    assert_eq!(answer.out(), "in/0: 1\n");
    asked.start();
    asked.check(&[ONE, TWO], &[ONE]);
    assert!(asked.said().contains("W-UNBOUNDED"), "{}", asked.said());
    // It went once: the next copy is a duplicate again.
    asked.check(&[ONE], &[]);
}

#[test]
fn all_that_was_forgotten_stays_so_after_a_kill_and_what_waited_never_leaves() {
    let windows = "  - { uses: dedup, id: w, key: value.id, with: { window: { tumbling: 1s } } }\n";
    let mut asked = Asked::new("forget-all", windows);
    asked.start();
    asked.give(&[ONE, TWO, r#"{"id":3,"t":1000}"#]);
    wait_for("the first second", || asked.folder.read("out").lines().count() == 2);
    let answer = asked.folder.run(&["--json", "forget", "p.yaml", "--all"]);
    asked.kill();
    let answer: Value = serde_json::from_str(&answer.exits(0).out()).unwrap();
    assert_eq!(answer["result"]["forgotten"], 1, "{answer}");
    assert_eq!(answer["result"]["tasks"][0]["inputs"][0]["topic"], "in");
    asked.start();
    // Record 3 was in the second that is open; its watermark stands, so what is older is late.
    asked.give(&[r#"{"id":4,"t":1500}"#, r#"{"id":1,"t":3}"#, r#"{"id":5,"t":3000}"#]);
    wait_for("the second second", || asked.folder.read("out").lines().count() > 2);
    assert_eq!(asked.folder.read("out").lines().collect::<Vec<_>>(), [ONE, TWO, r#"{"id":4,"t":1500}"#]);
}

#[test]
fn forgetting_makes_room_for_what_waits_for_it() {
    let full = "  - { uses: dedup, id: ids, key: value.id, state: { max_entries: 2 } }\n";
    let mut asked = Asked::new("forget-room", full);
    asked.start();
    asked.give(&[ONE, TWO, r#"{"id":3,"t":3}"#]);
    wait_for("the pause", || asked.said().contains("paused until there is room"));
    asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id":1}"#]).exits(0);
    wait_for("what waited", || asked.folder.read("out").lines().count() == 3);
    assert!(!asked.folder.read("out").contains("4"));
}

#[test]
fn a_pipeline_that_does_not_run_forgets_too() {
    let mut asked = Asked::new("forget-stopped", IDS);
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(0).says(&["p: 0 entries forgotten"]);
    asked.start();
    asked.check(&[ONE, TWO], &[ONE, TWO]);
    stop(asked.child.take().unwrap()).exits(0);
    asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id":2}"#]).exits(0).says(&["p: 1 entry forgotten"]);
    asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id":2}"#]).exits(0).says(&["p: 0 entries forgotten"]);
    asked.start();
    asked.check(&[ONE, TWO], &[TWO]);
    // Killed while it ran: the state is that of its last commit.
    asked.kill();
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(0).says(&["entries forgotten"]);
    asked.start();
    asked.check(&[ONE, TWO], &[ONE, TWO]);
    stop(asked.child.take().unwrap()).exits(0);
    // Under another key the state cannot be used, unless it goes.
    asked.stages(&IDS.replace("value.id", "value.other"));
    asked.folder.run(&["run", "p.yaml"]).exits(2).says(&["D-KEY-CHANGED", "tamis forget --all"]);
    asked.folder.run(&["forget", "p.yaml", "--value", "{}"]).exits(2).says(&["D-KEY-CHANGED"]);
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(0);
    asked.start();
}

#[test]
fn what_cannot_be_forgotten_is_said() {
    let mut asked = Asked::new("forget-wrong", IDS);
    asked.folder.run(&["forget", "p.yaml"]).exits(2).says(&["nothing says what to forget", "--all"]);
    asked.folder.run(&["forget", "p.yaml", "--all", "--key", "x"]).exits(2);
    asked.folder.run(&["forget", "p.yaml", "--header", "x"]).exits(2).says(&["`x` is no header"]);
    asked.folder.run(&["forget", "nowhere.yaml", "--all"]).exits(2).says(&["nowhere.yaml"]);
    asked.start();
    asked.check(&[ONE], &[ONE]);
    asked.folder.run(&["forget", "p.yaml", "--value", "{no"]).exits(2).says(&["decode.value: json"]);
    asked.check(&[ONE], &[]);
    asked.file(IDS, "state: memory\n");
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(2).says(&["keeps nothing between runs"]);
}

#[test]
fn a_file_that_no_run_would_take_is_refused_where_nothing_is_kept_yet_too() {
    let asked = Asked::new("forget-refused", &IDS.replace("unbounded: true", ""));
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(2).says(&["D-UNBOUNDED", "p.yaml:"]);
    asked.stages(IDS);
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(0).says(&["0 entries"]);
}

#[test]
fn a_file_that_was_changed_is_read_again_on_a_hangup_and_its_state_stays() {
    let mut asked = Asked::new("reload", IDS);
    asked.start();
    asked.check(&[ONE, TWO], &[ONE, TWO]);
    let filter = "  - { uses: filter, id: even, with: { keep: 'value.id != 3' } }\n";
    asked.stages(&format!("{filter}{IDS}"));
    asked.hang_up();
    wait_for("the reload", || asked.said().contains("p goes on under p.yaml as it is now"));
    asked.kill();
    asked.start();
    asked.check(&[ONE, r#"{"id":3,"t":3}"#, r#"{"id":4,"t":3}"#], &[r#"{"id":4,"t":3}"#]);
    // And back, by the verb this time.
    asked.stages(IDS);
    asked.folder.run(&["reload", "p.yaml"]).exits(0).says(&["p goes on under p.yaml"]);
    asked.check(&[ONE, r#"{"id":3,"t":3}"#], &[r#"{"id":3,"t":3}"#]);
    let ran = stop(asked.child.take().unwrap()).exits(0);
    assert_eq!(ran.out(), "");
    wait_for("its last words", || asked.said().contains("1 filtered"));
}

#[test]
fn a_file_that_is_refused_leaves_the_pipeline_as_it_is() {
    let mut asked = Asked::new("reload-refused", IDS);
    asked.folder.run(&["reload", "p.yaml"]).exits(3).says(&["p does not run here"]);
    asked.start();
    asked.check(&[ONE], &[ONE]);
    let good = asked.folder.read("p.yaml");
    for (changed, says) in [
        (good.replace("dedup", "dedupe"), "P-GUEST"),
        (good.replace("value.id", "value.other"), "D-KEY-CHANGED"),
        (
            good.replace("{ unbounded: true } }", "{ unbounded: true }, with: { keep: last, output: upsert } }"),
            "D-ORDER-CHANGED",
        ),
        (good.replace("{ unbounded: true } }", "{ retention: -1s } }"), "D-RETENTION"),
        (good.replace("file: out", "file: elsewhere"), "P-RESTART"),
        (good.replace("follow: true", "follow: false"), "P-RESTART"),
        (good.replace("time: value.t", "time: { field: value.t, dela: 1s }"), "P-UNKNOWN"),
        (format!("{good}limits: {{ batch: {{ rows: 7 }} }}\n"), "P-RESTART"),
        (format!("{good}state: {{ dir: elsewhere }}\n"), "P-RESTART"),
        (format!("{good}  - ["), "P-SYNTAX"),
    ] {
        let before = asked.said().len();
        asked.folder.write("p.yaml", &changed);
        asked.hang_up();
        wait_for(says, || asked.said()[before..].contains("goes on as before"));
        let said = asked.said()[before..].to_owned();
        assert!(said.contains(&format!("[{says}]")) && said.contains("--> p.yaml:"), "{says}: {said}");
        asked.check(&[ONE], &[]);
    }
    // The verb says the same, with the place.
    asked.folder.write("p.yaml", good.replace("file: out", "file: elsewhere"));
    asked.folder.run(&["reload", "p.yaml"]).exits(2).says(&[
        "P-RESTART",
        "p.yaml:7:1",
        "goes on as before",
        "start it again",
    ]);
    asked.folder.write("p.yaml", good);
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.check(&[ONE, TWO], &[TWO]);
}

#[test]
fn the_state_of_a_stage_that_goes_goes_with_it_and_a_new_one_begins_anew() {
    let mut asked = Asked::new("reload-stages", IDS);
    asked.start();
    asked.check(&[ONE], &[ONE]);
    asked.stages(&IDS.replace("id: ids", "id: other"));
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.kill();
    asked.start();
    asked.check(&[ONE, ONE], &[ONE]);
    // The first one comes back, and knows nothing: neither from memory nor from the journal.
    asked.stages(IDS);
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.check(&[TWO], &[TWO]);
    asked.kill();
    asked.start();
    asked.check(&[ONE, TWO], &[ONE]);
}

#[test]
fn whoever_does_not_show_the_token_changes_nothing() {
    let mut asked = Asked::new("token", IDS);
    asked.start();
    asked.check(&[ONE], &[ONE]);
    let control: Value = serde_json::from_str(&asked.folder.read("state/tamis/p/control")).unwrap();
    let post = |path: &str, token: &str, body: &str| {
        let mut stream = TcpStream::connect(control["address"].as_str().unwrap()).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let token = control["token"].as_str().unwrap();
    for wrong in ["", "x", &token[1..], &token.to_uppercase().replace(|c: char| c.is_ascii_digit(), "0")] {
        assert_eq!(post("/forget", wrong, "{\"all\":true}"), 401, "{wrong}");
        assert_eq!(post("/reload", wrong, ""), 401, "{wrong}");
    }
    asked.check(&[ONE], &[]);
    for (body, status) in [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        ("{\"all\":false}", 400),
        ("{\"all\":true,\"record\":{}}", 400),
        ("{\"al\":true}", 400),
        ("{\"record\":{\"valu\":1}}", 400),
        ("{\"pipeline\":\"q\",\"all\":true}", 404),
        ("{\"record\":{\"value\":{\"id\":9}}}", 200),
        ("{\"pipeline\":\"p\",\"all\":true}", 200),
    ] {
        assert_eq!(post("/forget", token, body), status, "{body}");
    }
    assert_eq!(post("/reload", token, ""), 200);
    asked.check(&[ONE], &[ONE]);
}
