//! Checkpoints: a copy of the state beside the journal, so that a restart need not read the journal from its beginning.
//! The only user of sled.
//!
//! A checkpoint is never the truth. What is read back is verified: every part has its hash, the head has the sum of
//! them all, the token that says where in the journal the checkpoint belongs, and the identity of the run. Whatever is
//! wrong with the store, an error, a panic, a call that does not come back, a part missing or changed, has one answer:
//! the directory is deleted and the state is rebuilt from the journal.
//!
//! A round writes its parts under a new generation, flushes, then writes and flushes the head: until then the
//! checkpoint before it stands, whole. The parts of a round may be written between commits, a few at a time; the token
//! is that of its beginning, so that the journal from there on brings every part to the same moment.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::format::{self, Bytes, Kind};

/// How long the store may take over one call.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of one value in the store; it is slow with large ones.
const CHUNK: usize = 32 * 1024;
const HEAD: &[u8] = b"head";
const PARTS: &[u8] = b"parts";
/// Old values that are removed in one go.
const BATCH: usize = 4096;
/// Parts that are read before somebody takes them.
const READ_AHEAD: usize = 4;

#[derive(Serialize, Deserialize)]
struct Head {
    identity: u128,
    generation: u64,
    parts: u32,
    chunks: u64,
    digest: u128,
    token: Bytes,
}

#[derive(Serialize, Deserialize)]
struct Chunk {
    generation: u64,
    part: u32,
    chunk: u32,
    bytes: Bytes,
}

/// What is read of a checkpoint.
enum Read {
    /// It is one, and its token; whether it is whole is not known yet.
    Token(Vec<u8>),
    /// The next part.
    Part(Vec<u8>),
    /// That was all: it is whole, or why it is not.
    End(Result<(), String>),
}

/// What a checkpoint gave back: the token of its round, and its parts in order.
pub type Restored = (Vec<u8>, Vec<Vec<u8>>);

/// The checkpoints of one run in one directory.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    identity: u128,
    patience: Duration,
    store: Option<Store>,
    round: Option<Round>,
    troubles: Vec<String>,
}

#[derive(Clone, Debug)]
struct Store {
    db: sled::Db,
    parts: sled::Tree,
}

#[derive(Debug)]
struct Round {
    token: Vec<u8>,
    generation: u64,
    parts: u32,
    chunks: u64,
    digest: u128,
}

impl Checkpoint {
    /// Opens the store in a directory of its own, which it may delete. `identity` is that of the run: a checkpoint of
    /// another one is no checkpoint. A store that cannot be opened is begun anew; if that fails too there will be no
    /// checkpoints, which `troubles` tells.
    pub fn open(dir: &Path, identity: u128) -> Checkpoint {
        Checkpoint::with(dir, identity, PATIENCE)
    }

    fn with(dir: &Path, identity: u128, patience: Duration) -> Checkpoint {
        let (store, round, troubles) = (None, None, Vec::new());
        let mut checkpoint = Checkpoint { dir: dir.to_owned(), identity, patience, store, round, troubles };
        checkpoint.reopen();
        if checkpoint.store.is_none() {
            checkpoint.wipe();
            checkpoint.reopen();
        }
        checkpoint
    }

    /// What went wrong with the store so far; each time it was begun anew.
    pub fn troubles(&self) -> &[String] {
        &self.troubles
    }

    /// The last complete checkpoint, verified. None: there is none, or it was damaged and is gone now.
    pub fn read(&mut self) -> Option<Restored> {
        let mut parts = Vec::new();
        let token = self.read_each(|_| true, |part| parts.push(part))?;
        Some((token, parts))
    }

    /// The last complete checkpoint, part by part while it is read: they are nothing unless the token is given in the
    /// end. `wanted`: whether it is of use, by its token.
    pub fn read_each(&mut self, wanted: impl FnOnce(&[u8]) -> bool, mut each: impl FnMut(Vec<u8>)) -> Option<Vec<u8>> {
        let (identity, store) = (self.identity, self.store.clone()?);
        let (say, heard) = mpsc::sync_channel(READ_AHEAD);
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(move || {
            let done = store.read(identity, &mut |read| say.send(read).is_ok());
            // Nobody listens any more when it is not wanted.
            let _ = say.send(Read::End(done));
        });
        if let Err(why) = thread {
            self.troubles.push(format!("read: {why}"));
            return None;
        }
        let (mut wanted, mut token) = (Some(wanted), None);
        let why = loop {
            match heard.recv_timeout(self.patience) {
                Ok(Read::Token(found)) if wanted.take().is_none_or(|wanted| wanted(&found)) => token = Some(found),
                Ok(Read::Token(_)) => return None,
                Ok(Read::Part(part)) => each(part),
                Ok(Read::End(Ok(()))) => return token,
                Ok(Read::End(Err(why))) => break format!("the checkpoint is not used: {why}"),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    break format!("read: no answer within {} s", self.patience.as_secs());
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break "read: the store panicked".to_owned(),
            }
        };
        self.lose(why);
        None
    }

    /// Begins a round; an unfinished one is given up. `token`: whatever tells its place in the journal.
    pub fn begin(&mut self, token: &[u8]) {
        self.round = None;
        if self.store.is_none() {
            self.wipe();
            self.reopen();
        }
        if let Some(Ok(generation)) = self.guarded("begin", |store| store.next_generation().map_err(text)) {
            self.round = Some(Round { token: token.to_owned(), generation, parts: 0, chunks: 0, digest: 0 });
        }
    }

    /// Writes the next part of the round. Parts of some hundred kilobytes keep each call short.
    pub fn put(&mut self, part: Vec<u8>) {
        let Some(round) = &mut self.round else { return };
        let (generation, number) = (round.generation, round.parts);
        round.parts += 1;
        round.chunks += part.chunks(CHUNK).len().max(1) as u64;
        round.digest = round.digest.wrapping_add(part_digest(number, &part));
        match self.guarded("put", move |store| store.put(generation, number, &part)) {
            Some(Ok(())) => {}
            Some(Err(why)) => self.lose(why),
            None => self.round = None,
        }
    }

    /// Makes durable what was put so far, so that the end of the round has little left to do.
    pub fn flush(&mut self) {
        if let Some(Err(why)) = self.round.is_some().then(|| self.guarded("flush", Store::flush)).flatten() {
            self.lose(why);
        }
    }

    /// Ends the round: with true it is the checkpoint, durably. With false the one before it stands, or none.
    pub fn finish(&mut self) -> bool {
        let Some(Round { token, generation, parts, chunks, digest }) = self.round.take() else { return false };
        let head = Head { identity: self.identity, generation, parts, chunks, digest, token: Bytes(token) };
        match self.guarded("finish", move |store| store.finish(&head)) {
            Some(Ok(())) => true,
            Some(Err(why)) => {
                self.lose(why);
                false
            }
            None => false,
        }
    }

    /// A whole round at once.
    pub fn write(&mut self, token: &[u8], parts: impl IntoIterator<Item = Vec<u8>>) -> bool {
        self.begin(token);
        parts.into_iter().for_each(|part| self.put(part));
        self.finish()
    }

    fn reopen(&mut self) {
        let dir = self.dir.clone();
        match self.alone("open", move || Store::open(&dir).map_err(text)) {
            Some(Ok(store)) => self.store = Some(store),
            Some(Err(why)) => self.troubles.push(why),
            None => {}
        }
    }

    /// Calls the store; on a panic or when it does not answer in time, it is lost.
    fn guarded<T: Send + 'static>(&mut self, what: &str, act: impl FnOnce(&Store) -> T + Send + 'static) -> Option<T> {
        let store = self.store.clone()?;
        let answer = self.alone(what, move || act(&store));
        if answer.is_none() {
            self.lose(String::new());
        }
        answer
    }

    /// Runs something of sled's on a thread of its own: there it may panic or hang.
    fn alone<T: Send + 'static>(&mut self, what: &str, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (answer, wait) = mpsc::channel();
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(move || {
            // The receiver may have lost its patience.
            let _ = answer.send(act());
        });
        if let Err(why) = thread {
            self.troubles.push(format!("{what}: {why}"));
            return None;
        }
        match wait.recv_timeout(self.patience) {
            Ok(answer) => Some(answer),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.troubles.push(format!("{what}: no answer within {} s", self.patience.as_secs()));
                None
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.troubles.push(format!("{what}: the store panicked"));
                None
            }
        }
    }

    /// Gives the store up and deletes it; the next round begins it anew.
    fn lose(&mut self, why: String) {
        self.round = None;
        if !why.is_empty() {
            self.troubles.push(why);
        }
        self.close();
        self.wipe();
    }

    /// Closing writes, and may panic as everything else.
    fn close(&mut self) {
        if let Some(store) = self.store.take() {
            self.alone("close", move || drop(store));
        }
    }

    fn wipe(&mut self) {
        match std::fs::remove_dir_all(&self.dir) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                self.troubles.push(format!("{}: {why}", self.dir.display()));
            }
            _ => {}
        }
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store {
    fn open(dir: &Path) -> sled::Result<Store> {
        let config = sled::Config::new().path(dir).cache_capacity(4 << 20).flush_every_ms(None);
        let db = config.mode(sled::Mode::LowSpace).open()?;
        let parts = db.open_tree(PARTS)?;
        Ok(Store { db, parts })
    }

    fn next_generation(&self) -> sled::Result<u64> {
        let last = self.parts.last()?;
        let last = last.and_then(|(key, _)| key.get(..8).and_then(|bytes| bytes.try_into().ok()));
        Ok(last.map_or(0, u64::from_be_bytes) + 1)
    }

    fn put(&self, generation: u64, part: u32, bytes: &[u8]) -> Result<(), String> {
        let mut chunks: Vec<&[u8]> = bytes.chunks(CHUNK).collect();
        if chunks.is_empty() {
            chunks.push(&[]); // an empty part is a part
        }
        for (chunk, bytes) in chunks.into_iter().enumerate() {
            let chunk = chunk as u32;
            let value = Chunk { generation, part, chunk, bytes: Bytes(bytes.to_vec()) };
            let value = format::encode(Kind::Bucket, &value).map_err(text)?;
            self.parts.insert(key(generation, part, chunk), value).map_err(text)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        self.parts.flush().map(drop).map_err(text)
    }

    /// Parts first, the head last; then what the head no longer names goes.
    fn finish(&self, head: &Head) -> Result<(), String> {
        self.parts.flush().map_err(text)?;
        self.db.insert(HEAD, format::encode(Kind::Head, head).map_err(text)?).map_err(text)?;
        self.db.flush().map_err(text)?;
        let is_other = |key: &sled::IVec| !key.starts_with(&head.generation.to_be_bytes());
        loop {
            let old: Vec<sled::IVec> =
                self.parts.iter().keys().filter_map(Result::ok).filter(is_other).take(BATCH).collect();
            if old.is_empty() {
                return Ok(());
            }
            let mut batch = sled::Batch::default();
            old.into_iter().for_each(|key| batch.remove(key));
            self.parts.apply_batch(batch).map_err(text)?;
        }
    }

    /// Says what it reads as long as somebody listens.
    fn read(&self, identity: u128, say: &mut dyn FnMut(Read) -> bool) -> Result<(), String> {
        let Some(head) = self.db.get(HEAD).map_err(text)? else { return Ok(()) };
        let head: Head = format::decode(Kind::Head, &head).map_err(|why| format!("its head is {why}"))?;
        if head.identity != identity {
            return Err("it belongs to another run".into());
        }
        if !say(Read::Token(head.token.0.clone())) {
            return Ok(());
        }
        let (mut open, mut chunks, mut next): (Option<(u32, Vec<u8>)>, _, _) = (None, 0, 0);
        let (mut parts, mut digest) = (0u32, 0u128);
        let mut end = |open: Option<(u32, Vec<u8>)>, say: &mut dyn FnMut(Read) -> bool| {
            let Some((_, part)) = open else { return true };
            digest = digest.wrapping_add(part_digest(parts, &part));
            parts += 1;
            say(Read::Part(part))
        };
        for item in self.parts.scan_prefix(head.generation.to_be_bytes()) {
            let (at, value) = item.map_err(text)?;
            let chunk: Chunk = format::decode(Kind::Bucket, &value).map_err(|why| format!("a part is {why}"))?;
            if at != key(head.generation, chunk.part, chunk.chunk).as_slice() || chunk.generation != head.generation {
                return Err("a part is not where it belongs".into());
            }
            if chunk.chunk == 0 {
                if !end(open.take(), say) {
                    return Ok(());
                }
                (open, next) = (Some((chunk.part, Vec::new())), 0);
            }
            let Some((_, part)) = open.as_mut().filter(|(part, _)| *part == chunk.part && chunk.chunk == next) else {
                return Err("a part has a hole".into());
            };
            part.extend_from_slice(&chunk.bytes.0);
            next += 1;
            chunks += 1;
        }
        end(open, say);
        if parts != head.parts || chunks != head.chunks || digest != head.digest {
            return Err("parts are missing".into());
        }
        Ok(())
    }
}

fn key(generation: u64, part: u32, chunk: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&generation.to_be_bytes());
    key[8..12].copy_from_slice(&part.to_be_bytes());
    key[12..].copy_from_slice(&chunk.to_be_bytes());
    key
}

fn part_digest(number: u32, part: &[u8]) -> u128 {
    xxh3_128(part).wrapping_mul(2 * u128::from(number) + 1)
}

fn text(why: impl std::fmt::Display) -> String {
    why.to_string()
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
