//! The pending acquire: what a lock state asks of Redis for its head, and the result so far.

use std::time::Duration;

use super::{AcquireMode, Asking, PendingRelease, Request, Terms};
use crate::clock::Moment;
use crate::engine::state::grant::ends_at;
use crate::observe::AcquiredVia;

/// What this process asks of Redis for the head of its waiting threads. The next head continues with it only
/// if its own request is [the same](PendingAcquire::serves): once Redis may know of an owner id, that
/// id stands for one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingAcquire {
    pub(super) owner: u64,
    pub(super) terms: Terms,
    /// A request under this id is in flight.
    pub(super) in_flight: bool,
    /// When the last request was about to be sent.
    pub(super) sent: Moment,
    /// When the lease of a grant received by message starts to count: see the rules in `lock_state.rs`.
    pub(super) base: Option<Moment>,
    /// Redis has answered busy.
    pub(super) asked: bool,
    /// Redis keeps a queue position for it.
    pub(super) queued: bool,
    /// Its rank in the order of arrival, sent along in case the queue position was lost.
    pub(super) arrival: String,
    /// The highest grant number in a reply: its own or, in a busy reply, the last one of the lock.
    pub(super) floor: u64,
    /// When it is due to be sent again.
    pub(super) again_at: Moment,
    /// The inbox came back while a request was in flight: a grant sent after the reply may have been missed.
    pub(super) unheard: bool,
    pub(super) unsettled: bool,
    /// See [`Grant::least`].
    pub(super) least: Duration,
    pub(super) grant: Option<PendingGrant>,
    /// A waiter exists that shared holds must not pass: what is granted may not be shared further.
    pub(super) shut: bool,
    /// Since when another caller is known to want what may have been granted to it.
    pub(super) wanted: Option<Moment>,
    /// See [`Request::from`](super::Request::from).
    pub(super) from: Option<u64>,
    /// See [`Request::instead`](super::Request::instead).
    pub(super) instead: bool,
    pub(super) refused: Option<String>,
    pub(super) failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingGrant {
    pub(super) number: u64,
    pub(super) value: u64,
    /// When Redis last confirmed it, as far as is known. Joining a shared grant counts from then.
    pub(super) said: Moment,
    pub(super) valid_until: Moment,
    /// When its lease starts to count.
    pub(super) since: Moment,
    /// The lease it was granted for, as far as is known.
    pub(super) lease: Duration,
    /// A message reported it: it may have been granted for less than was asked for.
    pub(super) told: bool,
    pub(super) way: AcquiredVia,
    /// A renewal of it has been tried since it was granted.
    pub(super) confirmed: bool,
}

impl PendingAcquire {
    pub(super) fn new(owner: u64, request: &Request, now: Moment) -> Self {
        PendingAcquire {
            owner,
            terms: request.terms.clone(),
            in_flight: false,
            sent: now,
            base: None,
            asked: false,
            queued: false,
            arrival: String::new(),
            floor: 0,
            again_at: now,
            unheard: false,
            unsettled: false,
            least: Duration::MAX,
            grant: None,
            shut: false,
            wanted: None,
            from: request.from,
            instead: request.instead,
            refused: None,
            failures: 0,
        }
    }

    /// Whether what is granted to it is what `request` asks for.
    pub(super) fn serves(&self, request: &Request) -> bool {
        let same = self.terms == request.terms && self.from == request.from;
        same && self.instead == request.instead
    }

    /// Whether Redis may know of it.
    pub(super) fn is_there(&self) -> bool {
        self.queued || self.unsettled || self.grant.is_some()
    }

    /// Whether Redis may know of it, or has rejected it.
    pub(super) fn is_known(&self) -> bool {
        self.is_there() || self.refused.is_some()
    }

    /// Makes it ask for `request` from now on. It must not be known to Redis.
    pub(super) fn turns_to(&mut self, request: &Request, now: Moment) {
        self.terms = request.terms.clone();
        (self.from, self.instead, self.again_at) = (request.from, request.instead, now);
    }

    /// Marks it as in flight, and returns the request to send.
    pub(super) fn send(&mut self, how: AcquireMode, threads: usize, now: Moment) -> Asking {
        self.in_flight = true;
        self.unheard = false;
        self.sent = now;
        // Until a request is answered busy, a grant counts from the first one sent.
        self.base.get_or_insert(now);
        let enqueues = how == AcquireMode::Wait && self.arrival.is_empty();
        let (terms, arrival) = (self.terms.clone(), self.arrival.clone());
        let PendingAcquire { owner, from, instead, .. } = *self;
        Asking { owner, how, terms, arrival, threads, enqueues, from, instead, thread: None }
    }

    /// Redis has answered that it has the lock, with `left` of its lease. `joined`: other threads of this
    /// process may share the hold.
    pub(super) fn is_in(&mut self, number: u64, left: Duration, value: u64, joined: bool) {
        let valid_until = ends_at(self.sent, left.min(self.least));
        // Drops its message, if that is still unread: it says less, as it does not know what was left when.
        self.floor = self.floor.max(number);
        // If a message came before, this is the same grant, known more exactly.
        let way = if self.asked { AcquiredVia::Granted } else { AcquiredVia::Free };
        let said = if joined { self.sent } else { Moment::default() };
        // If it was an earlier request that got in, another caller may have started to wait since: this reply
        // says nothing about waiters.
        self.shut |= joined && self.unsettled;
        let (since, lease, told, confirmed) = (self.sent, left, false, false);
        self.grant =
            Some(PendingGrant { number, value, said, valid_until, since, lease, told, way, confirmed });
        self.queued = false;
    }

    pub(super) fn leaving(&self, now: Moment) -> PendingRelease {
        let valid_until = self.grant.as_ref().map_or(now, |g| g.valid_until);
        PendingRelease {
            owner: self.owner,
            unsettled: self.unsettled,
            valid_until,
            lease: self.terms.lease,
            // No thread has had the lock under it.
            stays_until: Moment::default(),
        }
    }
}
