//! Many cases, several at once.

use std::sync::Mutex;

/// Cases that run at once; they wait for brokers and timeouts most of the time.
const AT_ONCE: usize = 6;

/// Plays every case; what went wrong with some of them.
pub fn each<T: Send>(cases: Vec<T>, play: impl Fn(T) -> Result<(), String> + Sync) -> Vec<String> {
    let (queue, failed) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().next() else { return };
                    if let Err(why) = play(case) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

/// A number that a variable gives, for nights; else `usual`.
pub fn number(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}: `{text}` is no number")),
        Err(_) => usual,
    }
}
