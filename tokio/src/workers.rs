//! The threads on which calls block: none of the runtime's.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redis_concurrent::{Error, ErrorKind};
use tokio::sync::oneshot;

/// For how long a thread waits for more to do.
const IDLE: Duration = Duration::from_secs(10);
/// How many attempts are sent at once.
const MOST_ATTEMPTS: usize = 8;
/// How many releases. So many that those at a server that does not reply leave threads for the others.
const MOST_RELEASES: usize = 64;

/// For calls that wait for a lock. There is no limit: that there is one of them a lock is what
/// [turns](crate::turn::Turn) are for; and if one had to wait for another to end, what that waits for could be its own.
pub(crate) static WAITS: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-wait", usize::MAX));
/// For calls that last for a request.
pub(crate) static ATTEMPTS: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-try", MOST_ATTEMPTS));
/// The same, apart, as others wait for what is released.
pub(crate) static RELEASES: LazyLock<Workers> = LazyLock::new(|| Workers::new("rc-async-end", MOST_RELEASES));

/// Whether this is a forked child of the process that made the first lock for tasks. The threads are the parent's, and
/// so are the mutexes that they hold here forever; a call is refused without a request, and needs neither.
pub(crate) fn is_forked() -> bool {
    static HOME: AtomicU32 = AtomicU32::new(0);
    let here = std::process::id();
    HOME.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed).is_err_and(|home| home != here)
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that come and go with what there is to do.
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
    fn new(name: &'static str, most: usize) -> Workers {
        Workers { name, most, state: Mutex::default(), more: Condvar::new() }
    }

    /// Runs `job` on one of the threads. If that would be a new one, and it cannot be started, the job is dropped; of
    /// brief ones only if there is no other thread. In a forked child, where it is refused, it runs here.
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
                // Its future learns that nobody asks.
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
                // A panic of a user's kind, say, ends the job and not the thread, which has more to do.
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

    /// The same for a job with an outcome, about the lock `name`.
    pub(crate) async fn outcome<T: Send + 'static>(
        &'static self,
        name: &str,
        job: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.run(move || {
            // Of a future that is gone the outcome is dropped here: what was granted is released.
            drop(sender.send(job()));
        });
        receiver.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, name)
                .because("no thread could be started to ask Redis, or it panicked"))
        })
    }
}
