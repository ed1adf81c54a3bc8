//! What a simulated fleet does.

use std::time::Duration;

/// Processes at one primary.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) clients: usize,
    /// Per client.
    pub(super) threads: usize,
    pub(super) what: What,
    pub(super) lease: Duration,
    pub(super) waiter_timeout: Duration,
    pub(super) local_handoff: Duration,
    pub(super) fair: bool,
    /// How long a hold lasts.
    pub(super) hold: Duration,
    /// How long a thread stays away after a hold, on average: uniformly distributed between 0 and twice this.
    pub(super) think: Duration,
    /// Counting starts after `warm_up`, and lasts for `counted`.
    pub(super) warm_up: Duration,
    pub(super) counted: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All threads acquire one lock, again and again.
    Contend,
    /// One thread holds the lock for good, and all others wait.
    Wait,
    /// Each thread of each client acquires a lock of its own, and keeps it.
    Keep,
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Scene {
    fn of(clients: usize, threads: usize, what: What) -> Scene {
        Scene {
            clients,
            threads,
            what,
            lease: ms(30_000),
            waiter_timeout: ms(3000),
            local_handoff: ms(1),
            fair: false,
            hold: Duration::ZERO,
            think: Duration::ZERO,
            warm_up: ms(100),
            counted: ms(400),
        }
    }

    /// This many processes that all want one fair lock all the time.
    pub(super) fn contended(clients: usize, threads: usize) -> Scene {
        Scene { fair: true, ..Scene::of(clients, threads, What::Contend) }
    }

    /// This many processes: one holds the lock, and all others wait for it.
    pub(super) fn waiting(clients: usize) -> Scene {
        Scene { warm_up: ms(2000), counted: ms(10_000), ..Scene::of(clients, 1, What::Wait) }
    }

    /// This many locks held by each client.
    pub(super) fn held(clients: usize, locks: usize, lease: Duration) -> Scene {
        Scene { lease, warm_up: lease, counted: lease * 2, ..Scene::of(clients, locks, What::Keep) }
    }

    pub(super) fn renew_every(&self) -> Duration {
        self.lease / 3
    }

    /// The pause between two heartbeats.
    pub(super) fn heartbeat(&self) -> Duration {
        self.waiter_timeout.min(self.lease) / 3
    }
}
