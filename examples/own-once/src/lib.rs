//! Work that is done once, as a crate outside the library writes it: this file, and its rule in `once.lua`.

use std::time::Duration;

use redis_concurrent::kinds::{Exclusive, Kind, Queueing, Reentrancy};
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, OwnedGuard, RedisLock, Wait, rule_file};

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The kind of an attempt: one caller does the work, unless it was done.
#[derive(Clone, Copy, Debug)]
pub struct Attempts;

impl Kind for Attempts {
    const NAME: &'static str = "own once";
    const RULE: &'static str = rule_file!("once.lua");
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;
}

impl Exclusive for Attempts {}

/// Work that is to be done once per key, by whichever process.
#[derive(Clone, Debug)]
pub struct Once {
    lock: RedisLock<Attempts>,
}

/// What [`Once::begin`] found.
#[derive(Debug)]
pub enum Begun {
    /// The caller does the work.
    Yours(Attempt),
    /// The work was done, and this is its answer.
    Done(String),
}

impl Once {
    /// The work `key`. Sends no request.
    pub fn new(client: &Client, key: &str) -> Once {
        Once { lock: client.lock_with_kind(key, Attempts) }
    }

    /// Gives the work to the caller, or returns its answer; waits as `wait` says while another caller does it.
    /// `None` if the time is up.
    pub fn begin<'w>(&self, wait: impl Into<Wait<'w>>) -> Result<Option<Begun>, Error> {
        let wait = wait.into();
        loop {
            match self.lock.lock_owned_with(wait) {
                Ok(guard) => return Ok(guard.map(|guard| Begun::Yours(Attempt(guard)))),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // It was done. If the answer is no longer kept, the work is new again.
                    let answer: Vec<String> = self.lock.inspect_state("", wait)?;
                    if let Some(answer) = answer.into_iter().next() {
                        return Ok(Some(Begun::Done(answer)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The right to do the work, with a lease that is renewed. If it is dropped, the next caller does it.
#[derive(Debug)]
pub struct Attempt(OwnedGuard<Attempts>);

impl Attempt {
    /// The fencing token: greater than that of every earlier attempt.
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// Cancelled when the attempt is lost, and another caller may do the work.
    pub fn lost(&self) -> CancellationToken {
        self.0.lost()
    }

    /// Stores the answer for all callers that ask for it: once, however often it has to be sent.
    pub fn done(self, answer: &str) -> Result<(), Error> {
        self.0.conclude(&["done", answer, &KEPT.as_millis().to_string()])
    }
}
