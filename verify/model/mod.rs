//! The lock state and the queue's protocol, model-checked.
//!
//! The lock states are the real ones; the threads that drive them and the network are modelled here, and
//! Redis is the small one of [`super::small_redis`]. Anything may happen at any moment: a message
//! or a reply is late or lost, a request runs after its sender gave up on it, a waiting thread's
//! time is up, a lease lapses, a process dies, an inbox breaks. Time goes in ticks, a few in all;
//! a lease lasts two.
//!
//! A read/write lock is two lock states, and some of its threads do more with it than one turn: see `modes.rs`. A thread
//! that waits for a condition does so at a lock state of its own: see `waits.rs`; what a signal is worth is kept apart
//! from Redis and the lock states, in `signals.rs`. What must hold is in `properties.rs`. Where it does not, the checker
//! prints the shortest way there, step by step.

mod actions;
mod explore;
mod lock_states;
mod modes;
mod properties;
mod replay;
mod requests;
mod signals;
mod state;
mod threads;
mod waits;
mod worlds;

use std::time::Duration;

use self::modes::Role;
use self::state::Faults;
use super::small_redis::FOR_EVER;
use crate::clock::Moment;

/// A tombstone does not end at a full tick: on a real server, that would be a little before or after.
const TICK: Duration = Duration::from_secs(8);
/// In ticks.
const LEASE: u32 = 2;
/// How many ticks all threads of a model take together at most, once there are no more faults.
const PATIENCE: u8 = 16;

fn at(tick: u8) -> Moment {
    Moment::default().after(TICK * u32::from(tick))
}

/// What each thread of a process does while it holds the lock.
type Plans = Vec<&'static str>;

/// How large a model is, and what may go wrong in it.
#[derive(Clone, Debug)]
struct World {
    processes: u8,
    threads: u8,
    /// How often each thread takes the lock.
    rounds: u8,
    /// Those of all processes but the first take it once.
    others_once: bool,
    /// How far time goes.
    ticks: u8,
    local_handoff: Duration,
    /// How long a silent position lives, in milliseconds.
    waiter_timeout: u64,
    fair: bool,
    /// The second thread of each process asks for a fixed lease of one tick.
    terms_differ: bool,
    /// Count those that are passed by. Only where nothing is lost, not even a grant that is not heard of
    /// before its lease is over: a waiter that loses its position is passed by.
    counts: bool,
    /// Of a semaphore, how many permits there are: the first thread of each process asks for one, the second for
    /// two. 0 of any other lock.
    permits: u8,
    /// Of a read/write lock, what each thread does with it, those of the first process first; none of
    /// an exclusive one.
    roles: &'static [Role],
    /// Of an exclusive lock with conditions, what each thread of each process does while it holds the lock, once
    /// through: it waits (`w`), signals one (`s`) or signals all (`a`). Without any, threads take their turns only.
    plans: Vec<Plans>,
    /// How many conditions the lock has: a thread waits for, and signals, that of its number.
    conditions: u8,
    /// Nobody is slow: nobody comes or goes, and time does not go on, while anything is on its way or
    /// somebody is about to take its turn.
    prompt: bool,
    /// The last number is one of the future: the server's clock was set back.
    behind: bool,
    /// For how many ticks a process keeps the lock, if it does.
    linger: u8,
    faults: Faults,
}

impl World {
    fn never_silent(&self) -> bool {
        self.waiter_timeout == FOR_EVER
    }

    fn has_conditions(&self) -> bool {
        !self.plans.is_empty()
    }

    fn condition(&self, thread: u8) -> u8 {
        thread % self.conditions
    }
}
