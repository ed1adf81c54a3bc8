//! Distributed synchronizers kept in Redis, modelled on java.util.concurrent: locks, conditions, semaphores,
//! latches and barriers for threads of different processes; and also locks over several servers, an
//! inventory, a rate limiter, optimistic updates, and fenced writes.
//!
//! ```
//! use std::time::Duration;
//! use redis_concurrent::Client;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = redis_concurrent_testkit::RedisServer::start()?;
//! # let url = server.url();
//! let client = Client::connect(&url)?;
//! let lock = client.reentrant_lock("stock:42");
//!
//! let guard = lock.lock()?; // renewed while it is held
//! println!("token {}", guard.token()); // grows with every hold, in whichever process
//! guard.unlock()?; // dropping it does the same
//!
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(2))? {
//!     let lost = guard.lost(); // cancelled if the hold ends too early
//!     assert!(!lost.is_cancelled());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The idea
//!
//! **Redis arbitrates between processes; a process arbitrates between its own threads; a kind of lock is only
//! a rule.** Waiting threads sleep in a queue of their process; only its head has a position in the lock's
//! queue in Redis. A release makes the first waiter there the owner and notifies exactly that process: no
//! retries, no thundering herd, first come first served. Between threads of one process a lock is handed on
//! without Redis for [a millisecond](ClientBuilder::local_handoff) at a time.
//!
//! # The types
//!
//! A [`Client`], one per process and server, creates all but the last two of these:
//!
//! - [`RedisLock`]: every way to acquire a lock. Its kinds: [`ReentrantLock`], [`SimpleLock`] (also [at a key
//!   that other programs lock](Client::simple_lock_at)), and [your own](kinds::Kind); those of [other
//!   libraries](interop). Its terms: a [fixed
//!   lease](RedisLock::with_lease), [fair](RedisLock::fair), [a minimum hold time](RedisLock::min_hold),
//!   [replicated](RedisLock::with_replicas).
//! - [`ReadWriteLock`]: many readers, or one writer.
//! - [`Semaphore`]: a number of permits.
//! - [`CountDownLatch`] and [`CyclicBarrier`]: where threads wait for a count, or for each other.
//! - [`Election`]: a leader among processes, which other processes find and observe.
//! - [`Once`]: work that is done once per key, and its answer for all later callers.
//! - [`Inventory`]: units of goods, reserved before they are sold; and a [lock](inventory::InventoryLock) that is
//!   available as long as there are some.
//! - [`RateLimiter`]: admits requests at a [rate](rate_limiter::Rate).
//! - [`Optimistic`]: an update that is applied only if no other client changed the data it is based on.
//! - [`Fenced`]: a resource that rejects the writes of former holders.
//! - [`MultiLock`]: several locks as one, of any kinds and any clients.
//! - [`RedLock`]: a lock over the several independent servers of a [`RedLockClient`], held while a majority of them
//!   grants it.
//!
//! They come with:
//!
//! - [`Guard`] and [`OwnedGuard`]: a hold of any of the locks, released when dropped.
//! - [`Wait`]: how long a call may wait.
//! - [`Condition`]: where threads that hold a lock wait for a state that other holders bring about.
//! - [`Receipt`]: a hold on its way from one process to another.
//! - [`Lock`]: any of the locks behind a trait object.
//! - [`CancellationToken`]: ends a wait, and [reports a loss](Guard::lost).
//! - [`Observer`](observe::Observer): is notified of what happens; so are the crate `tracing` and, through `MetricsObserver`
//!   (feature `metrics`), the `metrics` facade.
//! - [`admin`]: what is held, by whom, and how to take it away.
//! - [`Error`] and its [`ErrorKind`].
//!
//! # The guide
//!
//! - [Which one](guide#which-one), and [what is guaranteed](guide::guarantees), and what is not.
//! - [Cookbook](guide::cookbook): a cron job, a leader, a sale, an idempotent consumer, and a dozen more.
//! - [In async code](guide::in_async_code), [shutting down](guide::shutting_down), [fencing](guide::fencing),
//!   [pitfalls](guide::pitfalls).
//! - [From java.util.concurrent and Redisson](guide::from_java), [from redis-py, redsync and
//!   node-redlock](guide::from_other_locks), [locks shared with them](guide::interop), [side by
//!   side](guide::vs).
//! - [Operations](guide::operations), [failover](guide::failover), [the command line](guide::command_line).
//! - [How it works](guide::protocol), [architecture](guide::architecture), [benchmarks](guide::benchmarks),
//!   [writing a kind](guide::writing_a_kind) and [its rule](guide::rules), [what other test suites
//!   check](guide::conformance).
//!
//! # Features
//!
//! - `tracing` (default): what locks do, as events and spans of the crate `tracing`.
//! - `metrics`: `MetricsObserver`, which reports the same to the `metrics` facade.
//! - `tls`: servers at `rediss://`, verified against Mozilla's certificate authorities or your own. A
//!   program that has installed no cryptography provider of rustls gets ring's with its first such connection.
//!
//! Rust 1.89 or later (before 1.95 after `cargo update scheduled-thread-pool --precise 0.2.7`); Redis 6.2 or later,
//! or Valkey. `cargo run --example` runs the examples.

// On docs.rs each item shows the feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

/// `Debug` of a type: these of its facts.
macro_rules! shows {
    ($type:ty as $name:literal, $([$($bound:tt)*])? |$it:ident| $($key:literal: $value:expr),*) => {
        impl$(<$($bound)*>)? std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct($name)$(.field($key, &$value))*.finish_non_exhaustive()
            }
        }
    };
}

/// Defines a method that returns a word for each variant.
macro_rules! words {
    ($Type:ident::$method:ident: $($Variant:ident $word:literal),*) => {
        impl $Type {
            pub(crate) fn $method(self) -> &'static str {
                match self { $($Type::$Variant => $word),* }
            }
        }
    };
}

#[macro_use]
mod kind;

mod address;
pub mod admin;
mod builder;
mod cancel;
mod client;
mod clock;
mod deadlock;
mod engine;
mod error;
mod forms;
pub mod guard;
pub mod guide;
pub mod kinds;
mod lock;
mod multi_lock;
mod names;
pub mod observe;
// Only for tests, and in builds that plant faults to see which tests notice: see verify/README.md.
#[cfg(any(test, planted))]
#[path = "../verify/planted/mod.rs"]
mod planted;
mod recipes;
mod red_lock;
mod script;
mod settings;
mod sync;
mod wait;

#[doc(hidden)]
pub mod internals;

pub mod interop {
    //! Locks that programs in other languages share: see [the page about them](crate::guide::interop).

    pub use crate::kinds::foreign::{Redisson, RedissonFenced, Spring};
    pub use crate::lock::{RedissonFencedLock, RedissonLock, SpringLock};
}

pub use builder::ClientBuilder;
pub use cancel::CancellationToken;
pub use client::Client;
pub use error::{Error, ErrorKind};
pub use guard::{Guard, OwnedGuard};
pub use kinds::barrier::CyclicBarrier;
pub use kinds::latch::CountDownLatch;
pub use kinds::read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use kinds::semaphore::{Permit, Semaphore};
pub use lock::any_lock::{Lock, LockGuard};
pub use lock::condition::Condition;
pub use lock::receipt::Receipt;
pub use lock::{RedisLock, ReentrantLock, SimpleLock};
pub use multi_lock::{Member, MultiLock};
pub use recipes::election::Election;
pub use recipes::fenced::Fenced;
pub use recipes::inventory::Inventory;
pub use recipes::once::Once;
pub use recipes::optimistic::Optimistic;
pub use recipes::rate_limiter::RateLimiter;
pub use recipes::{election, fenced, inventory, once, optimistic, rate_limiter};
pub use red_lock::{RedLock, RedLockClient};
pub use wait::Wait;
// The public API uses types of these crates: re-exported, they are of the right version.
pub use {crossbeam_channel, redis};
