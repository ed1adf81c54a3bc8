//! What Redis granted under one owner id, and what may be done with it: until when it is valid, and who may have it next.
//! When any of this is done is decided in `lock_state/`.

use std::time::Duration;

use super::asking::{AcquireMode, Answer, Asking, Request, Terms, Ticket};
use crate::clock::{Millis, Moment};
use crate::observe::LossReason;

/// The longest run of local hand-offs: the token's low bits count them.
pub(crate) const MOST_HAND_OVERS: u32 = (1 << HAND_OVER_BITS) - 1;
const HAND_OVER_BITS: u32 = 12;

/// The highest number that a token can be made of.
pub(crate) const MOST_NUMBER: u64 = u64::MAX >> HAND_OVER_BITS;

/// The number that this token is made of.
pub(crate) fn number_of(token: u64) -> u64 {
    token >> HAND_OVER_BITS
}

/// The first token of the grant with this number.
pub(crate) fn first_token(number: u64) -> u64 {
    number << HAND_OVER_BITS
}

/// A lease as Redis counts it expires this much earlier here: clocks differ in rate.
pub(crate) fn drift(lease: Duration) -> Duration {
    Duration::from_millis(2).max(lease / 100)
}

/// When a hold ends here that Redis keeps for `left`, counted from `since`. The drift is that of this time, however
/// long the lease was at first.
pub(crate) fn ends_at(since: Moment, left: Duration) -> Moment {
    since.after(left).before(drift(left))
}

/// One grant: until the process leaves, or loses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// The `n` of its owner id, `<client uuid>:<n>`.
    pub(crate) owner: u64,
    /// Its grant number: what fencing tokens are made of.
    pub(crate) number: u64,
    /// What the rule added to it.
    pub(crate) value: u64,
    /// The terms it was asked for on.
    pub(crate) terms: Terms,
    /// Until when it is known to be valid, counted from before the request was sent.
    pub(crate) valid_until: Moment,
    /// What it was granted for, if that is less than its lease: a process that is admitted by a message may
    /// be dead. `None` once it is renewed.
    pub(crate) first: Millis,
    /// When this process got it: the beginning of its local hand-off period.
    pub(crate) since: Moment,
    /// What renewals must consider, if anything.
    pub(crate) bounds: Option<Box<RenewalBounds>>,
    /// How often it was handed on in this process.
    pub(crate) hand_overs: u32,
    /// A request of it had no reply: it ends with a tombstone.
    pub(crate) unsettled: bool,
    /// Why it ended early.
    pub(crate) lost: Option<LossReason>,
    /// What the caller said that took it away by force. In two boxes, as hardly any grant has it.
    pub(crate) said: Option<Box<Box<str>>>,
    /// The number of holds on it, one per thread or guard.
    pub(crate) holds: u32,
    /// It ends with its holder: it is not handed on, and may not be shared.
    pub(crate) shut: bool,
    /// Another mode's is asked for in its place: Redis may have it no longer, and that is not a loss.
    pub(crate) exchanged: bool,
    /// Of a shared grant.
    pub(crate) joining: Option<Box<Joining>>,
    /// Of a grant that its process may keep for its next hold.
    pub(crate) keep: Option<Box<Keep>>,
}

/// The bit of an owner number that says that its process keeps the lock for its next hold, and is to be told when
/// another caller wants it: the `~` at the end of the owner id.
pub(crate) const KEEPS: u64 = 1 << 63;

/// A grant that stays in its process while no thread holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keep {
    /// No thread holds it.
    pub(crate) idle: bool,
    /// A thread took it while it was idle.
    pub(crate) used: bool,
    /// Until when it is kept, from the end of its first hold on.
    pub(crate) until: Option<Moment>,
    /// Since when another caller is known to want it.
    pub(crate) wanted: Option<Moment>,
}

/// What renewals of a grant must consider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RenewalBounds {
    /// Asked for by `renew_for`: renewals do not shorten it below this. Of a fixed lease that was granted for
    /// less, its end.
    wanted_until: Moment,
    /// The shortest lease that a renewal without a reply asked for: a copy of it may run at any time yet, so
    /// no later renewal is worth more.
    least: Duration,
    /// When the last reply to a renewal came, of a grant that its holder has renewed beside the background: the two
    /// go by different connections, and replies may come in another order than Redis ran them.
    heard: Option<Moment>,
}

impl Default for RenewalBounds {
    fn default() -> Self {
        RenewalBounds { wanted_until: Moment::default(), least: Duration::MAX, heard: None }
    }
}

/// Whether threads of this process may join a shared grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Joining {
    /// When Redis last said that they may, if it did.
    pub(crate) open_since: Option<Moment>,
    /// The last ticket of those that came before that question: they may join however late the reply was. Else a
    /// reply that takes longer than the local hand-off period would admit nobody, and be asked for again for ever.
    pub(crate) admits: Ticket,
    /// When it was asked whether they may, and the last ticket then, while that request is in flight.
    pub(crate) asked: Option<(Moment, Ticket)>,
}

impl Grant {
    /// A grant that has just begun, and whose end is not known yet.
    pub(crate) fn new(owner: u64, number: u64, terms: Terms) -> Self {
        Grant {
            owner,
            number,
            value: 0,
            terms,
            valid_until: Moment::default(),
            first: Millis::default(),
            since: Moment::default(),
            bounds: None,
            hand_overs: 0,
            unsettled: false,
            lost: None,
            said: None,
            holds: 0,
            shut: false,
            exchanged: false,
            joining: None,
            keep: None,
        }
    }

    /// The fencing token of its present holder.
    pub(crate) fn token(&self) -> u64 {
        if self.terms.token_is_value {
            return self.value;
        }
        first_token(self.number) | u64::from(self.hand_overs)
    }

    /// Why it is over, if it is: by a message or reply, or by the clock.
    pub(crate) fn loss(&self, now: Moment) -> Option<LossReason> {
        self.lost.or((self.valid_until <= now).then_some(LossReason::Expired))
    }

    /// Whether the next thread of this process may have it without Redis: its local hand-off period is not
    /// over, its lease is healthy and renewed, and neither side asked for fairness. A kept grant has one more
    /// such period from when another caller wanted it.
    pub(crate) fn may_be_handed_to(&self, next: &Terms, local_handoff: Duration, now: Moment) -> bool {
        let within = |since: Moment| now.since(since) < local_handoff;
        let wanted = self.keep.as_ref().and_then(|keep| keep.wanted);
        self.goes_on_as(next, now)
            && !self.is_prolonged(now)
            && (within(self.since) || wanted.is_some_and(within))
            && self.hand_overs < MOST_HAND_OVERS
    }

    /// Whether the process may keep it for a hold on the terms `next`: no other caller is known to want it.
    pub(crate) fn may_be_kept_for(&self, next: &Terms, now: Moment) -> bool {
        self.may_be_kept(now) && self.terms.goes_on_as(next)
    }

    /// The same for a hold on its own terms.
    pub(crate) fn may_be_kept(&self, now: Moment) -> bool {
        let keep = self.keep.as_ref().filter(|keep| keep.wanted.is_none());
        keep.is_some_and(|keep| keep.until.is_none_or(|until| now < until))
            && self.is_healthy(now)
            && !self.is_prolonged(now)
            && self.hand_overs < MOST_HAND_OVERS
    }

    /// The process keeps it, and no thread holds it.
    pub(crate) fn is_idle(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.idle)
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
        self.goes_on_as(next, now) && self.joining.as_deref().is_some_and(admits)
    }

    /// Whether it may continue as what `next` asks for.
    pub(crate) fn goes_on_as(&self, next: &Terms, now: Moment) -> bool {
        self.is_healthy(now) && self.terms.goes_on_as(next)
    }

    /// It may go on, and enough of its lease is left.
    fn is_healthy(&self, now: Moment) -> bool {
        let lease = if self.is_first() { self.first.into() } else { self.terms.lease };
        !self.shut && self.lost.is_none() && self.valid_until.since(now) > lease / 3
    }

    /// Whether it may be shared now or later: once it may not, it never may again.
    pub(crate) fn may_ever_be_shared(&self) -> bool {
        !self.shut && self.lost.is_none() && self.terms.goes_on_as(&self.terms)
    }

    /// The question whether others may join it, about to be sent; `last`: the last ticket so far.
    pub(crate) fn asks(&mut self, request: &Request, threads: usize, last: Ticket, now: Moment) -> Asking {
        self.joining.get_or_insert_default().asked = Some((now, last));
        Asking {
            owner: self.owner,
            how: AcquireMode::Share,
            terms: request.terms.clone(),
            arrival: String::new(),
            threads,
            enqueues: false,
            from: None,
            instead: false,
            thread: None,
        }
    }

    /// Redis's reply to the question whether others may join it.
    pub(crate) fn may_be_joined_since(&mut self, answer: &Answer) {
        let joining = self.joining.get_or_insert_default();
        let asked = joining.asked.take();
        match (answer, asked) {
            (Answer::In { .. }, Some((sent, last))) => {
                (joining.open_since, joining.admits) = (Some(sent), last)
            }
            // Also if it did not say: the next thread asks for itself.
            _ => self.shut = true,
        }
    }

    /// Since when threads may join it, as far as Redis said.
    pub(crate) fn open_since(&self) -> Option<Moment> {
        self.joining.as_ref()?.open_since
    }

    /// Whether the question is in flight.
    pub(crate) fn is_asked(&self) -> bool {
        self.joining.as_ref().is_some_and(|joining| joining.asked.is_some())
    }

    /// It was granted for only so long, counted from `since`: the first renewal is for the rest.
    pub(crate) fn begins_for(&mut self, first: Duration, since: Moment) {
        self.first = first.into();
        if self.terms.fixed {
            self.wants(since.after(self.terms.lease));
        }
    }

    /// It has its first lease, and must be renewed soon.
    pub(crate) fn is_first(&self) -> bool {
        self.first != Millis::default()
    }

    /// Redis said, to a request sent at `sent`, that this much is left. If another reply came since then, the shorter
    /// of the two counts.
    pub(crate) fn extended(&mut self, sent: Moment, left: Duration, now: Moment) {
        self.first = Millis::default();
        let ends = ends_at(sent, left.min(self.least()));
        let heard = self.bounds.as_mut().and_then(|bounds| bounds.heard.as_mut());
        let overlaps = heard.is_some_and(|heard| sent < std::mem::replace(heard, now));
        self.valid_until = if overlaps { self.valid_until.min(ends) } else { ends };
    }

    /// Its holder is about to renew it, beside the background.
    pub(crate) fn is_renewed_beside(&mut self) {
        self.bounds.get_or_insert_default().heard.get_or_insert_default();
    }

    /// A renewal for `lease`, sent at `sent`, had no reply: it may have run, and may run again.
    pub(crate) fn doubt(&mut self, sent: Moment, lease: Duration) {
        self.unsettled = true;
        self.is_worth(lease);
        self.valid_until = self.valid_until.min(ends_at(sent, lease));
    }

    /// A renewal for `lease` may run at any time yet.
    pub(crate) fn is_worth(&mut self, lease: Duration) {
        if lease < self.least() {
            self.bounds.get_or_insert_default().least = lease;
        }
    }

    /// `renew_for` asked for this much.
    pub(crate) fn wants(&mut self, until: Moment) {
        self.bounds.get_or_insert_default().wanted_until = until;
    }

    fn least(&self) -> Duration {
        self.bounds.as_ref().map_or(Duration::MAX, |bounds| bounds.least)
    }

    /// Until when it must stay in Redis, even if it is released before: its one hold began at `since`.
    pub(crate) fn stays_until(&self, since: Option<Moment>) -> Moment {
        if self.terms.at_least == Millis::default() {
            return Moment::default();
        }
        since.unwrap_or(self.since).after(self.terms.at_least.into())
    }

    /// When it must be looked at next: before it ends if it is renewed, when it ends if not. On its first
    /// lease it is renewed as early as a short hold does not pay for: until then a process that cannot reach
    /// Redis loses it soon.
    pub(crate) fn due(&self, now: Moment, renew_every: Duration) -> Moment {
        if self.is_first() {
            return now.after(renew_every.min(self.valid_until.since(now) / 6));
        }
        if self.terms.fixed {
            return self.valid_until;
        }
        // A lock that lingers has a shorter lease than its client's others.
        let every = if self.terms.lingers() { renew_every.min(self.terms.lease / 3) } else { renew_every };
        let due = now.after(every.min(self.valid_until.since(now) / 2));
        match self.keep.as_ref().and_then(|keep| keep.until) {
            Some(until) if until > now => due.min(until),
            _ => due,
        }
    }

    /// The lease that the next renewal asks for.
    pub(crate) fn renewal(&self, now: Moment) -> Duration {
        let wanted = self.wanted(now);
        if self.is_first() && self.terms.fixed {
            // Redis counts in milliseconds.
            return wanted.max(Duration::from_millis(1));
        }
        self.terms.lease.max(wanted)
    }

    /// The lease that a request asks for which only has Redis write it once more: a fixed one goes on as it is.
    pub(crate) fn rewrite(&self, now: Moment) -> Duration {
        if self.is_first() || !self.terms.fixed {
            return self.renewal(now);
        }
        let left = self.valid_until.since(now);
        (left + drift(left)).max(Duration::from_millis(1))
    }

    /// For how long its holder wants it, by `renew_for`.
    fn wanted(&self, now: Moment) -> Duration {
        self.bounds.as_ref().map_or(Duration::ZERO, |bounds| bounds.wanted_until.since(now))
    }

    /// Whether its holder wants it for longer than the lease: that ends with its hold.
    fn is_prolonged(&self, now: Moment) -> bool {
        self.terms.lease < self.wanted(now)
    }
}
