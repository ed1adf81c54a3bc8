//! Waiting for a condition, model-checked: the gates of a lock, and one of its own for each thread
//! that waits, driven as `engine/condition.rs` and `engine/acquire.rs` drive them.
//!
//! Each thread has a plan, once through: it takes the lock, does what its plan says while it holds
//! it (`w`: wait, `s`: signal one, `a`: signal all), and unlocks. Anything may go wrong meanwhile
//! that may in the model of the lock; nothing is renewed. What a signal is worth is kept apart from
//! Redis and the gates, in `signals.rs`: from the moment at which a thread gives the lock up it
//! waits, wherever its place is.

mod actions;
mod properties;
mod replay;
mod room;
mod signals;
mod state;
mod threads;
mod worlds;

use std::time::Duration;

use super::state::Faults;
use crate::engine::small_redis::FOR_EVER;

/// The plan of each thread of a process.
type Plans = Vec<&'static str>;

/// How large a model is, and what may go wrong in it.
#[derive(Clone, Debug)]
struct World {
    /// Of each process.
    plans: Vec<Plans>,
    /// How often each thread follows its plan.
    rounds: u8,
    /// How many conditions the lock has: a thread waits for, and signals, that of its number.
    conditions: u8,
    /// How far time goes.
    ticks: u8,
    local_handoff: Duration,
    /// How long a silent place lives, in milliseconds.
    waiter_timeout: u64,
    faults: Faults,
}

impl World {
    fn never_silent(&self) -> bool {
        self.waiter_timeout == FOR_EVER
    }

    fn condition(&self, thread: u8) -> u8 {
        thread % self.conditions
    }
}
