//! The protocol as a model in which every order of events is tried (reliability 4.5): two processes, one partition of
//! three records of which the last repeats the first, transactions of one or two records, a coordinator that writes the
//! ends of a transaction partition by partition. Crashes, rebalances without notice, a late copy of a commit and the
//! broker's timeout come at every moment, each as often as the budget says. Every rule, left out alone, does harm.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{HashSet, VecDeque};

/// Keys of the input.
const KEYS: [u8; 3] = [0, 1, 0];
/// Inputs that must leave, once; the others must not.
const UNIQUE: [bool; 3] = [true, true, false];
/// Partitions that a transaction ends in: output, changelog, positions.
const OUT: u8 = 1;
const LOG: u8 = 2;
const OFF: u8 = 4;

/// The rules.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// The broker takes positions of the present generation alone.
    generation: bool,
    /// Positions are not told while a transaction that changes them is open.
    stable: bool,
    /// State is read until its token is that of the position.
    token: bool,
    /// A producer goes after a commit that was sent twice.
    recreate: bool,
    /// State goes with the transaction that is aborted.
    drop_state: bool,
    /// Every transaction carries positions.
    positions: bool,
    /// A process goes on with what it has in memory only where the token beside the position is one that it knows.
    compare: bool,
    /// No two attempts have the same token.
    nonce: bool,
}

const ALL: Rules = Rules {
    generation: true,
    stable: true,
    token: true,
    recreate: true,
    drop_state: true,
    positions: true,
    compare: true,
    nonce: true,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum End {
    /// Nothing is open.
    #[default]
    None,
    Open,
    /// It will commit; partitions where that is not written yet.
    Commit(u8),
    Abort(u8),
}

/// A transactional id at the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Id {
    epoch: u8,
    end: End,
    /// Inputs whose outputs are in it.
    outputs: u8,
    state: Option<(u8, u8)>,
    position: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Down,
    /// A producer, nothing known.
    Ready,
    /// A position is known, no state.
    Restoring,
    Running,
    /// Outputs are in the transaction.
    Produced,
    /// State too.
    Written,
    /// Positions too.
    Offered,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    phase: Phase,
    epoch: u8,
    generation: u8,
    next: u8,
    token: u8,
    /// Keys that were seen.
    seen: u8,
    /// Position and token of the transaction that is open.
    target: (u8, u8),
    /// The producer must go before the next transaction.
    tainted: bool,
    /// What it has in memory: token and keys of its last commit; none: nothing.
    base: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    /// How often each output is visible.
    visible: [u8; 3],
    /// Position with its token, and changelog with its token and state, as they are visible.
    position: (u8, u8),
    log: (u8, u8),
    ids: [Id; 2],
    processes: [Process; 2],
    owner: u8,
    generation: u8,
    /// Tokens given so far.
    tokens: u8,
    /// Epoch and id of a late copy of a commit.
    late: Option<(u8, u8)>,
    crashes: u8,
    rebalances: u8,
    copies: u8,
    timeouts: u8,
}

impl World {
    /// What is wrong with what readers see.
    fn wrong(&self) -> Option<&'static str> {
        for (input, &count) in self.visible.iter().enumerate() {
            if count > u8::from(UNIQUE[input]) {
                return Some("twice");
            }
        }
        // Behind a committed position everything is visible, once the ends are written.
        let written = self.ids.iter().all(|id| !matches!(id.end, End::Commit(_)));
        let lost = |input: usize| UNIQUE[input] && self.visible[input] == 0;
        (written && (0..usize::from(self.position.0)).any(lost)).then_some("lost")
    }

    fn id(&mut self, at: usize) -> &mut Id {
        &mut self.ids[at]
    }

    /// The end of a transaction is decided; it is written partition by partition.
    fn end(&mut self, at: usize, commit: bool) {
        let id = self.id(at);
        let mut parts = OUT;
        if id.state.is_some() {
            parts |= LOG;
        }
        if id.position.is_some() {
            parts |= OFF;
        }
        id.end = if commit { End::Commit(parts) } else { End::Abort(parts) };
    }

    /// The process does not know what became of what it did since the last commit: its memory waits for that.
    fn undo(&mut self, at: usize) {
        self.processes[at].phase = Phase::Ready;
    }

    /// Every state that may come next.
    fn steps(&self, rules: Rules, next: &mut Vec<World>) {
        self.broker(next);
        for at in 0..2 {
            self.process(at, rules, next);
        }
    }

    fn broker(&self, next: &mut Vec<World>) {
        let mut go = |change: &dyn Fn(&mut World)| {
            let mut world = *self;
            change(&mut world);
            next.push(world);
        };
        for at in 0..2 {
            let id = self.ids[at];
            if let End::Commit(parts) | End::Abort(parts) = id.end {
                let commit = matches!(id.end, End::Commit(_));
                for part in [OUT, LOG, OFF].into_iter().filter(|part| parts & part != 0) {
                    go(&|world| {
                        if commit && part == OUT {
                            (0..3).filter(|i| id.outputs >> i & 1 == 1).for_each(|i| world.visible[i] += 1);
                        }
                        if let (true, LOG, Some(state)) = (commit, part, id.state) {
                            world.log = state;
                        }
                        if let (true, OFF, Some(position)) = (commit, part, id.position) {
                            world.position = position;
                        }
                        let left = parts & !part;
                        let ended = if commit { End::Commit(left) } else { End::Abort(left) };
                        world.ids[at].end = if left == 0 { End::None } else { ended };
                    });
                }
            }
            if id.end == End::Open && self.timeouts > 0 {
                go(&|world| {
                    world.timeouts -= 1;
                    world.ids[at].epoch += 1;
                    world.end(at, false);
                });
            }
        }
        if self.rebalances > 0 {
            go(&|world| {
                world.rebalances -= 1;
                world.generation += 1;
                world.owner = 1 - world.owner;
            });
        }
        if let Some((at, epoch)) = self.late {
            go(&|world| {
                world.late = None;
                let id = world.ids[usize::from(at)];
                if id.epoch == epoch && id.end == End::Open {
                    world.end(usize::from(at), true);
                }
            });
        }
    }

    fn process(&self, at: usize, rules: Rules, next: &mut Vec<World>) {
        let (process, id) = (self.processes[at], self.ids[at]);
        let mut go = |change: &dyn Fn(&mut World)| {
            let mut world = *self;
            change(&mut world);
            next.push(world);
        };
        let running = !matches!(process.phase, Phase::Down);
        if running && self.crashes > 0 {
            go(&|world| {
                world.crashes -= 1;
                world.processes[at] = Process::default();
            });
        }
        if running && process.epoch != id.epoch {
            // Fenced: a new producer.
            go(&|world| {
                world.undo(at);
                world.processes[at].phase = Phase::Down;
            });
            return;
        }
        if running && process.phase != Phase::Ready && process.generation != self.generation {
            // It hears of the rebalance, sooner or later.
            go(&|world| {
                if world.ids[at].end == End::Open {
                    world.end(at, false);
                }
                world.undo(at);
            });
        }
        match process.phase {
            Phase::Down => match id.end {
                End::Open => go(&|world| world.end(at, false)),
                End::Commit(_) | End::Abort(_) => {}
                End::None => go(&|world| {
                    world.ids[at] = Id { epoch: id.epoch + 1, ..Id::default() };
                    let Process { seen, base, target, .. } = world.processes[at];
                    let fresh = Process { phase: Phase::Ready, epoch: id.epoch + 1, ..Process::default() };
                    world.processes[at] = Process { seen, base, target, ..fresh };
                }),
            },
            Phase::Ready if usize::from(self.owner) == at => {
                let pending = |id: &Id| match id.end {
                    End::None => false,
                    End::Open => id.position.is_some(),
                    End::Commit(parts) | End::Abort(parts) => parts & OFF != 0,
                };
                if !(rules.stable && self.ids.iter().any(pending)) {
                    go(&|world| {
                        let (next, token) = world.position;
                        let process = &mut world.processes[at];
                        (process.next, process.token, process.phase) = (next, token, Phase::Restoring);
                        match process.base {
                            Some((last, seen)) if last == token || !rules.compare => {
                                process.seen = if rules.drop_state { seen } else { process.seen };
                                process.phase = Phase::Running;
                            }
                            Some(_) if process.target.1 == token => process.phase = Phase::Running,
                            _ => process.seen = 0,
                        }
                        let known = process.phase == Phase::Running;
                        (process.base, process.target) = (known.then_some((token, process.seen)), (0, 0));
                        process.generation = self.generation;
                    });
                }
            }
            Phase::Ready => {}
            Phase::Restoring if !rules.token || self.log.0 == process.token => go(&|world| {
                world.processes[at].seen = world.log.1;
                world.processes[at].base = Some((process.token, world.log.1));
                world.processes[at].phase = Phase::Running;
            }),
            Phase::Restoring => {}
            Phase::Running if process.tainted && rules.recreate => {
                go(&|world| world.processes[at].phase = Phase::Down);
            }
            Phase::Running if id.end == End::None => {
                for end in process.next + 1..=(process.next + 2).min(3) {
                    go(&|world| {
                        world.tokens += 1;
                        let token = if rules.nonce { world.tokens } else { process.token + 1 };
                        let process = &mut world.processes[at];
                        let mut outputs = 0;
                        for input in process.next..end {
                            let key = 1 << KEYS[usize::from(input)];
                            if process.seen & key == 0 {
                                outputs |= 1 << input;
                            }
                            process.seen |= key;
                        }
                        (process.target, process.phase) = ((end, token), Phase::Produced);
                        world.ids[at] = Id { epoch: id.epoch, end: End::Open, outputs, ..Id::default() };
                    });
                }
            }
            Phase::Running => {}
            Phase::Produced if id.end == End::Open => go(&|world| {
                world.ids[at].state = Some((process.target.1, process.seen));
                world.processes[at].phase = Phase::Written;
            }),
            Phase::Written if !rules.positions => go(&|world| world.processes[at].phase = Phase::Offered),
            Phase::Written if rules.generation && process.generation != self.generation => go(&|world| {
                if world.ids[at].end == End::Open {
                    world.end(at, false);
                }
                world.undo(at);
            }),
            Phase::Written if id.end == End::Open => go(&|world| {
                world.ids[at].position = Some(process.target);
                world.processes[at].phase = Phase::Offered;
            }),
            // A late copy has ended it: the client finds that it cannot go on.
            Phase::Produced | Phase::Written => go(&|world| {
                world.undo(at);
                world.processes[at].phase = Phase::Down;
            }),
            Phase::Offered if id.end == End::Open => {
                let done = |world: &mut World| {
                    world.end(at, true);
                    let process = &mut world.processes[at];
                    (process.next, process.token) = process.target;
                    process.base = Some((process.token, process.seen));
                    process.phase = Phase::Running;
                };
                go(&done);
                if self.copies > 0 {
                    go(&|world| {
                        done(world);
                        world.copies -= 1;
                        world.late = Some((at as u8, id.epoch));
                        world.processes[at].tainted = true;
                    });
                }
            }
            Phase::Offered => go(&|world| {
                world.undo(at);
                world.processes[at].phase = Phase::Down;
            }),
        }
    }
}

/// How often what happens: crashes, rebalances, late copies of a commit, timeouts.
type Budget = [u8; 4];

/// Looks at every state that can be reached: how many there are, and the first that is wrong.
fn explore(rules: Rules, [crashes, rebalances, copies, timeouts]: Budget) -> (usize, Option<(World, &'static str)>) {
    let start = World { crashes, rebalances, copies, timeouts, ..World::default() };
    let mut known = HashSet::from([start]);
    // In the order of their distance: what is wrong is found by the shortest way.
    let mut open = VecDeque::from([start]);
    let mut next = Vec::new();
    let mut finished = false;
    while let Some(world) = open.pop_front() {
        if let Some(why) = world.wrong() {
            return (known.len(), Some((world, why)));
        }
        finished |= world.position.0 == 3;
        world.steps(rules, &mut next);
        for world in next.drain(..) {
            if known.insert(world) {
                open.push_back(world);
            }
        }
    }
    assert!(finished, "the model does not come to its end");
    (known.len(), None)
}

#[test]
fn with_every_rule_nothing_is_lost_and_nothing_leaves_twice() {
    let mut states = 0;
    for budget in [[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1]] {
        let (count, wrong) = explore(ALL, budget);
        assert_eq!(wrong, None, "{budget:?}");
        states += count;
    }
    assert!(states > 50_000, "{states} states are too few to prove anything");
}

#[test]
fn each_rule_left_out_alone_does_harm() {
    let check = |rules: Rules, budget| assert!(explore(rules, budget).1.is_some(), "{rules:?} does no harm");
    check(Rules { generation: false, ..ALL }, [0, 1, 0, 0]);
    check(Rules { stable: false, ..ALL }, [0, 1, 0, 0]);
    check(Rules { token: false, ..ALL }, [0, 1, 0, 0]);
    check(Rules { recreate: false, ..ALL }, [0, 0, 1, 0]);
    check(Rules { drop_state: false, ..ALL }, [0, 0, 0, 1]);
    check(Rules { positions: false, ..ALL }, [0, 1, 0, 0]);
    check(Rules { compare: false, ..ALL }, [0, 2, 0, 0]);
    check(Rules { nonce: false, ..ALL }, [0, 2, 0, 0]);
}
