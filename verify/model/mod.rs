//! Model checking of the lock state and of the queue's protocol.
//!
//! The lock states are the real ones; the threads that drive them and the network are modelled here, and
//! Redis is the small one of [`super::small_redis`]. Anything may happen at any moment: a message or a reply
//! is late or lost, a request runs after its sender gave up on it, a waiting thread times out, a lease
//! expires, a process dies, an inbox breaks. Time passes in ticks, a few in all; a lease lasts two.
//!
//! A read/write lock has two lock states, and some of its threads do more with it than acquire and release:
//! see `modes.rs`. A thread that waits for a condition uses a lock state of its own: see `waits.rs`. What
//! becomes of each signal is tracked apart from Redis and the lock states, in `signals.rs`. What must hold is
//! in `properties.rs`. If it does not, the checker prints the shortest way there, step by step.

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

/// Chosen so that no tombstone expires exactly at a tick: on a real server, it would expire slightly before
/// or after.
const TICK: Duration = Duration::from_secs(8);
/// In ticks.
const LEASE: u32 = 2;
/// How many ticks the threads of a model may take to finish, once there are no more faults.
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
    /// How often each thread acquires the lock.
    rounds: u8,
    /// Threads of all processes but the first acquire it once.
    others_once: bool,
    /// How many ticks there are.
    ticks: u8,
    local_handoff: Duration,
    /// How long a silent position lives, in milliseconds.
    waiter_timeout: u64,
    fair: bool,
    /// The second thread of each process asks for a fixed lease of one tick.
    terms_differ: bool,
    /// Count how often waiters are passed by. Only for worlds in which nothing is lost, not even a grant
    /// whose message arrives after its lease has expired: a waiter that loses its position is passed by.
    counts: bool,
    /// For a semaphore, its number of permits: the first thread of each process requests one, the second two.
    /// 0 for any other lock.
    permits: u8,
    /// How many threads may wait before each.
    max_waiters: Option<usize>,
    /// The second thread of each process is more urgent than the first, the third less.
    priorities: bool,
    /// For a read/write lock, what each thread does with it, starting with those of the first process; empty
    /// for an exclusive lock.
    roles: &'static [Role],
    /// For an exclusive lock with conditions, what each thread of each process does while it holds the lock,
    /// once: it waits (`w`), signals one (`s`) or signals all (`a`). If empty, threads only acquire and
    /// release.
    plans: Vec<Plans>,
    /// How many conditions the lock has: a thread's number selects the one that it waits for and signals.
    conditions: u8,
    /// Nobody is slow: while anything is in flight or a thread is about to take its turn, no thread arrives
    /// or leaves and time stands still.
    prompt: bool,
    /// The last number is in the future: the server's clock was set back.
    behind: bool,
    /// For how many ticks a process keeps the lock; 0 if it does not.
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
