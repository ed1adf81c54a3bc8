//! What a simulated fleet does.

use std::time::Duration;

/// Processes at one primary.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) clients: usize,
    /// Of each of them.
    pub(super) threads: usize,
    pub(super) what: What,
    pub(super) lease: Duration,
    pub(super) waiter_timeout: Duration,
    pub(super) local_handoff: Duration,
    pub(super) fair: bool,
    /// How long a hold lasts.
    pub(super) hold: Duration,
    /// How long a thread stays away after a hold, on average: any time up to twice this is as likely.
    pub(super) think: Duration,
    /// What is counted begins after the first of these, and lasts for the second.
    pub(super) warm_up: Duration,
    pub(super) counted: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All threads take one lock, again and again.
    Contend,
    /// One thread holds it for good, and all others wait.
    Wait,
    /// Each thread of each client takes a lock of its own, and keeps it.
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

    /// So many processes that want one fair lock all the time.
    pub(super) fn contended(clients: usize, threads: usize) -> Scene {
        Scene { fair: true, ..Scene::of(clients, threads, What::Contend) }
    }

    /// So many that wait for a lock that is held.
    pub(super) fn waiting(clients: usize) -> Scene {
        Scene { warm_up: ms(2000), counted: ms(10_000), ..Scene::of(clients, 1, What::Wait) }
    }

    /// So many locks held by each client.
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
