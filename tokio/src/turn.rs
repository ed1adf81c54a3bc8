//! The turns of the tasks of this process that wait for one lock: only the task whose turn it is has a
//! thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use redis_concurrent::kinds::Queued;
use redis_concurrent::{CancellationToken, Error, ErrorKind, Wait};

use crate::clock;
use crate::workers::{ATTEMPTS, WAITS, is_forked};

/// The turns at one lock of one client, shared by all handles of the lock.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Arc<Tasks>);

/// The tasks that wait for one lock.
#[derive(Debug, Default)]
struct Tasks {
    turn: Arc<tokio::sync::Mutex<()>>,
    number: AtomicUsize,
}

/// A waiting task.
struct Task<'a>(&'a Tasks);

impl<'a> Task<'a> {
    fn of(tasks: &'a Tasks) -> Self {
        tasks.number.fetch_add(1, Ordering::Relaxed);
        Task(tasks)
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.0.number.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Cancels a wait whose future is dropped.
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Turn {
    /// Returns the turns of the tasks that wait for `lock`.
    pub(crate) fn of(lock: &impl Queued) -> Turn {
        static TURNS: Mutex<Option<HashMap<usize, Weak<Tasks>>>> = Mutex::new(None);
        // A lock that cannot work rejects each call at once, so it needs no turns.
        let Some(queue) = lock.queue().filter(|_| !is_forked()) else { return Turn(Arc::default()) };
        let mut turns = TURNS.lock();
        let turns = turns.get_or_insert_default();
        if let Some(tasks) = turns.get(&queue).and_then(Weak::upgrade) {
            return Turn(tasks);
        }
        if turns.len() == turns.capacity() {
            turns.retain(|_, tasks| tasks.strong_count() > 0);
        }
        let tasks = Arc::default();
        turns.insert(queue, Arc::downgrade(&tasks));
        Turn(tasks)
    }

    /// Returns turns of their own, for a handle whose callers do not wait in a queue of their process.
    pub(crate) fn apart() -> Turn {
        Turn(Arc::default())
    }

    /// Waits for the task's turn, and then runs `wait` on a thread. Both end when the future is dropped. The
    /// next task's turn comes when the thread is free again.
    pub(crate) async fn wait<T: Send + 'static>(
        &self,
        name: &str,
        wait: impl FnOnce(Wait<'_>) -> Result<Option<T>, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // A wait without a deadline never times out.
        self.wait_by(name, None, wait).await?.ok_or_else(|| Error::new(ErrorKind::Timeout, name))
    }

    /// The same with a deadline; `None` if that passes, also while other tasks have their turn.
    pub(crate) async fn wait_by<T: Send + 'static>(
        &self,
        name: &str,
        deadline: Option<Instant>,
        wait: impl FnOnce(Wait<'_>) -> Result<Option<T>, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (_waits, since) = (Task::of(&self.0), Instant::now());
        // In a forked child the task whose turn it is may be the parent's.
        let turn = if is_forked() {
            None
        } else {
            match clock::by(deadline, self.0.turn.clone().lock_owned()).await {
                Some(turn) => Some(turn),
                None => return Ok(None),
            }
        };
        let cancel = CancellationToken::new();
        let _ends = CancelOnDrop(cancel.clone());
        let outcome = WAITS.outcome(name, move || {
            let limit = deadline.map_or_else(Wait::forever, Wait::until);
            let outcome = wait(limit.cancelled_by(&cancel).queued_since(since));
            drop(turn);
            outcome
        });
        outcome.await
    }

    /// Makes one attempt. Also returns `None` if tasks of this process wait.
    pub(crate) async fn attempt<T: Send + 'static>(
        &self,
        name: &str,
        attempt: impl FnOnce() -> Result<Option<T>, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        match self.0.number.load(Ordering::Relaxed) {
            n if n > 0 && !is_forked() => Ok(None),
            _ => ATTEMPTS.attempt(name, attempt).await,
        }
    }
}
