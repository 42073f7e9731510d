//! Input and surroundings that are not as they should be: each is defined, and nothing is lost in silence.

use std::io::Write;

use tamis_tests::program::{Folder, Ran, tamis};

/// Unique ids, from `in` to `out`.
const PIPELINE: &str = "
version: 1
name: p
source: { file: in }
stages:
  - { uses: dedup, id: d, key: value.id, with: { keep: first, order: arrival } }
sink: { file: out }
";

const DEAD: &str = "errors: { dead_letter: { file: dead } }\n";

fn folder(name: &str, more: &str, input: impl AsRef<[u8]>) -> Folder {
    let folder = Folder::new(name);
    folder.write("p.yaml", format!("{PIPELINE}{more}"));
    folder.write("in", input);
    folder
}

/// The dead letters: their code and the bytes of their value.
fn dead_letters(folder: &Folder) -> Vec<(String, String)> {
    let text = folder.read("dead");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .map(|line| {
            let code = line["headers"]["tamis.error.code"].as_str().unwrap().to_owned();
            assert_eq!(line["headers"]["__connect.errors.connector.name"], "p");
            (code, line["value"]["$bytes"].as_str().unwrap_or("null").to_owned())
        })
        .collect()
}

#[test]
fn a_broken_line_stops_the_run_at_its_place_and_what_came_before_is_there() {
    let folder = folder("broken", "", "{\"id\":1}\n{\"id\":\n{\"id\":2}\n");
    folder.run(&["run", "p.yaml"]).exits(1).says(&["in/0/1", "json", "dead_letter"]);
    assert_eq!(folder.read("out"), "{\"id\":1}\n");
    // The next run meets it again; with it out of the way it goes on behind what was written.
    folder.run(&["run", "p.yaml"]).exits(1);
    folder.write("p.yaml", format!("{PIPELINE}{DEAD}"));
    folder.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n");
    assert_eq!(dead_letters(&folder), [("json".into(), "eyJpZCI6".into())]);
}

#[test]
fn the_last_line_needs_no_end_and_a_cut_one_is_dead_lettered() {
    let whole = folder("whole", "", "{\"id\":1}\n{\"id\":2}");
    whole.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(whole.read("out"), "{\"id\":1}\n{\"id\":2}\n");
    let cut = folder("cut", DEAD, "{\"id\":1}\r\n{\"id\"");
    cut.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(cut.read("out"), "{\"id\":1}\n");
    assert_eq!(dead_letters(&cut), [("json".into(), "eyJpZCI=".into())]);
}

#[test]
fn a_line_of_100_mb_fails_alone() {
    let folder = folder("large", DEAD, "");
    let mut file = std::fs::File::create(folder.path("in")).unwrap();
    file.write_all(b"{\"id\":1}\n").unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        file.write_all(&piece).unwrap();
    }
    file.write_all(b"\n{\"id\":2}\n").unwrap();
    folder.run(&["run", "p.yaml"]).exits(0).says(&["1 dead-lettered"]);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n");
    let dead = dead_letters(&folder);
    assert_eq!((dead.len(), dead[0].0.as_str()), (1, "too_large"));
    assert!(folder.read("dead").contains("the record at byte 9 has 104857600 bytes"));
}

#[test]
fn nul_bytes_reach_the_codec() {
    let json = folder("nul", DEAD, b"{\"id\":\"a\0b\"}\n{\"id\":1}\n");
    json.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(json.read("out"), "{\"id\":1}\n");
    assert_eq!(dead_letters(&json)[0].0, "json");
    let raw = Folder::new("nul-raw");
    raw.write("in", b"a\0b\na\0b\nc\n");
    raw.write(
        "p.yaml",
        "version: 1\nsource: { file: { path: in, format: lines } }\ndecode: { value: raw }\nstages:\n  \
         - { uses: dedup, id: d, key: value, with: { order: arrival } }\nsink: { file: { path: out, format: lines } }\n",
    );
    raw.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(raw.read("out"), "a\0b\nc\n");
}

#[test]
fn an_empty_file_is_an_input_without_records() {
    let folder = folder("empty", "", "");
    folder.run(&["run", "p.yaml"]).exits(0).says(&["0 in, 0 out"]);
    assert_eq!(folder.read("out"), "");
}

#[test]
fn what_cannot_be_read_is_an_environment_that_does_not_fit() {
    let missing = folder("missing", "", "");
    std::fs::remove_file(missing.path("in")).unwrap();
    missing.run(&["run", "p.yaml"]).exits(3).says(&["in: no such file", "check the path"]);
    let directory = folder("directory", "", "");
    std::fs::remove_file(directory.path("in")).unwrap();
    std::fs::create_dir(directory.path("in")).unwrap();
    directory.run(&["run", "p.yaml"]).exits(3).says(&["is a directory", "glob"]);
    let glob = folder("glob", "", "");
    glob.write("p.yaml", PIPELINE.replace("file: in", "file: \"*.none\""));
    glob.run(&["run", "p.yaml"]).exits(3).says(&["no file matches"]);
}

/// The program as somebody who has rights to nothing but this folder. Root may do everything, so under root it runs
/// under another user.
#[cfg(unix)]
fn as_nobody(folder: &Folder) -> Ran {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let program = folder.path("tamis");
    if !program.exists() {
        // Where it was built others may not look.
        std::fs::copy(tamis(), &program).unwrap();
        std::fs::set_permissions(folder.path("."), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = std::process::Command::new(program);
    command.args(["run", "p.yaml"]).current_dir(folder.path("."));
    command.env("XDG_STATE_HOME", folder.path("state")).env("XDG_CACHE_HOME", folder.path("cache"));
    if std::fs::metadata(folder.path("p.yaml")).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    Ran(command.stdin(std::process::Stdio::null()).output().unwrap())
}

#[cfg(unix)]
#[test]
fn without_permission_nothing_runs() {
    use std::os::unix::fs::PermissionsExt;
    let may = |folder: &Folder, name: &str, mode: u32| {
        std::fs::set_permissions(folder.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let folder = folder("permission", "state: { dir: kept }\n", "{\"id\":1}\n");
    may(&folder, "in", 0o000);
    as_nobody(&folder).exits(3).says(&["in: permission denied", "give the user"]);
    may(&folder, "in", 0o444);
    folder.write("out", "");
    may(&folder, "out", 0o444);
    as_nobody(&folder).exits(3).says(&["out: permission denied", "give the user"]);
    may(&folder, "out", 0o666);
    std::fs::remove_dir_all(folder.path("kept")).unwrap();
    std::fs::create_dir(folder.path("kept")).unwrap();
    may(&folder, "kept", 0o555);
    as_nobody(&folder).exits(3).says(&["kept/lock: permission denied", "give the user"]);
    assert_eq!(folder.read("out"), "");
    // With all rights it is the same run.
    may(&folder, "kept", 0o777);
    as_nobody(&folder).exits(0);
    assert_eq!(folder.read("out"), "{\"id\":1}\n");
}

#[cfg(unix)]
#[test]
fn a_full_disk_stops_the_run_and_the_next_one_goes_on() {
    let folder = folder("full", "", "{\"id\":1}\n{\"id\":2}\n");
    std::os::unix::fs::symlink("/dev/full", folder.path("out")).unwrap();
    folder.run(&["run", "p.yaml"]).exits(3).says(&["no space left", "make room"]);
    std::fs::remove_file(folder.path("out")).unwrap();
    folder.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_quietly() {
    let folder = Folder::new("closed");
    let lines: String = (0..50_000).map(|i| format!("{{\"id\":{i}}}\n")).collect();
    folder.write("in", lines);
    folder.write("p.yaml", PIPELINE.replace("{ file: out }", "stdout"));
    let mut child = folder.start(&["run", "p.yaml"]);
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("error"), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_second_run_goes_on_where_the_first_one_ended() {
    let folder = folder("second", "", "{\"id\":1}\n{\"id\":2}\n");
    folder.run(&["run", "p.yaml"]).exits(0).says(&["2 in, 2 out"]);
    folder.run(&["run", "p.yaml"]).exits(0).says(&["0 in, 0 out"]);
    folder.write("in", "{\"id\":1}\n{\"id\":2}\n{\"id\":2}\n{\"id\":3}\n");
    folder.run(&["run", "p.yaml"]).exits(0).says(&["2 in, 1 out, 1 duplicates"]);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n");
    // What others append to the output after a run stays.
    folder.write("out", format!("{}theirs", folder.read("out")));
    folder.write("in", format!("{}{{\"id\":4}}\n", folder.read("in")));
    folder.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\ntheirs\n{\"id\":4}\n");
}

#[test]
fn kept_state_does_not_take_another_key() {
    let folder = folder("changed", "", "{\"id\":1,\"x\":1}\n");
    folder.run(&["run", "p.yaml"]).exits(0);
    folder.write("p.yaml", PIPELINE.replace("value.id", "value.x"));
    folder.run(&["run", "p.yaml"]).exits(2).says(&["D-KEY-CHANGED"]);
}

#[cfg(unix)]
#[test]
fn a_stop_commits_and_a_second_holder_of_the_state_is_refused() {
    let follow = PIPELINE.replace("{ file: in }", "{ file: { path: in, follow: true } }");
    let follow = follow.replace("key: value.id,", "key: value.id, state: { retention: 1d },");
    let folder = folder("stop", "", "{\"id\":1}\n{\"id\":1}\n");
    folder.write("p.yaml", format!("{follow}time: {{ field: value.id }}\n"));
    let child = folder.start(&["run", "p.yaml"]);
    wait_for(|| folder.read("out") == "{\"id\":1}\n");
    folder.run(&["run", "p.yaml"]).exits(3).says(&["another run holds", "state.dir"]);
    let stop = |child: std::process::Child| {
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        child.wait_with_output().unwrap()
    };
    let ended = stop(child);
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    folder.write("in", "{\"id\":1}\n{\"id\":1}\n{\"id\":2}\n{\"id\":1}\n");
    let child = folder.start(&["run", "p.yaml"]);
    wait_for(|| folder.read("out") == "{\"id\":1}\n{\"id\":2}\n");
    stop(child);
    assert_eq!(folder.read("out"), "{\"id\":1}\n{\"id\":2}\n");
}

fn wait_for(done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("half a minute was not enough");
}

#[test]
fn standard_streams_go_through_without_a_file() {
    let folder = Folder::new("streams");
    let mut command = folder.command(&["dedup", "--from", "-", "--to", "-", "--key", "id", "--quiet"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"id\":1}\n{\"id\":1}\n{\"id\":2}\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "{\"id\":1}\n{\"id\":2}\n");
    assert_eq!(ended.status.code(), Some(0));
}
