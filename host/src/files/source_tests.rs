#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

use std::fs;
use std::path::PathBuf;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tamis-source-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(format: Format) -> Settings {
    Settings {
        format,
        follow: false,
        topic: None,
        rows: 2,
        bytes: 100,
        wait: Duration::from_millis(1),
        largest: 50,
        mixed: true,
        key_codec: Codec::Text,
        value_codec: Codec::Json,
    }
}

/// Everything a source gives until its end, as text: `partition/offset=value`.
fn all(source: &mut Source) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let polled = source.poll(Duration::ZERO, &|_| true).unwrap();
        let (polling, reason) = match polled {
            Polled::Rows(polling) => (polling, None),
            Polled::Broken(polling, reason) => (polling, Some(reason.code)),
            Polled::Finished(inputs) => {
                found.push(format!("end of {inputs:?}"));
                continue;
            }
            Polled::Nothing => continue,
            Polled::End => return found,
        };
        let mut texts = Vec::new();
        for row in &polling.batch.rows {
            let value = match row.value {
                Payload::Null => "null".into(),
                Payload::Bytes(span) | Payload::Cell(_, span) => {
                    String::from_utf8_lossy(polling.batch.bytes(span)).into_owned()
                }
            };
            let input = &source.inputs()[usize::from(row.origin.input)];
            texts.push(format!("{}/{}={value}", input.partition, row.origin.offset));
        }
        found.push(match reason {
            Some(code) => format!("{code} {}", texts.join(" ")),
            None => texts.join(" "),
        });
        source.taken(&polling, polling.batch.rows.len());
    }
}

fn check(content: &[u8], format: Format, expected: &[&str]) {
    let folder = Folder::new("check");
    let path = folder.file("in", content);
    assert_eq!(all(&mut Source::open(&[path], settings(format), None).unwrap()), expected);
}

#[test]
fn batches_are_bounded_by_rows_and_bytes_and_a_large_record_is_one_of_its_own() {
    check(b"a\nb\nc\n", Format::Lines, &["0/0=a 0/1=b", "0/2=c", "end of [0]"]);
    let folder = Folder::new("bytes");
    let path = folder.file("in", b"aaaa\nbb\ncccccc\nd\n");
    let small = Settings { bytes: 5, ..settings(Format::Lines) };
    let expected = ["0/0=aaaa", "0/1=bb", "0/2=cccccc", "0/3=d", "end of [0]"];
    assert_eq!(all(&mut Source::open(&[path], small, None).unwrap()), expected);
}

#[test]
fn an_empty_file_is_an_end() {
    check(b"", Format::Json, &["end of [0]"]);
}

#[test]
fn a_record_that_is_too_large_fails_alone_and_takes_an_offset() {
    let long = "x".repeat(60);
    let content = format!("a\n{long}\nb\n");
    check(content.as_bytes(), Format::Lines, &["0/0=a", &format!("too_large 0/1={long}"), "0/2=b", "end of [0]"]);
}

#[test]
fn files_are_read_in_turn_each_with_its_own_offsets() {
    let folder = Folder::new("turn");
    let paths = [folder.file("a", b"1\n2\n3\n"), folder.file("b", b"x\ny\n")];
    let mut source = Source::open(&paths, settings(Format::Lines), None).unwrap();
    let expected = ["0/0=1 0/1=2", "1/0=x 1/1=y", "0/2=3", "end of [1]", "end of [0]"];
    assert_eq!(all(&mut source), expected);
    assert_eq!(&*source.inputs()[1].topic, "b");
}

#[test]
fn an_input_that_may_not_be_read_waits() {
    let folder = Folder::new("drift");
    let paths = [folder.file("a", b"1\n"), folder.file("b", b"x\n")];
    let mut source = Source::open(&paths, settings(Format::Lines), None).unwrap();
    let Polled::Rows(polling) = source.poll(Duration::ZERO, &|input| input == 1).unwrap() else { panic!() };
    assert_eq!(polling.file, 1);
}

#[test]
fn reading_goes_on_where_records_were_taken() {
    let folder = Folder::new("resume");
    let path = folder.file("a", b"1\n\n2\n3\n4\n");
    let mut source = Source::open(&[&path], settings(Format::Lines), None).unwrap();
    let Polled::Rows(polling) = source.poll(Duration::ZERO, &|_| true).unwrap() else { panic!() };
    source.taken(&polling, 1);
    let position = source.position();
    assert_eq!(position.files[0].bytes, 2);
    let mut source = Source::open(&[&path], settings(Format::Lines), Some(&position)).unwrap();
    assert_eq!(all(&mut source), ["0/1=2 0/2=3", "0/3=4", "end of [0]"]);
    // What is appended later is what a later run finds.
    let position = source.position();
    fs::write(&path, b"1\n\n2\n3\n4\n5\n").unwrap();
    let mut source = Source::open(&[&path], settings(Format::Lines), Some(&position)).unwrap();
    assert_eq!(all(&mut source), ["0/4=5", "end of [0]"]);
}

#[test]
fn another_file_under_the_same_name_is_read_from_its_start() {
    let folder = Folder::new("other");
    let path = folder.file("a", b"1\n2\n");
    let mut source = Source::open(&[&path], settings(Format::Lines), None).unwrap();
    all(&mut source);
    let position = source.position();
    fs::rename(&path, folder.0.join("a.1")).unwrap();
    folder.file("a", b"3\n");
    let mut source = Source::open(&[&path], settings(Format::Lines), Some(&position)).unwrap();
    assert_eq!(source.notes.len(), 1);
    assert_eq!(all(&mut source), ["0/2=3", "end of [0]"]);
}

#[test]
fn files_keep_their_partition_when_others_come_and_go() {
    let folder = Folder::new("keep");
    let (b, c) = (folder.file("b", b"1\n"), folder.file("c", b"2\n"));
    let mut source = Source::open(&[&b, &c], settings(Format::Lines), None).unwrap();
    all(&mut source);
    let position = source.position();
    let a = folder.file("a", b"3\n");
    let mut source = Source::open(&[&a, &c], settings(Format::Lines), Some(&position)).unwrap();
    assert_eq!(all(&mut source), ["end of [0]", "end of [1]", "2/0=3", "end of [2]"]);
}

#[test]
fn a_file_that_is_followed_gives_what_is_appended_and_what_replaces_it() {
    let folder = Folder::new("follow");
    let path = folder.file("a", b"1\n2");
    let follow = Settings { follow: true, ..settings(Format::Lines) };
    let mut source = Source::open(&[&path], follow, None).unwrap();
    let poll = |source: &mut Source| match source.poll(Duration::ZERO, &|_| true).unwrap() {
        Polled::Rows(polling) => {
            source.taken(&polling, polling.batch.rows.len());
            polling.batch.rows.len()
        }
        Polled::Nothing => 0,
        other => panic!("{other:?}"),
    };
    assert_eq!((poll(&mut source), poll(&mut source)), (1, 0), "a line without its end may go on");
    fs::write(&path, b"1\n2\n").unwrap();
    assert_eq!((poll(&mut source), poll(&mut source)), (1, 0));
    fs::rename(&path, folder.0.join("a.1")).unwrap();
    assert_eq!(poll(&mut source), 0);
    folder.file("a", b"3\n");
    assert_eq!((poll(&mut source), poll(&mut source)), (0, 1));
    assert_eq!(source.position().files[0].bytes, 2);
}

#[test]
fn envelopes_name_their_own_positions() {
    let content = br#"{"value":{"n":1}}
{"value":"x","offset":7}
{"value":null,"partition":3,"topic":"t"}
{"nonsense":1}
{"value":2}
"#;
    let expected = [r#"0/0={"n":1} 0/7="x""#, "3/0=null", r#"envelope 0/8={"nonsense":1}"#, "0/9=2", "end of [0, 1]"];
    check(content, Format::Envelope, &expected);
}

#[test]
fn rows_of_several_tasks_do_not_share_a_batch() {
    let folder = Folder::new("tasks");
    let path = folder.file("a", b"{\"partition\":1}\n{\"partition\":2}\n{\"partition\":2}\n");
    let apart = Settings { mixed: false, ..settings(Format::Envelope) };
    let mut source = Source::open(&[&path], apart, None).unwrap();
    assert_eq!(all(&mut source), ["1/0=null", "2/0=null 2/1=null", "end of [0, 1, 2]"]);
}
