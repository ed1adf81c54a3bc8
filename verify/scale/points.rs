//! What is both measured and simulated.

use std::time::Duration;

use super::scene::{Scene, ms};
use super::seen::Seen;

/// A figure of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Requests,
    Messages,
    Commands,
    /// Microseconds of the primary's CPU per acquisition.
    Cpu,
    /// Per second and held lock.
    Renewals,
    /// Per second and waiting process.
    Heartbeats,
    /// Per second and process.
    Pings,
    /// Of the process that has the most.
    Connections,
}

impl Figure {
    pub(super) fn of(self, scene: &Scene, seen: &Seen) -> f64 {
        let acquisitions = seen.acquisitions as f64;
        let busy = seen.busy as f64 / 1e3;
        let of = |count: u64, many: usize| count as f64 / seen.seconds / many as f64;
        match self {
            Figure::Requests => seen.requests_an_acquisition(),
            Figure::Messages => seen.messages_an_acquisition(),
            Figure::Commands => seen.commands / acquisitions,
            Figure::Cpu => busy / acquisitions,
            Figure::Renewals => of(seen.renewals, scene.clients * scene.threads),
            Figure::Heartbeats => of(seen.requests() - seen.renewals, scene.clients - 1),
            Figure::Pings => of(seen.pings, scene.clients),
            Figure::Connections => seen.connections as f64,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Figure::Requests => "requests an acquisition",
            Figure::Messages => "messages an acquisition",
            Figure::Commands => "Redis commands an acquisition",
            Figure::Cpu => "server CPU an acquisition, µs",
            Figure::Renewals => "renewals a second of each lock",
            Figure::Heartbeats => "heartbeats a second of each waiter",
            Figure::Pings => "PINGs a second of each process",
            Figure::Connections => "connections of a process",
        }
    }
}

/// A scene, and which figures of it are compared.
pub(super) struct Point {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) scene: Scene,
    pub(super) figures: &'static [Figure],
}

impl Point {
    /// Whether it is measured here, or else in the benchmarks.
    pub(super) fn is_measured_here(&self) -> bool {
        !self.figures.contains(&Figure::Cpu)
    }
}

const CONTENDED: &[Figure] = &[Figure::Requests, Figure::Messages, Figure::Commands];

pub(super) fn points() -> Vec<Point> {
    let point = |name, words, scene, figures| Point { name, words, scene, figures };
    let contended = |clients, threads| Scene { counted: ms(2000), ..Scene::contended(clients, threads) };
    let working =
        Scene { hold: ms(5), local_handoff: ms(50), fair: false, counted: ms(5000), ..contended(4, 4) };
    let seldom = Scene { hold: ms(5), think: ms(50), counted: ms(10_000), ..contended(8, 1) };
    vec![
        point(
            "idle-8",
            "8 processes that want one `fair` lock all the time",
            contended(8, 1),
            &[Figure::Cpu],
        ),
        point("idle-16", "16 processes", contended(16, 1), &[Figure::Cpu]),
        point(
            "contended-8",
            "8 processes that want one `fair` lock all the time",
            contended(8, 1),
            CONTENDED,
        ),
        point("contended-32", "32 processes", contended(32, 1), CONTENDED),
        point("threads-2-8", "2 processes with 8 threads each", contended(2, 8), CONTENDED),
        point("threads-8-8", "8 processes with 8 threads each", contended(8, 8), CONTENDED),
        point(
            "local-handoff",
            "4 processes with 4 threads each, 5 ms in the lock, a local hand-off period of 50 ms",
            working,
            &[Figure::Requests, Figure::Messages],
        ),
        point(
            "seldom",
            "8 processes, 5 ms in the lock and 50 ms without it",
            seldom,
            &[Figure::Requests, Figure::Messages],
        ),
        point(
            "waiting-40",
            "40 processes that wait for one lock",
            Scene::waiting(41),
            &[Figure::Heartbeats, Figure::Pings, Figure::Connections],
        ),
        point(
            "held-10000",
            "10 processes with 1,000 locks each, leases of 3 s",
            Scene::held(10, 1000, Duration::from_secs(3)),
            &[Figure::Renewals, Figure::Pings, Figure::Connections],
        ),
        point(
            "held-20000",
            "1 process with 20,000 locks, leases of 6 s",
            Scene::held(1, 20_000, Duration::from_secs(6)),
            &[Figure::Renewals, Figure::Pings],
        ),
    ]
}
