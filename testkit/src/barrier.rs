//! A barrier for the threads of a test.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Far longer than threads of one test drift apart on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Like [`std::sync::Barrier`], but with a timeout: if one of the threads has panicked, the test fails
/// instead of hanging.
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    /// How many threads have arrived in this round, and the number of the round.
    come: Mutex<(usize, u64)>,
    all_have: Condvar,
}

impl Barrier {
    /// Creates a barrier for this number of threads.
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, come: Mutex::new((0, 0)), all_have: Condvar::new() }
    }

    /// Blocks until all threads have called this method, for at most 120 s. It can then be used again.
    ///
    /// # Panics
    ///
    /// If the other threads do not arrive in time.
    #[track_caller]
    pub fn wait(&self) {
        let mut come = self.come.lock();
        let round = come.1;
        come.0 += 1;
        if come.0 == self.threads {
            *come = (0, round + 1);
            self.all_have.notify_all();
            return;
        }
        let late = self.all_have.wait_while_for(&mut come, |come| come.1 == round, LIMIT);
        assert!(!late.timed_out(), "not within {LIMIT:?}: {} threads at a barrier", self.threads);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn nobody_passes_before_all_have_come() {
        let (barrier, come) = (Barrier::new(4), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        come.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert!(come.load(Ordering::Relaxed) >= 4 * round);
                        barrier.wait();
                    }
                });
            }
        });
    }
}
