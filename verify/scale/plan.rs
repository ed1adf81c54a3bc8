//! How many primaries a fleet needs, computed from what a lock, a waiter and a process cost. This is not a
//! simulation: the costs come from `measured.txt` and from the simulations of one primary.

use super::figures::Figures;

/// The limits up to which a primary is used.
pub(super) const CORE: f64 = 0.5;
pub(super) const CONNECTIONS: f64 = 10_000.0;
pub(super) const MEMORY: f64 = 8e9;
/// The connections of a process to a primary at which it holds locks: for requests, messages and renewals.
pub(super) const OF_PROCESS: f64 = 3.0;
/// How long the last number of a released lock is kept, in seconds.
pub(super) const KEPT: f64 = 7200.0;

/// A fleet, and how its names are distributed.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) words: &'static str,
    pub(super) held: f64,
    /// In seconds.
    pub(super) lease: f64,
    pub(super) processes: f64,
    /// Processes that wait at any time, each for one lock.
    pub(super) waiting: f64,
    /// Seconds between two heartbeats.
    pub(super) heartbeat: f64,
    /// How many names a second are used for the first time in two hours.
    pub(super) names: f64,
    /// At how many primaries a process has locks; `None`: at all of them.
    pub(super) at: Option<f64>,
}

/// How many primaries each of these needs.
pub(super) struct Need {
    pub(super) renewals: f64,
    pub(super) waiters: f64,
    pub(super) listening: f64,
    pub(super) memory: f64,
    pub(super) connections: f64,
}

impl Plan {
    pub(super) fn need(&self, figures: &Figures) -> Need {
        let cpu = |name: &str| figures.get(name) / 1e6;
        let renewal = cpu("cpu.renewal") + cpu("cpu.write");
        // A heartbeat is a request like any other.
        let request = cpu("cpu.pair") / 2.0;
        let bytes = self.held * figures.get("bytes.held") + self.names * KEPT * figures.get("bytes.left");
        Need {
            renewals: self.held * 3.0 / self.lease * renewal / CORE,
            waiters: self.waiting / self.heartbeat * request / CORE,
            listening: self.for_each_process(cpu("cpu.write") / CORE),
            memory: bytes / MEMORY,
            connections: self.for_each_process(OF_PROCESS / CONNECTIONS),
        }
    }

    /// Returns how many primaries are enough if each process takes the fraction `part` of each primary at
    /// which it has locks. If it has locks at all of them, more primaries do not help.
    fn for_each_process(&self, part: f64) -> f64 {
        let all = self.processes * part;
        match self.at {
            Some(at) => all * at,
            None if all <= 1.0 => all,
            None => f64::INFINITY,
        }
    }
}

/// The fleets of the page.
pub(super) fn plans() -> Vec<Plan> {
    let million = Plan {
        words: "10⁶ locks, names at any primary",
        held: 1e6,
        lease: 30.0,
        processes: 1e5,
        waiting: 1e4,
        heartbeat: 1.0,
        names: 1e3,
        at: None,
    };
    let apart = Plan { words: "10⁶ locks, each process at one primary", at: Some(1.0), ..million };
    let large =
        Plan { words: "10⁸ locks, names at any primary", held: 1e8, waiting: 1e5, names: 1e5, ..million };
    let large_apart = Plan { words: "10⁸ locks, each process at one primary", at: Some(1.0), ..large };
    let long = Plan {
        words: "the same, leases of 5 min, heartbeats each 10 s",
        lease: 300.0,
        heartbeat: 10.0,
        ..large_apart
    };
    vec![million, apart, large, large_apart, long]
}
