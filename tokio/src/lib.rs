//! Locks, semaphores and read/write locks of [`redis_concurrent`] for async code: any number of tasks wait
//! for a lock, on one thread per lock that is not the runtime's.
//!
//! ```
//! use redis_concurrent::Client;
//! use redis_concurrent_tokio::AsyncLock;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = redis_concurrent_testkit::RedisServer::start()?;
//! # let url = server.url();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let client = Client::connect(&url)?; // blocks for a moment: at the start of the program
//! let lock = AsyncLock::new(client.reentrant_lock("stock:42"));
//!
//! let guard = lock.lock().await?;
//! tokio::select! {
//!     _ = guard.lost().cancelled() => println!("stop: the hold is lost"),
//!     _ = tokio::time::sleep(std::time::Duration::from_millis(5)) => println!("under token {}", guard.token()),
//! }
//! guard.unlock().await?; // dropping it releases the lock too, in the background
//! # Ok::<(), redis_concurrent::Error>(())
//! # })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Threads
//!
//! A call of `redis_concurrent` blocks its thread. On the runtime's own threads for blocking work, waits
//! would use up all of these, and the release that they wait for would have none: a deadlock. So this crate
//! has threads of its own:
//!
//! - one for each lock (semaphore, half of a read/write lock) of a client for which tasks of this process
//!   wait, however many they are: the first task asks Redis, and the others wait for their turn, in order of
//!   arrival, without a thread. Handles of one name share the thread, whether they are clones or not;
//! - at most 64 for releases, and at most eight for single attempts, which never wait for a lock;
//! - one for the times at which tasks give up or ask again.
//!
//! A thread ends after ten seconds without work.
//!
//! # Cancellation
//!
//! A future may be dropped at any time: its task then leaves the queue, and a hold that it was just granted
//! is released. With `try_lock_for` a busy lock is told from a Redis that cannot be reached; with the runtime's timeout
//! around `lock()` it is not. If the task was the first of its
//! process, the next one queues behind the waiters of other processes: see [`AsyncLock`].
//!
//! # Runtimes
//!
//! Nothing here needs a runtime: the futures are woken from the crate's threads. Guards may be dropped anywhere.

#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

/// Runs the page's examples as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/async.md")]
mod page {}

mod any_lock;
mod clock;
mod guard;
mod lock;
mod read_write;
mod semaphore;
mod synchronizers;
mod turn;
mod workers;

pub use any_lock::{AsyncAnyGuard, AsyncAnyLock};
pub use guard::{AsyncGuard, AsyncPermit};
pub use lock::AsyncLock;
pub use read_write::AsyncReadWriteLock;
pub use semaphore::AsyncSemaphore;
pub use synchronizers::{AsyncAttempt, AsyncBegun, AsyncElection, AsyncOnce, AsyncRateLimiter};
