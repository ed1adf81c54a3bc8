//! The pending acquire: what a lock state asks of Redis for its head, and the result so far.

use std::time::Duration;

use super::{AcquireMode, Asking, PendingRelease, Request, Terms};
use crate::clock::Moment;
use crate::engine::state::grant::{Doubt, ends_at};
use crate::observe::AcquiredVia;

/// What this process asks of Redis for the head of its waiting threads. The next head continues with it only
/// if its own request is [the same](Sought::is): once Redis may know of an owner id, that id stands for one
/// request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PendingAcquire {
    pub(super) owner: u64,
    pub(super) sought: Sought,
    pub(super) phase: Phase,
    /// The request under this id that is in flight.
    pub(super) in_flight: Option<InFlight>,
    /// When the lease of a grant received by message starts to count: see the rules in `lock_state.rs`.
    pub(super) counts_from: Moment,
    /// Its rank in the order of arrival, sent along in case the queue position was lost.
    pub(super) arrival: String,
    /// The highest grant number in a reply: its own or, in a busy reply, the last one of the lock.
    pub(super) last_number: u64,
    /// When it is due to be sent again.
    pub(super) again_at: Moment,
    pub(super) doubt: Doubt,
    /// Since when others are known to want what may have been granted to it; the time does not matter for a
    /// shared grant, which no further thread may join then.
    pub(super) wanted: Option<Moment>,
}

/// What a pending acquire asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sought {
    pub(super) terms: Terms,
    /// See [`Request::from`](super::Request::from).
    pub(super) from: Option<u64>,
    /// See [`Request::instead`](super::Request::instead).
    pub(super) instead: bool,
}

/// What Redis has said of a pending acquire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Nothing yet.
    #[default]
    New,
    /// It is busy, and there is no queue position.
    Busy,
    /// It has a queue position, and so many threads of other processes wait, as far as was asked.
    Queued(usize),
    Granted(PendingGrant),
    /// It will never be admitted.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InFlight {
    /// When it was about to be sent.
    pub(super) sent: Moment,
    /// The inbox came back since: a grant sent after the reply may have been missed.
    pub(super) unheard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingGrant {
    pub(super) number: u64,
    pub(super) value: u64,
    /// When Redis last confirmed it, as far as is known. Joining a shared grant counts from then.
    pub(super) seen: Moment,
    pub(super) valid_until: Moment,
    /// When its lease starts to count.
    pub(super) since: Moment,
    /// The lease it was granted for, as far as is known.
    pub(super) lease: Duration,
    /// How this process learned of it.
    pub(super) by: Source,
    pub(super) via: AcquiredVia,
    /// A renewal of it has been tried since it was granted.
    pub(super) confirmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// It may have been granted for less than was asked for.
    Message,
    Reply,
}

impl Sought {
    fn of(request: &Request) -> Self {
        Sought { terms: request.terms.clone(), from: request.from, instead: request.instead }
    }

    /// Whether it is what `request` asks for.
    pub(super) fn is(&self, request: &Request) -> bool {
        let same = self.terms == request.terms && self.from == request.from;
        same && self.instead == request.instead
    }
}

impl PendingAcquire {
    pub(super) fn new(owner: u64, request: &Request, now: Moment) -> Self {
        let sought = Sought::of(request);
        PendingAcquire { owner, sought, counts_from: now, again_at: now, ..PendingAcquire::default() }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued(_))
    }

    /// How many threads of other processes wait, as far as was asked.
    pub(super) fn others(&self) -> usize {
        if let Phase::Queued(others) = self.phase { others } else { 0 }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.phase, Phase::Granted(_))
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Refused(_))
    }

    /// Whether Redis may know of it.
    pub(super) fn is_there(&self) -> bool {
        self.is_queued() || self.is_granted() || self.doubt.exists()
    }

    /// Makes it ask for `request` from now on. Redis must not know of it, nor have rejected it.
    pub(super) fn turns_to(&mut self, request: &Request, now: Moment) {
        (self.sought, self.again_at) = (Sought::of(request), now);
    }

    /// Marks it as in flight, and returns the request to send.
    pub(super) fn send(&mut self, how: AcquireMode, threads: usize, now: Moment) -> Asking {
        self.in_flight = Some(InFlight { sent: now, unheard: false });
        let Sought { terms, from, instead } = self.sought.clone();
        let arrival = self.arrival.clone();
        Asking { arrival, from, instead, ..Asking::new(self.owner, how, terms, threads) }
    }

    /// The request that was sent at `sent` was answered busy; with a queue position if there is an `arrival`.
    pub(super) fn is_busy(&mut self, sent: Moment, last_number: u64, arrival: String, others: usize) {
        self.last_number = self.last_number.max(last_number);
        self.counts_from = sent;
        self.arrival = arrival;
        match &self.phase {
            // A message has overtaken the reply.
            Phase::Granted(granted) if granted.number > self.last_number => {}
            Phase::Refused(_) => self.doubt.begins(),
            _ if self.arrival.is_empty() => self.phase = Phase::Busy,
            _ => self.phase = Phase::Queued(others),
        }
    }

    /// It has no queue position, or no longer: it must be sent again.
    pub(super) fn is_gone(&mut self, now: Moment) {
        match &self.phase {
            Phase::Refused(_) => {}
            // It was never busy.
            Phase::Granted(granted) if granted.via == AcquiredVia::Free => self.phase = Phase::New,
            _ => self.phase = Phase::Busy,
        }
        self.again_at = now;
    }

    /// It was rejected. No effect if it was granted: what Redis has granted is not dropped.
    pub(super) fn is_rejected(&mut self, why: String) {
        if !self.is_granted() {
            self.phase = Phase::Refused(why);
        }
    }

    /// Redis has answered, to the request sent at `sent`, that it has the lock, with `left` of its lease.
    /// `joined`: other threads of this process may share the hold.
    pub(super) fn is_in(&mut self, sent: Moment, number: u64, left: Duration, value: u64, joined: bool) {
        let valid_until = ends_at(sent, left.min(self.doubt.shortest()));
        // Drops its message, if that is still unread: it says less, as it does not know what was left when.
        self.last_number = self.last_number.max(number);
        // If a message came before, this is the same grant, known more exactly.
        let via = if self.phase == Phase::New { AcquiredVia::Free } else { AcquiredVia::Granted };
        let seen = if joined { sent } else { Moment::default() };
        // If it was an earlier request that got in, another caller may have started to wait since: this reply
        // says nothing about waiters.
        if joined && self.doubt.exists() {
            self.wanted = Some(Moment::default());
        }
        let (since, lease, by, confirmed) = (sent, left, Source::Reply, false);
        let granted = PendingGrant { number, value, seen, valid_until, since, lease, by, via, confirmed };
        self.phase = Phase::Granted(granted);
    }

    pub(super) fn leaving(&self, now: Moment) -> PendingRelease {
        let valid_until = match &self.phase {
            Phase::Granted(granted) => granted.valid_until,
            _ => now,
        };
        PendingRelease {
            owner: self.owner,
            maybe_in_flight: self.doubt.exists(),
            valid_until,
            lease: self.sought.terms.lease,
            // No thread has had the lock under it.
            stays_until: Moment::default(),
        }
    }
}
