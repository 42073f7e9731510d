//! Faults on the wire: a proxy before one broker that knows the header of Kafka's requests (length, API key, version,
//! correlation id, client id) and of its replies (length, correlation id), and nothing else.
//!
//! The broker's second listener advertises the proxy's port, so all of a client's traffic stays on it. A fault names
//! the clients it is for, by the beginning of their `client.id`: tests that share a broker do not meet.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// API keys of Kafka's requests.
pub mod api {
    /// Records to partitions.
    pub const PRODUCE: i16 = 0;
    /// Records from partitions.
    pub const FETCH: i16 = 1;
    /// Begin and end of partitions.
    pub const LIST_OFFSETS: i16 = 2;
    /// Brokers, topics, leaders.
    pub const METADATA: i16 = 3;
    /// Offsets outside transactions.
    pub const OFFSET_COMMIT: i16 = 8;
    /// Offsets that a group committed.
    pub const OFFSET_FETCH: i16 = 9;
    /// Who coordinates a group or a transactional id.
    pub const FIND_COORDINATOR: i16 = 10;
    /// Becoming a member of a group.
    pub const JOIN_GROUP: i16 = 11;
    /// Staying one.
    pub const HEARTBEAT: i16 = 12;
    /// The assignment.
    pub const SYNC_GROUP: i16 = 14;
    /// Producer id and epoch.
    pub const INIT_PRODUCER_ID: i16 = 22;
    /// Partitions of a transaction.
    pub const ADD_PARTITIONS_TO_TXN: i16 = 24;
    /// The group of a transaction.
    pub const ADD_OFFSETS_TO_TXN: i16 = 25;
    /// Commit or abort.
    pub const END_TXN: i16 = 26;
    /// Offsets inside a transaction.
    pub const TXN_OFFSET_COMMIT: i16 = 28;
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It reaches the broker this much later, and so does what follows it on its connection.
    Delay(Duration),
    /// It never reaches the broker; its connection stays.
    DropRequest,
    /// The broker does what it asks; the reply never reaches the client, the connection stays.
    DropReply,
    /// The connection is cut; the broker never saw the request.
    CutBefore,
    /// The connection is cut when the broker has done what it asks, before the reply.
    CutAfter,
    /// The request is kept, its connection is cut; [`Planned::release`] delivers it.
    Hold,
    /// Nothing of these clients moves for this long.
    Stall(Duration),
}

/// A fault that was asked for: whether it came, and what to do about it later. It ends when this goes.
pub struct Planned {
    shared: Arc<Shared>,
    number: u64,
}

/// A proxy before one broker.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Port of the broker; 0 until it is known.
    broker: u16,
    rules: BTreeMap<u64, Rule>,
    next: u64,
    /// Requests by client id and API key.
    seen: HashMap<(String, i16), u64>,
    /// Clients, by the beginning of their id, of whom nothing moves until then.
    stalled: Vec<(String, Instant)>,
}

struct Rule {
    client: String,
    api: i16,
    /// Requests to let pass first.
    pass: u64,
    /// Requests to treat.
    times: u64,
    fault: Fault,
    fired: u64,
    held: Vec<Vec<u8>>,
}

impl Proxy {
    /// A proxy that listens; it accepts clients once it knows its broker.
    pub fn listen() -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&own);
                std::thread::spawn(move || carry(client, &shared));
            }
        });
        Proxy { port, shared }
    }

    /// Says at which port of loopback the broker is.
    pub fn stand_before(&self, broker: u16) {
        self.shared.lock().broker = broker;
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Plans a fault for the n-th (from 1) request of a kind that comes from now on, from clients whose id begins so.
    pub fn plan(&self, client: &str, api: i16, nth: u64, fault: Fault) -> Planned {
        self.plan_many(client, api, nth, 1, fault)
    }

    /// The same for several requests in a row.
    pub fn plan_many(&self, client: &str, api: i16, nth: u64, times: u64, fault: Fault) -> Planned {
        let mut state = self.shared.lock();
        let number = state.next;
        state.next += 1;
        let (client, pass) = (client.to_string(), nth.saturating_sub(1));
        state.rules.insert(number, Rule { client, api, pass, times, fault, fired: 0, held: Vec::new() });
        Planned { shared: Arc::clone(&self.shared), number }
    }

    /// How many requests of a kind came from clients whose id begins so.
    pub fn seen(&self, client: &str, api: i16) -> u64 {
        let state = self.shared.lock();
        state.seen.iter().filter(|((id, key), _)| *key == api && id.starts_with(client)).map(|(_, n)| n).sum()
    }

    /// Lets nothing of these clients move for a while.
    pub fn stall(&self, client: &str, time: Duration) {
        self.shared.lock().stalled.push((client.to_string(), Instant::now() + time));
    }
}

impl Planned {
    /// How many requests met the fault.
    pub fn fired(&self) -> u64 {
        self.shared.lock().rules.get(&self.number).map_or(0, |rule| rule.fired)
    }

    /// Waits until the fault came; says whether it did.
    pub fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.shared.lock();
        loop {
            if state.rules.get(&self.number).is_some_and(|rule| rule.fired > 0) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = match self.shared.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Delivers what was held, over a connection of its own, and returns the broker's replies.
    pub fn release(&self) -> Vec<Vec<u8>> {
        let (held, broker) = {
            let mut state = self.shared.lock();
            let held = state.rules.get_mut(&self.number).map(|rule| std::mem::take(&mut rule.held));
            (held.unwrap_or_default(), state.broker)
        };
        let mut replies = Vec::new();
        for frame in held {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)).expect("the broker listens");
            stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
            stream.write_all(&frame).expect("the broker listens");
            let mut reply = Vec::new();
            if read_frame(&mut stream, &mut reply).is_ok() {
                replies.push(reply);
            }
        }
        replies
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        self.shared.lock().rules.remove(&self.number);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a request and says what happens to it.
    fn judge(&self, header: &Header, frame: &[u8]) -> Option<Fault> {
        let mut state = self.lock();
        *state.seen.entry((header.client.clone(), header.api)).or_default() += 1;
        let mut fault = None;
        for rule in state.rules.values_mut() {
            if rule.api != header.api || !header.client.starts_with(&rule.client) {
                continue;
            }
            if rule.pass > 0 {
                rule.pass -= 1;
                continue;
            }
            if rule.times == 0 || fault.is_some() {
                continue;
            }
            rule.times -= 1;
            rule.fired += 1;
            if rule.fault == Fault::Hold {
                rule.held.push(frame.to_vec());
            }
            fault = Some(rule.fault);
        }
        if let Some(Fault::Stall(time)) = fault {
            state.stalled.push((header.client.clone(), Instant::now() + time));
        }
        drop(state);
        if fault.is_some() {
            self.changed.notify_all();
        }
        fault
    }

    /// Waits while nothing of a client may move.
    fn wait_while_stalled(&self, client: &str) {
        loop {
            let now = Instant::now();
            let mut state = self.lock();
            state.stalled.retain(|(_, until)| *until > now);
            let until = state.stalled.iter().filter(|(c, _)| client.starts_with(c.as_str())).map(|(_, u)| *u).max();
            drop(state);
            match until {
                Some(until) => std::thread::sleep(until - now),
                None => return,
            }
        }
    }
}

/// The beginning of a request.
struct Header {
    api: i16,
    correlation: i32,
    client: String,
}

impl Header {
    /// Reads it from a whole frame, whose first four bytes are its length.
    fn of(frame: &[u8]) -> Option<Header> {
        let int16 = |at: usize| Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let api = int16(4)?;
        let correlation = i32::from_be_bytes(frame.get(8..12)?.try_into().ok()?);
        let length = usize::try_from(int16(12)?).unwrap_or(0);
        let client = String::from_utf8_lossy(frame.get(14..14 + length)?).into_owned();
        Some(Header { api, correlation, client })
    }
}

/// What happens to a reply.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Drop,
    Cut,
}

/// Carries what one client says to the broker, and what the broker says back.
fn carry(mut client: TcpStream, shared: &Arc<Shared>) {
    let broker = shared.lock().broker;
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let expected: Arc<Mutex<HashMap<i32, Reply>>> = Arc::default();
    let name: Arc<Mutex<String>> = Arc::default();
    let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { return };
    let back = {
        let (shared, expected, name) = (Arc::clone(shared), Arc::clone(&expected), Arc::clone(&name));
        std::thread::spawn(move || carry_back(from, to, &shared, &expected, &name))
    };
    let mut frame = Vec::new();
    while read_frame(&mut client, &mut frame).is_ok() {
        let Some(header) = Header::of(&frame) else { break };
        header.client.clone_into(&mut name.lock().unwrap_or_else(|p| p.into_inner()));
        shared.wait_while_stalled(&header.client);
        let expect = |reply| {
            expected.lock().unwrap_or_else(|p| p.into_inner()).insert(header.correlation, reply);
        };
        match shared.judge(&header, &frame) {
            None => {}
            Some(Fault::Delay(time)) => std::thread::sleep(time),
            Some(Fault::DropRequest) => continue,
            Some(Fault::DropReply) => expect(Reply::Drop),
            Some(Fault::CutAfter) => expect(Reply::Cut),
            Some(Fault::CutBefore | Fault::Hold) => break,
            Some(Fault::Stall(_)) => shared.wait_while_stalled(&header.client),
        }
        if server.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    let _ = back.join();
}

fn carry_back(
    mut server: TcpStream,
    mut client: TcpStream,
    shared: &Shared,
    expected: &Mutex<HashMap<i32, Reply>>,
    name: &Mutex<String>,
) {
    let mut frame = Vec::new();
    while read_frame(&mut server, &mut frame).is_ok() {
        let correlation = frame.get(4..8).and_then(|b| b.try_into().ok()).map_or(-1, i32::from_be_bytes);
        let name = name.lock().unwrap_or_else(|p| p.into_inner()).clone();
        shared.wait_while_stalled(&name);
        match expected.lock().unwrap_or_else(|p| p.into_inner()).remove(&correlation) {
            Some(Reply::Drop) => continue,
            Some(Reply::Cut) => break,
            None => {}
        }
        if client.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// Reads one frame with its length before it.
fn read_frame(stream: &mut TcpStream, frame: &mut Vec<u8>) -> std::io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let bytes = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
    frame.clear();
    frame.extend_from_slice(&length);
    frame.resize(4 + bytes, 0);
    stream.read_exact(&mut frame[4..])
}
