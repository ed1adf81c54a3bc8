//! What Redis granted under one owner id: until when it is valid, and which threads may have it next. When
//! any of this is done is decided in `lock_state/`.

use std::time::Duration;

use super::asking::{AcquireMode, Answer, Asking, Request, Terms, Ticket};
use crate::clock::{Millis, Moment};
use crate::observe::LossReason;

/// The longest run of local hand-offs: the token's low bits count them.
pub(crate) const MOST_HAND_OVERS: u32 = (1 << HAND_OVER_BITS) - 1;
const HAND_OVER_BITS: u32 = 12;

/// The highest grant number that fits into a token.
pub(crate) const MOST_NUMBER: u64 = u64::MAX >> HAND_OVER_BITS;

/// Returns the grant number in this token.
pub(crate) fn number_of(token: u64) -> u64 {
    token >> HAND_OVER_BITS
}

/// Returns the first token of the grant with this number. A higher number than any grant's counts as the
/// highest.
pub(crate) fn first_token(number: u64) -> u64 {
    number.min(MOST_NUMBER) << HAND_OVER_BITS
}

/// Returns how much earlier a lease counted by Redis expires here, as clocks run at different speeds.
pub(crate) fn drift(lease: Duration) -> Duration {
    Duration::from_millis(2).max(lease / 100)
}

/// Returns when a hold expires here that Redis keeps for `left`, counted from `since`. The drift is that of
/// `left`, however long the lease was at first.
pub(crate) fn ends_at(since: Moment, left: Duration) -> Moment {
    since.after(left).before(drift(left))
}

/// A grant, until the process releases or loses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// The `n` of its owner id, `<client uuid>:<n>`.
    pub(crate) owner: u64,
    /// The grant number, from which its fencing tokens are made.
    pub(crate) number: u64,
    /// The value that the rule added to it.
    pub(crate) value: u64,
    /// How many times it was handed on in this process.
    pub(crate) hand_overs: u32,
    /// The number of holds on it, one per thread or guard. Zero only if the process keeps it for its next hold.
    pub(crate) holds: u32,
    /// The terms on which it was requested.
    pub(crate) terms: Terms,
    /// When this process got it: the start of its local hand-off period.
    pub(crate) since: Moment,
    pub(crate) validity: Validity,
    pub(crate) standing: Standing,
    pub(crate) reuse: Reuse,
}

/// Until when a grant is valid, and what its renewals must consider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Validity {
    /// Until when it is known to be valid, counted from before the request was sent.
    pub(crate) until: Moment,
    /// What it was granted for, if that is less than its lease: a process that is admitted by a message may
    /// be dead. Zero if it is not, and once it is renewed.
    pub(crate) first: Millis,
    pub(crate) doubt: Doubt,
    /// When it ends at the earliest, by `renew_for`: renewals do not shorten it below this. For a fixed lease
    /// that was granted for less, the end of that lease.
    lasts_until: Moment,
    /// When the last reply to a renewal arrived. A holder that renews the grant itself and the renewal thread use
    /// different connections, so replies may arrive in another order than Redis ran the renewals.
    last_reply: Moment,
}

/// Whether a copy of a request of an owner may still be in flight, as one had no reply or was sent twice: the
/// owner's end then leaves a tombstone. With the shortest lease of those that were renewals: such a copy may
/// run at any time, so no later renewal counts for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Doubt(Option<Duration>);

impl Validity {
    pub(crate) fn new(until: Moment, doubt: Doubt) -> Self {
        Validity { until, doubt, ..Validity::default() }
    }
}

impl Doubt {
    pub(crate) fn exists(self) -> bool {
        self.0.is_some()
    }

    /// A copy may be in flight that sets no lease.
    pub(crate) fn begins(&mut self) {
        self.0.get_or_insert(Duration::MAX);
    }

    /// A copy may be in flight that sets the lease to `lease`.
    pub(crate) fn caps(&mut self, lease: Duration) {
        self.0 = Some(self.shortest().min(lease));
    }

    /// Returns what a lease may be counted for at most.
    pub(crate) fn shortest(self) -> Duration {
        self.0.unwrap_or(Duration::MAX)
    }
}

/// Whether a grant may go to more threads, and whether it is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    #[default]
    Open,
    /// It ends with its present holders: it is not handed on, and no further thread may share it.
    ClosedToOthers,
    /// The same, and a grant of another mode is requested in its place: Redis may no longer have this one,
    /// which is not a loss.
    Exchanged,
    Lost(Lost),
}

/// How a grant ended early.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lost {
    pub(crate) why: LossReason,
    /// The reason given by the caller that took it away by force.
    pub(crate) reason: Option<Box<str>>,
    /// It was taken away, and its entry in Redis keeps others out for as long as a thread may still work under it.
    pub(crate) remains: bool,
}

/// How more threads of its process may get a grant without Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Reuse {
    /// By a local hand-off only.
    #[default]
    HandOff,
    /// By joining its holders.
    Shared(Joining),
    /// Also after its process kept it while no thread held it.
    Kept(Keep),
}

/// The bit in an owner number which says that the process keeps the lock for its next hold, and is to be
/// notified when another caller wants it: the `~` at the end of the owner id.
pub(crate) const KEEPS: u64 = 1 << 63;

/// A grant that stays in its process while no thread holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keep {
    /// A thread took it again after no thread had held it.
    pub(crate) used: bool,
    /// Until when it is kept; set at the end of its first hold.
    pub(crate) until: Option<Moment>,
    /// Since when another caller is known to want it.
    pub(crate) wanted: Option<Moment>,
}

/// Whether threads of this process may join a shared grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Joining {
    /// When Redis last allowed it, if it did.
    pub(crate) open_since: Option<Moment>,
    /// The last ticket issued before that question was sent: threads up to it may join however late the reply
    /// was. Otherwise, a reply slower than the local hand-off period would admit no thread, and the question
    /// would be repeated forever.
    pub(crate) admits: Ticket,
    /// While the question is in flight: when it was sent, and the last ticket issued by then.
    pub(crate) in_flight: Option<(Moment, Ticket)>,
}

impl Grant {
    /// Creates a grant that has just begun, and whose end is not known yet.
    pub(crate) fn new(owner: u64, number: u64, terms: Terms) -> Self {
        Grant { owner, number, terms, ..Grant::default() }
    }

    /// Returns the fencing token of its present holder.
    pub(crate) fn token(&self) -> u64 {
        if self.terms.token_is_value {
            return self.value;
        }
        first_token(self.number) | u64::from(self.hand_overs)
    }

    /// Returns why it is lost, if it is: by a message or a reply, or because its time is over.
    pub(crate) fn loss(&self, now: Moment) -> Option<LossReason> {
        let lost = self.lost().map(|lost| lost.why);
        lost.or((self.validity.until <= now).then_some(LossReason::Expired))
    }

    /// Returns how it was lost, if that is known already.
    pub(crate) fn lost(&self) -> Option<&Lost> {
        match &self.standing {
            Standing::Lost(lost) => Some(lost),
            _ => None,
        }
    }

    /// It is lost from now on, if it was not before.
    pub(crate) fn loses(&mut self, why: LossReason) {
        if self.lost().is_none() {
            self.standing = Standing::Lost(Lost { why, reason: None, remains: false });
        }
    }

    /// It was taken away, by `why` unless it was lost before, and its owner has a tombstone in Redis.
    pub(crate) fn taken_away(&mut self, why: LossReason, reason: Option<&str>) {
        self.validity.doubt = Doubt::default();
        let remains = true;
        match &mut self.standing {
            Standing::Lost(lost) => lost.remains = remains,
            standing => {
                let reason = reason.map(Box::from);
                *standing = Standing::Lost(Lost { why, reason, remains });
            }
        }
    }

    /// Returns the reason given by the caller that took it away by force.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.lost()?.reason.as_deref()
    }

    /// It ends with its present holders.
    pub(crate) fn close_to_others(&mut self) {
        if self.standing == Standing::Open {
            self.standing = Standing::ClosedToOthers;
        }
    }

    /// A grant of another mode is requested in its place.
    pub(crate) fn exchange(&mut self) {
        if self.lost().is_none() {
            self.standing = Standing::Exchanged;
        }
    }

    /// Whether the next thread of this process may have it without Redis: its local hand-off period is not
    /// over, its lease is healthy and renewed, and neither side asked for fairness. A kept grant gets one
    /// more such period from when another caller wanted it.
    pub(crate) fn may_be_handed_to(&self, next: &Terms, local_handoff: Duration, now: Moment) -> bool {
        let within = |since: Moment| now.since(since) < local_handoff;
        let wanted = self.keep().and_then(|keep| keep.wanted);
        self.may_go_on(now)
            && self.terms.can_serve(next)
            && (within(self.since) || wanted.is_some_and(within))
    }

    /// Whether one more hold of this process may have it after the present one.
    fn may_go_on(&self, now: Moment) -> bool {
        self.is_healthy(now) && !self.is_prolonged(now) && self.hand_overs < MOST_HAND_OVERS
    }

    /// It goes to the next hold of this process, on the terms `next`; `kept`: as it was kept for that.
    pub(crate) fn goes_to(&mut self, next: &Terms, kept: bool) {
        if let Some(keep) = self.keep_mut() {
            keep.used |= kept;
        }
        self.hand_overs += 1;
        self.terms.linger = next.linger;
    }

    /// Whether the process may keep it for a hold on the terms `next`: no other caller is known to want it.
    pub(crate) fn may_be_kept_for(&self, next: &Terms, now: Moment) -> bool {
        self.may_be_kept(now) && self.terms.can_serve(next)
    }

    /// Whether the process may keep it for a hold on its own terms.
    pub(crate) fn may_be_kept(&self, now: Moment) -> bool {
        let keep = self.keep().filter(|keep| keep.wanted.is_none());
        keep.is_some_and(|keep| keep.until.is_none_or(|until| now < until)) && self.may_go_on(now)
    }

    /// Whether the process keeps it while no thread holds it.
    pub(crate) fn is_idle(&self) -> bool {
        self.holds == 0
    }

    pub(crate) fn keep(&self) -> Option<&Keep> {
        match &self.reuse {
            Reuse::Kept(keep) => Some(keep),
            _ => None,
        }
    }

    pub(crate) fn keep_mut(&mut self) -> Option<&mut Keep> {
        match &mut self.reuse {
            Reuse::Kept(keep) => Some(keep),
            _ => None,
        }
    }

    /// Another caller is known to want it.
    pub(crate) fn is_wanted(&mut self, now: Moment) {
        if let Some(keep) = self.keep_mut() {
            keep.wanted.get_or_insert(now);
        }
    }

    pub(crate) fn joining(&self) -> Option<&Joining> {
        match &self.reuse {
            Reuse::Shared(joining) => Some(joining),
            _ => None,
        }
    }

    /// Whether the thread with this ticket may share it without Redis.
    pub(crate) fn may_be_joined(
        &self,
        ticket: Ticket,
        next: &Terms,
        local_handoff: Duration,
        now: Moment,
    ) -> bool {
        let admits = |joining: &Joining| {
            ticket <= joining.admits
                || joining.open_since.is_some_and(|since| now.since(since) < local_handoff)
        };
        self.can_serve(next, now) && self.joining().is_some_and(admits)
    }

    /// Whether it may go to a request on the terms `next`.
    pub(crate) fn can_serve(&self, next: &Terms, now: Moment) -> bool {
        self.is_healthy(now) && self.terms.can_serve(next)
    }

    /// Whether it is neither closed nor lost, and enough of its lease is left.
    fn is_healthy(&self, now: Moment) -> bool {
        let lease = if self.is_first() { self.validity.first.into() } else { self.terms.lease };
        self.standing == Standing::Open && self.validity.until.since(now) > lease / 3
    }

    /// Returns the request, about to be sent, that asks whether others may join it. `last`: the last ticket
    /// issued so far.
    pub(crate) fn asks(&mut self, request: &Request, threads: usize, last: Ticket, now: Moment) -> Asking {
        let joining = self.joining().cloned().unwrap_or_default();
        self.reuse = Reuse::Shared(Joining { in_flight: Some((now, last)), ..joining });
        Asking::new(self.owner, AcquireMode::Share, request.terms.clone(), threads)
    }

    /// Records Redis's reply to the question whether others may join it.
    pub(crate) fn may_be_joined_since(&mut self, answer: &Answer) {
        let Reuse::Shared(joining) = &mut self.reuse else { return };
        match (answer, joining.in_flight.take()) {
            (Answer::In { .. }, Some((sent, last))) => {
                (joining.open_since, joining.admits) = (Some(sent), last)
            }
            // Also if there was no reply: the next thread asks for a grant of its own.
            _ => self.close_to_others(),
        }
    }

    /// Whether the request that asks whether others may join it is in flight.
    pub(crate) fn share_in_flight(&self) -> bool {
        self.joining().is_some_and(|joining| joining.in_flight.is_some())
    }

    /// It was granted for `first` only, counted from `since`: the first renewal is for the rest of its lease.
    pub(crate) fn begins_for(&mut self, first: Duration, since: Moment) {
        self.validity.first = first.into();
        if self.terms.fixed {
            self.must_last(since.after(self.terms.lease));
        }
    }

    /// Whether it still has its short first lease, and must be renewed soon.
    pub(crate) fn is_first(&self) -> bool {
        self.validity.first != Millis::default()
    }

    /// Redis replied, to a request sent at `sent`, that `left` of the lease is left. If another reply arrived
    /// since then, the shorter of the two counts.
    pub(crate) fn extended(&mut self, sent: Moment, left: Duration, now: Moment) {
        let Validity { until, first, doubt, last_reply, .. } = &mut self.validity;
        *first = Millis::default();
        let ends = ends_at(sent, left.min(doubt.shortest()));
        let overlaps = sent < std::mem::replace(last_reply, now);
        *until = if overlaps { ends.min(*until) } else { ends };
    }

    /// A renewal for `lease`, sent at `sent`, had no reply: it may have run, and may run again.
    pub(crate) fn doubt(&mut self, sent: Moment, lease: Duration) {
        self.validity.doubt.caps(lease);
        self.validity.until = self.validity.until.min(ends_at(sent, lease));
    }

    /// `renew_for` asked for the grant to last until `until`.
    pub(crate) fn must_last(&mut self, until: Moment) {
        self.validity.lasts_until = until;
    }

    /// Returns until when it must stay in Redis, even if its only hold, which began at `since`, is released
    /// earlier.
    pub(crate) fn stays_until(&self, since: Option<Moment>) -> Moment {
        if self.terms.at_least == Millis::default() {
            return Moment::default();
        }
        since.unwrap_or(self.since).after(self.terms.at_least.into())
    }

    /// Returns when the renewal thread must look at it next: before it expires if it is renewed, when it
    /// expires if not. A short first lease is renewed early, since a process that cannot reach Redis loses it
    /// soon, but late enough that a short hold does not cost a renewal.
    pub(crate) fn due(&self, now: Moment, renew_every: Duration) -> Moment {
        if self.is_first() {
            return now.after(renew_every.min(self.validity.until.since(now) / 6));
        }
        if self.terms.fixed {
            return self.validity.until;
        }
        // A lock that is kept has a shorter lease than its client's other locks.
        let every = if self.terms.lingers() { renew_every.min(self.terms.lease / 3) } else { renew_every };
        let due = now.after(every.min(self.validity.until.since(now) / 2));
        match self.keep().and_then(|keep| keep.until) {
            Some(until) if until > now => due.min(until),
            _ => due,
        }
    }

    /// The lease that the next renewal asks for.
    pub(crate) fn renewal(&self, now: Moment) -> Duration {
        let at_least = self.must_last_for(now);
        if self.is_first() && self.terms.fixed {
            // Redis counts in milliseconds.
            return at_least.max(Duration::from_millis(1));
        }
        self.terms.lease.max(at_least)
    }

    /// The lease that a request asks for which only makes Redis write the grant again: a fixed lease keeps
    /// its end.
    pub(crate) fn rewrite(&self, now: Moment) -> Duration {
        if self.is_first() || !self.terms.fixed {
            return self.renewal(now);
        }
        let left = self.validity.until.since(now);
        (left + drift(left)).max(Duration::from_millis(1))
    }

    /// For how much longer its holder wants it, by `renew_for`.
    fn must_last_for(&self, now: Moment) -> Duration {
        self.validity.lasts_until.since(now)
    }

    /// Whether its holder wants it for longer than its lease. That wish ends with the hold.
    fn is_prolonged(&self, now: Moment) -> bool {
        self.terms.lease < self.must_last_for(now)
    }
}
