//! The threads on which calls block, which are not the runtime's.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redis_concurrent::{Error, ErrorKind};
use tokio::sync::oneshot;

/// How long a thread waits for more work.
const IDLE: Duration = Duration::from_secs(10);
/// How many attempts are sent at once.
const MOST_ATTEMPTS: usize = 8;
/// How many releases are sent at once: so many that those at a server that does not reply leave threads for
/// the others.
const MOST_RELEASES: usize = 64;

/// For calls that wait for a lock. Their number is not limited: [turns](crate::turn::Turn) ensure that there
/// is one for each lock. And if one wait had to wait for another one to end, that might wait for what the
/// first one will release.
pub(crate) static WAITS: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-wait", usize::MAX));
/// For calls that take one request.
pub(crate) static ATTEMPTS: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-try", MOST_ATTEMPTS));
/// The same, but separate, as other calls wait for what is released.
pub(crate) static RELEASES: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-end", MOST_RELEASES));

/// Whether this is a forked child of the process that made the first lock for tasks. The threads exist only
/// in the parent, and mutexes that they held stay locked here forever. A call is rejected without a request,
/// and needs neither.
pub(crate) fn is_forked() -> bool {
    static HOME: AtomicU32 = AtomicU32::new(0);
    let here = std::process::id();
    HOME.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed).is_err_and(|home| home != here)
}

/// What is dropped on a thread for releases, as dropping it blocks for a request.
#[derive(Debug)]
pub(crate) struct InBackground<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> InBackground<T> {
    pub(crate) fn new(it: T) -> Self {
        InBackground(Some(it))
    }

    pub(crate) fn get(&self) -> &T {
        self.0.as_ref().expect("only what consumes it takes it out")
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only what consumes it takes it out")
    }
}

impl<T: Send + 'static> Drop for InBackground<T> {
    fn drop(&mut self) {
        if let Some(it) = self.0.take() {
            RELEASES.run(move || drop(it));
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that are started, and end, as the work requires.
pub(crate) struct Workers {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    pub(crate) fn new(name: &'static str, most: usize) -> Workers {
        Workers { name, most, state: Mutex::default(), more: Condvar::new() }
    }

    /// Runs `job` on one of the threads. If a new thread is needed and cannot be started, the job is dropped;
    /// a brief job only if there is no other thread. In a forked child, where the job is rejected, it runs on
    /// the calling thread.
    pub(crate) fn run(&'static self, job: impl FnOnce() + Send + 'static) {
        if is_forked() {
            return job();
        }
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= self.most {
            self.more.notify_one();
            return;
        }
        let started = thread::Builder::new().name(self.name.to_owned()).spawn(|| self.work());
        match started {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads == 0 || self.most == usize::MAX => {
                // Its future gets an error, as no thread asks Redis.
                let unserved = state.jobs.pop_back();
                drop(state);
                drop(unserved);
            }
            Err(_) => {}
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic, as of a user's kind, ends the job but not the thread, which has more to do.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let late = self.more.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Runs a job about the lock `name`, and returns its outcome. It runs even if the future is gone.
    pub(crate) async fn outcome<T: Send + 'static>(
        &'static self,
        name: &str,
        job: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // If the future is gone, the outcome is dropped here, which releases what was granted.
        self.answer(name, move |sender| drop(sender.send(job()))).await
    }

    /// The same for an attempt, which is not made if the future is gone before a thread is free.
    pub(crate) async fn attempt<T: Send + 'static>(
        &'static self,
        name: &str,
        attempt: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let made = move |sender: oneshot::Sender<_>| {
            if !sender.is_closed() {
                drop(sender.send(attempt()));
            }
        };
        self.answer(name, made).await
    }

    /// Runs a job that sends an outcome, and returns that.
    async fn answer<T: Send + 'static>(
        &'static self,
        name: &str,
        job: impl FnOnce(oneshot::Sender<Result<T, Error>>) + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.run(move || job(sender));
        receiver.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, name)
                .because("no thread could be started to ask Redis, or it panicked"))
        })
    }
}
