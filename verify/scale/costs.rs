//! What requests cost: measured on this machine, each kind alone or in the smallest scene that has it.

use super::figures::Figures;
use crate::engine::small_redis::{Op, Reply};
use crate::engine::state::lock_state::{AcquireMode, Answer};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An acquire that is granted at once.
    Free,
    /// An acquire that finds the lock busy, and wants no queue position.
    Busy,
    /// An acquire that takes a queue position, as the only waiter.
    Queue,
    /// An acquire that takes a queue position behind others.
    Behind,
    /// A heartbeat.
    Heartbeat,
    /// A leave.
    Leave,
    Renewal,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] =
        [Kind::Free, Kind::Busy, Kind::Queue, Kind::Behind, Kind::Heartbeat, Kind::Leave, Kind::Renewal];

    /// Returns what kind of request this was, by its reply and the number of waiters afterwards, and of what
    /// kind the next head's request was that was sent with it.
    pub(super) fn of(op: &Op, reply: &Reply, waiting: usize) -> (Kind, Option<Kind>) {
        let sent = |how: AcquireMode, answer: &Answer| match (answer, how) {
            (Answer::In { .. }, AcquireMode::Try | AcquireMode::Wait) => Kind::Free,
            (Answer::Busy { .. }, AcquireMode::Try) => Kind::Busy,
            (_, AcquireMode::Keep) => Kind::Heartbeat,
            _ if waiting > 1 => Kind::Behind,
            _ => Kind::Queue,
        };
        match (op, reply) {
            (Op::Acquire(ask), Reply::Acquired(answer)) => (sent(ask.how, answer), None),
            (Op::Leave { next: Some(next), .. }, Reply::Left { next: Some(answer), .. }) => {
                (Kind::Leave, Some(sent(next.how, answer)))
            }
            (Op::Renew { .. }, _) => (Kind::Renewal, None),
            _ => (Kind::Leave, None),
        }
    }
}

/// Nanoseconds of the primary's CPU, unless stated otherwise; and how many Redis commands the scripts call.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// Reading one write of a client, and writing the replies.
    pub(super) write: u64,
    /// The script of a request.
    pub(super) request: u64,
    /// What a contended acquisition costs beyond two requests, including its message.
    pub(super) hand_over: u64,
    /// The script of a renewal.
    pub(super) renewal: u64,
    /// From the client to the primary or back, including the wake-up of the thread that waits for it.
    pub(super) way: u64,
    /// Until a thread runs that another thread of its process has woken.
    pub(super) wake: u64,
    /// Redis commands in each kind of request, in the order of [`Kind::ALL`]; and in admitting a waiter.
    pub(super) commands: [f64; Kind::ALL.len()],
    pub(super) admission: f64,
    /// In a leave with the request for the next head: fewer than in both.
    pub(super) together: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            write: 4_000,
            request: 6_000,
            hand_over: 20_000,
            renewal: 4_000,
            way: 20_000,
            wake: 15_000,
            commands: [0.0; Kind::ALL.len()],
            admission: 0.0,
            together: 0.0,
        }
    }
}

impl Costs {
    /// Returns the measured costs, each measured alone or in the smallest scene that has it.
    pub(super) fn measured(figures: &Figures) -> Costs {
        Costs {
            way: nanos(figures, "way"),
            wake: nanos(figures, "wake"),
            commands: Kind::ALL.map(|kind| figures.get(&format!("commands.{kind:?}"))),
            admission: figures.get("commands.Admission"),
            together: figures.get("commands.Together"),
            ..Costs::of_cpu(figures)
        }
    }

    /// Returns the costs of the primary's CPU only.
    pub(super) fn of_cpu(figures: &Figures) -> Costs {
        let ns = |name| nanos(figures, name);
        Costs {
            write: ns("cpu.write"),
            request: (ns("cpu.pair") / 2).saturating_sub(ns("cpu.write")),
            hand_over: ns("cpu.hand_over").saturating_sub(ns("cpu.pair")),
            renewal: ns("cpu.renewal"),
            ..Costs::default()
        }
    }

    /// Returns the cost of the script of a request.
    pub(super) fn of(&self, kind: Kind) -> u64 {
        if kind == Kind::Renewal { self.renewal } else { self.request }
    }
}

/// Returns a figure in microseconds as nanoseconds.
fn nanos(figures: &Figures, name: &str) -> u64 {
    (figures.get(name) * 1e3) as u64
}
