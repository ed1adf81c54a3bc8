//! The single primary: one thread that serves one request after the other.

use super::costs::{Costs, Kind};
use super::seen::Seen;
use crate::engine::small_redis::{Message, Op, Reply, SmallRedis, millis};

use super::scene::{Scene, What};

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) by: By,
    pub(super) lock: usize,
    pub(super) op: Op,
    /// When it was sent, in nanoseconds.
    pub(super) at: u64,
}

/// What waits for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Thread(usize),
    /// The line of renewals of a client.
    Line(usize),
    /// Nothing: a request of this entry to which nobody awaits the reply.
    Entry(usize),
}

pub(super) struct Primary {
    costs: Costs,
    /// The scene is about keeping locks.
    keeps: bool,
    locks: Vec<SmallRedis>,
    /// When it has served everything that has arrived.
    free_at: u64,
}

/// Its replies and messages for what arrived in one write.
pub(super) struct Served {
    pub(super) at: u64,
    pub(super) replies: Vec<(Sent, Reply)>,
    pub(super) messages: Vec<Message>,
}

impl Primary {
    pub(super) fn new(scene: &Scene, costs: &Costs, locks: usize) -> Primary {
        let lock = SmallRedis::new(millis(scene.waiter_timeout), 0);
        let keeps = scene.what == What::Keep;
        Primary { costs: costs.clone(), keeps, locks: vec![lock; locks], free_at: 0 }
    }

    /// Serves what arrives `now`, after everything that arrived before.
    pub(super) fn serve(&mut self, requests: Vec<Sent>, now: u64, seen: &mut Seen) -> Served {
        let mut at = self.free_at.max(now) + self.costs.write;
        seen.writes += 1;
        let (mut replies, mut messages) = (Vec::with_capacity(requests.len()), Vec::new());
        for sent in requests {
            let mut published = Vec::new();
            let reply =
                self.locks[sent.lock].run(&sent.op, at / 1_000_000, &mut (|_| true, |it| published.push(it)));
            let waiting = self.locks[sent.lock].waiting().take(2).count();
            let (kind, with) = Kind::of(&sent.op, &reply, waiting);
            if self.keeps && kind == Kind::Free {
                // Acquired long ago: all that counts is that it is held.
                at = at.saturating_sub(self.costs.write).max(self.free_at.max(now));
                replies.push((sent, reply));
                continue;
            }
            seen.requests[kind as usize] += 1;
            seen.renewals += u64::from(kind == Kind::Renewal);
            seen.commands += self.costs.commands[kind as usize];
            at += self.costs.of(kind);
            if let Some(with) = with {
                seen.commands += self.costs.commands[with as usize] + self.costs.together;
                at += self.costs.request;
            }
            seen.messages += published.len() as u64;
            seen.commands += published.len() as f64 * self.costs.admission;
            at += published.len() as u64 * self.costs.hand_over;
            messages.extend(published);
            replies.push((sent, reply));
        }
        self.ends(at, now, seen);
        Served { at, replies, messages }
    }

    /// An inbox's ping.
    pub(super) fn ping(&mut self, now: u64, seen: &mut Seen) {
        let at = self.free_at.max(now) + self.costs.write;
        seen.pings += 1;
        self.ends(at, now, seen);
    }

    fn ends(&mut self, at: u64, now: u64, seen: &mut Seen) {
        seen.busy += at - self.free_at.max(now);
        self.free_at = at;
    }
}
