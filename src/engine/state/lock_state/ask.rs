//! What a lock state asks of Redis for its head, and the result so far.

use std::time::Duration;

use super::{AcquireMode, Asking, PendingRelease, Request, Terms};
use crate::clock::Moment;
use crate::engine::state::grant::ends_at;
use crate::observe::AcquiredVia;

/// What this process asks of Redis for the head of its waiting threads. The next head continues with it only
/// if its request is [the same](PendingAcquire::serves): an owner id asks for one thing as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingAcquire {
    pub(super) owner: u64,
    pub(super) terms: Terms,
    /// A request under this id is in flight.
    pub(super) in_flight: bool,
    /// When the last one was about to be sent.
    pub(super) sent: Moment,
    /// What a grant received by message counts from: see the rules above.
    pub(super) base: Option<Moment>,
    /// Redis has answered busy.
    pub(super) asked: bool,
    /// Redis keeps a queue position for it.
    pub(super) queued: bool,
    /// Its position in the order of arrival, to be sent if the position was lost.
    pub(super) arrival: String,
    /// The highest number in a reply: its own, or the lock's last one with a busy reply.
    pub(super) floor: u64,
    /// When asking again makes sense.
    pub(super) again_at: Moment,
    /// The inbox came back while a request was in flight: a grant may have gone unheard after it was
    /// answered.
    pub(super) unheard: bool,
    pub(super) unsettled: bool,
    /// See [`Grant::least`].
    pub(super) least: Duration,
    pub(super) grant: Option<PendingGrant>,
    /// There is a waiter that shared holds must not pass: what is granted may not be shared further.
    pub(super) shut: bool,
    /// Since when another caller is known to want what it may have been granted.
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
    /// When Redis last said so, as far as is known here.
    pub(super) said: Moment,
    pub(super) valid_until: Moment,
    /// What its lease is counted from.
    pub(super) since: Moment,
    /// What it was granted for, as far as is known.
    pub(super) lease: Duration,
    /// A message reported it: perhaps granted for less than was asked for.
    pub(super) told: bool,
    pub(super) way: AcquiredVia,
    /// Its lease was set anew since it was granted.
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

    /// Whether Redis may know anything of it.
    pub(super) fn is_there(&self) -> bool {
        self.queued || self.unsettled || self.grant.is_some()
    }

    /// Whether any reply has said something about its own request.
    pub(super) fn is_known(&self) -> bool {
        self.is_there() || self.refused.is_some()
    }

    /// Nothing is known of it: from now on it asks for this.
    pub(super) fn turns_to(&mut self, request: &Request, now: Moment) {
        self.terms = request.terms.clone();
        (self.from, self.instead, self.again_at) = (request.from, request.instead, now);
    }

    /// It is about to be sent.
    pub(super) fn send(&mut self, how: AcquireMode, threads: usize, now: Moment) -> Asking {
        self.in_flight = true;
        self.unheard = false;
        self.sent = now;
        // Until one is answered busy, a grant counts from the first request sent.
        self.base.get_or_insert(now);
        let enqueues = how == AcquireMode::Wait && self.arrival.is_empty();
        let (terms, arrival) = (self.terms.clone(), self.arrival.clone());
        let PendingAcquire { owner, from, instead, .. } = *self;
        Asking { owner, how, terms, arrival, threads, enqueues, from, instead, thread: None }
    }

    /// Redis has answered that it is in, with `left` of its lease. `joined`: others of this process may share the hold.
    pub(super) fn is_in(&mut self, number: u64, left: Duration, value: u64, joined: bool) {
        let valid_until = ends_at(self.sent, left.min(self.least));
        // Its message, if it lies unread, says less: it does not know what was left when.
        self.floor = self.floor.max(number);
        // After a message it is the same grant, known more exactly.
        let way = if self.asked { AcquiredVia::Granted } else { AcquiredVia::Free };
        let said = if joined { self.sent } else { Moment::default() };
        // If an earlier request was the one that got in, another may have begun to wait since: that it is in says nothing
        // about waiters.
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
            // No thread has had the lock by it.
            stays_until: Moment::default(),
        }
    }
}
