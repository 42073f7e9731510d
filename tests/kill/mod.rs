//! A file-to-file run that is killed a hundred times writes what an undisturbed one writes.

use std::time::Duration;

use tamis_tests::program::Folder;

const KILLS: usize = 100;
/// Records of one input; an input that is through before the kills are is followed by another one.
const RECORDS: usize = 1200;

/// Tiny batches and a commit after nearly each: many places to be killed at.
const PIPELINE: &str = "
version: 1
name: killed
source: { file: in }
time: { field: value.t, delay: 20ms }
stages:
  - { uses: dedup, id: ids, key: value.id, with: { keep: first, window: { horizon: 500ms } } }
  - { uses: dedup, id: groups, key: value.group, with: { keep: last, window: { tumbling: 50ms } } }
sink: { file: out }
routes:
  late: { file: late }
  duplicates: { file: duplicates }
errors: { dead_letter: { file: dead }, log: false }
limits: { batch: { rows: 5 } }
state: { checkpoint: 30ms }
run: { commit: 1ms }
";

/// A small generator of numbers, so that a run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Records out of order, with copies, late ones and broken ones.
fn input(random: &mut Random) -> String {
    let mut text = String::new();
    for i in 0..RECORDS as u64 {
        let t = (i * 3 + 100).saturating_sub(random.below(40));
        match random.below(50) {
            0 => text.push_str("{broken\n"),
            _ => text.push_str(&format!(
                "{{\"id\":{},\"group\":{},\"t\":{t},\"n\":{i}}}\n",
                random.below(300),
                random.below(5)
            )),
        }
    }
    text
}

/// Everything a run wrote, without the time at which a record failed.
fn written(folder: &Folder) -> Vec<String> {
    let mut all: Vec<String> = ["out", "late", "duplicates", "dead"].map(|name| folder.read(name)).to_vec();
    if let Some(dead) = all.last_mut() {
        let lines = dead.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).expect("dead letters are JSON");
            line["headers"].as_object_mut().expect("with headers").remove("tamis.error.first_seen");
            line.to_string()
        });
        *dead = lines.collect::<Vec<_>>().join("\n");
    }
    all
}

fn folder(name: &str, input: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("p.yaml", PIPELINE);
    folder.write("in", input);
    folder
}

#[test]
fn a_run_that_is_killed_a_hundred_times_writes_what_an_undisturbed_one_writes() {
    let mut random = Random(20_261_129);
    let mut kills = 0;
    let mut undisturbed = 0;
    while kills < KILLS {
        let input = input(&mut random);
        let reference = folder("kill-reference", &input);
        let began = std::time::Instant::now();
        reference.run(&["run", "p.yaml"]).exits(0);
        let took = began.elapsed().as_millis() as u64;
        let expected = written(&reference);
        assert!(expected.iter().all(|text| !text.is_empty()), "every route has rows");
        let killed = folder("kill", &input);
        let mut done = false;
        while kills < KILLS && !done {
            let mut child = killed.start(&["run", "p.yaml"]);
            // From right after the start to a good part of the way.
            std::thread::sleep(Duration::from_millis(random.below(took / 12 + 30)));
            done = child.try_wait().expect("a child").is_some();
            child.kill().expect("a child can be killed");
            child.wait().expect("a child");
            kills += usize::from(!done);
        }
        killed.run(&["run", "p.yaml"]).exits(0);
        for (found, expected) in written(&killed).iter().zip(&expected) {
            assert_eq!(found, expected, "after {kills} kills");
        }
        undisturbed += 1;
        assert!(undisturbed < 30, "runs end before they are killed: {kills} kills");
    }
}
