//! The engine: how a thread acquires and releases, written once for every kind of lock.
//!
//! It keeps these invariants. Each has tests of its name in `tests/locks/invariants/`, the eleventh in
//! `tests/fork/`:
//!
//! 1. *one-owner*: two holds of an exclusive lock are never valid at once; tokens rise in the order of the
//!    grants.
//! 2. *validity-from-before-send*: a hold is valid for what was left of its lease, minus a drift, counted
//!    from the moment before the request that acquired it was sent.
//! 3. *no-sleep-before-subscribed*: a thread sleeps only once the lock state knows it, the inbox is confirmed
//!    and it is in the queue.
//! 4. *parks-are-bounded*: by the deadline, the holder's lease and the heartbeat.
//! 5. *a-grant-is-never-dropped*: a caller that is granted the lock in the instant it gives up passes it on.
//! 6. *unknown-is-settled*: a request without a reply is sent again under the same id, or released.
//! 7. *renewal-never-creates, lost-is-final*.
//! 8. *no-connection-while-parked, renewal-never-waits-for-the-pool*.
//! 9. *one-deadline* per call.
//! 10. *nothing-left-behind*.
//! 11. *only-the-process-that-acquired-releases*, also after a fork.
//! 12. *bounded-bypass*: a process that waits in Redis acquires after at most one local hand-off period and
//!     one critical section of each process ahead of it.
//!
//! A call goes `lock/ → engine → redis/exchange.rs → script.rs → lua/`; nothing calls back up, and nothing
//! here names what a user sees. The folders, each of which names those before it (`tests/tools/imports.rs`
//! reads the paths, and lists what does not yet):
//!
//! - [`state`]: the machine that decides; no I/O, no clock
//! - [`redis`]: bytes and connections
//! - [`servers`]: which server has a key
//! - [`entries`]: a lock of this process, the table of them, what the locks of a client share
//! - [`operations`]: what is asked of Redis for a lock
//! - [`renewal`]: keeping holds alive
//! - [`call`]: what a caller's thread does; the one driver of a wait is [`call::waiter`]
//! - [`hearing`]: what Redis tells
//! - [`takeover`]: when a server changes
//!
//! A thread that talks to Redis holds no mutex of the engine.

pub(crate) mod call;
pub(crate) mod entries;
pub(crate) mod hearing;
pub(crate) mod operations;
pub(crate) mod redis;
pub(crate) mod renewal;
pub(crate) mod servers;
pub(crate) mod state;
pub(crate) mod takeover;

// What shows that the engine is right: see verify/README.md.
#[cfg(all(test, shuttle))]
#[path = "../../verify/interleavings/mod.rs"]
mod interleavings;
#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/lock_state_tests/mod.rs"]
mod lock_state_tests;
#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/model/mod.rs"]
mod model;
#[cfg(test)]
#[path = "../../verify/random.rs"]
mod random;
#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/scale/mod.rs"]
mod scale;
#[cfg(test)]
#[path = "../../verify/simulation/mod.rs"]
mod simulation;
#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/small_redis/mod.rs"]
mod small_redis;
