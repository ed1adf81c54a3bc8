//! How the lock state handles what Redis says: replies, messages, renewals, and silence.

use std::time::Duration;

use super::ask::PendingGrant;
use super::{Answer, BACKOFF, Effects, LONGEST_BACKOFF, LockState, PendingRelease, Renewal, SLACK};
use crate::clock::Moment;
use crate::engine::state::grant::{MOST_NUMBER, ends_at};
use crate::observe::{AcquiredVia, KeptEnd, LossReason};

impl LockState {
    /// The reply to the request of `owner`, whichever thread sent it.
    pub(crate) fn answered(&mut self, owner: u64, answer: Answer, now: Moment) -> Effects {
        let alone = self.waiters.is_empty();
        let joined = self.joined();
        if let Some(grant) = self.grant_mut(owner).filter(|t| t.is_asked()) {
            grant.may_be_joined_since(&answer);
            return Effects { wake: self.head(), ..Effects::default() };
        }
        let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) else {
            return Effects::default();
        };
        ask.in_flight = false;
        let answer = self.waits_for.hears(ask, answer);
        if answer == Answer::Ended {
            self.ask = None;
            return Effects { wake: self.head(), ..Effects::default() };
        }
        let heard = !matches!(answer, Answer::Failed | Answer::Unanswered);
        match answer {
            Answer::In { number, left, value } => {
                ask.is_in(number, left, value, joined);
            }
            Answer::Busy { floor, again, arrival } => {
                ask.floor = ask.floor.max(floor);
                ask.queued = !arrival.is_empty();
                ask.asked = true;
                ask.base = Some(ask.sent);
                ask.arrival = arrival;
                // Not in the queue: this was a first try, and the head now wants a position.
                let nothing_to_do = ask.queued && !ask.unheard;
                ask.again_at = if nothing_to_do { now.after(again).after(SLACK) } else { now };
                let floor = ask.floor;
                ask.grant.take_if(|g| g.number <= floor);
            }
            Answer::Gone => {
                ask.queued = false;
                ask.grant = None;
                ask.again_at = now;
            }
            Answer::Refused(why) => {
                ask.queued = false;
                ask.refused = Some(why);
            }
            Answer::Unanswered => ask.unsettled = true,
            Answer::Failed | Answer::Ended | Answer::Back(_) => {}
        }
        if heard {
            ask.failures = 0;
            self.trouble = None;
        } else {
            ask.failures += 1;
            ask.again_at = now.after(LONGEST_BACKOFF.min(BACKOFF * ask.failures));
            self.trouble.get_or_insert(ask.sent);
        }
        let background = self.forget_given_up();
        if alone {
            return Effects { leave: self.abandon(now), background, ..Effects::default() };
        }
        Effects { wake: self.head(), background, ..Effects::default() }
    }

    /// A request of this pending acquire was sent twice before it was answered: a copy may still be in
    /// flight.
    pub(crate) fn unsettle(&mut self, owner: u64) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
        }
    }

    /// A thread that has stopped waiting had no reply from Redis since `since`.
    pub(crate) fn in_trouble_since(&mut self, since: Moment) {
        self.trouble.get_or_insert(since);
    }

    /// Whether a request has been in flight for `limit`, so that it is unknown whether the lock is busy.
    pub(crate) fn is_unheard(&self, now: Moment, limit: Duration) -> bool {
        self.ask.as_ref().is_some_and(|a| a.in_flight && now.since(a.sent) >= limit)
    }

    /// The lock was busy, and gave no queue position: it is asked for again at `at`.
    pub(crate) fn try_later(&mut self, owner: u64, at: Moment) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner && !a.in_flight && !a.queued) {
            ask.again_at = ask.again_at.max(at);
        }
    }

    /// The request was not sent, as the inbox is not ready: it is due at `again_at`, or when the thread is
    /// woken.
    pub(crate) fn postponed(&mut self, owner: u64, again_at: Moment) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.in_flight = false;
            ask.again_at = again_at;
        }
        // It is no longer known whether a shared hold may be joined.
        if let Some(share) = self.grant_mut(owner).filter(|t| t.is_asked()) {
            share.may_be_joined_since(&Answer::Unanswered);
        }
    }

    /// The inbox is up, perhaps again: the head asks for what was missed meanwhile.
    pub(crate) fn ask_again(&mut self, now: Moment) -> Effects {
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
            ask.unheard = ask.in_flight;
        }
        Effects { wake: self.head(), ..Effects::default() }
    }

    /// A message: `owner` was granted the lock. It is worth no more than a script can have granted, whoever
    /// sent it.
    pub(crate) fn granted(
        &mut self,
        owner: u64,
        number: u64,
        lease: Duration,
        value: u64,
        now: Moment,
    ) -> Effects {
        let said = if self.joined() { now } else { Moment::default() };
        let first_lease = self.shape.first_lease;
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner)
            && ask.grant.is_none()
            && number > ask.floor
            && number <= MOST_NUMBER
        {
            let lease = lease.min(first_lease).min(ask.terms.lease);
            let base = ask.base.unwrap_or(ask.sent);
            let valid_until = ends_at(base, lease.min(ask.least));
            let (since, told, way, confirmed) = (base, true, AcquiredVia::Granted, false);
            ask.grant =
                Some(PendingGrant { number, value, said, valid_until, since, lease, told, way, confirmed });
            ask.queued = false;
            return Effects { wake: self.head(), ..Effects::default() };
        }
        Effects::default()
    }

    /// A message: `owner` will never be admitted.
    pub(crate) fn refused(&mut self, owner: u64, why: String) -> Effects {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.queued = false;
            ask.refused = Some(why);
            return Effects { wake: self.head(), ..Effects::default() };
        }
        Effects::default()
    }

    /// The reply to [`Step::Confirm`].
    pub(crate) fn confirmed(&mut self, owner: u64, answer: Renewal, now: Moment) -> Effects {
        let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) else {
            return Effects::default();
        };
        ask.in_flight = false;
        match (answer, &mut ask.grant) {
            // Too late: since then the hold may have expired and, by a late copy of the request, been granted
            // again under a new number. Asking under the same id returns that number.
            (_, Some(grant)) if grant.valid_until <= now && !answer.is_over() => {
                if answer == Renewal::Unanswered {
                    ask.least = ask.least.min(ask.terms.lease);
                }
                ask.grant = None;
                // The renewal may have run: a thread that gives up now has to leave.
                ask.unsettled = true;
                ask.again_at = now;
            }
            (Renewal::Left(left), Some(grant)) => {
                grant.valid_until = ends_at(ask.sent, left.min(ask.least));
                (grant.since, grant.lease, grant.told) = (ask.sent, ask.terms.lease, false);
                grant.confirmed = true;
            }
            // Redis itself says that it is over: this id is done with.
            (Renewal::NotInside | Renewal::Tombstone, _) => {
                let unsettled = ask.unsettled && answer == Renewal::NotInside;
                let background = self.ask.take().filter(|_| unsettled).map(|a| a.leaving(now));
                return Effects { wake: self.head(), background, ..Effects::default() };
            }
            // What is left of the lease is still ours.
            (Renewal::Unanswered, Some(grant)) => {
                ask.unsettled = true;
                ask.least = ask.least.min(ask.terms.lease);
                grant.confirmed = true;
            }
            (Renewal::Failed, Some(grant)) => grant.confirmed = true,
            (_, None) => {}
        }
        if self.waiters.is_empty() {
            return Effects { leave: self.abandon(now), ..Effects::default() };
        }
        Effects { wake: self.head(), ..Effects::default() }
    }

    /// The outcome of a grant's renewal, sent at `sent`. If there was no reply, [`doubt`](LockState::doubt)
    /// is reported as well.
    pub(crate) fn renewed(&mut self, owner: u64, sent: Moment, answer: Renewal, now: Moment) -> Effects {
        let Some(grant) = self.grant_mut(owner) else { return Effects::default() };
        match answer {
            // A loss is final: a late reply changes nothing.
            Renewal::Left(left) if grant.loss(now).is_none() => grant.extended(sent, left, now),
            // The thread that exchanges it finds that out by itself.
            Renewal::NotInside | Renewal::Tombstone if grant.exchanged => {}
            Renewal::NotInside => return self.lose(owner, LossReason::Revoked, now),
            Renewal::Tombstone => return self.lose_for_good(owner, LossReason::Revoked, now),
            Renewal::Unanswered => grant.unsettled = true,
            Renewal::Left(_) | Renewal::Failed => {}
        }
        self.expire(owner, now)
    }

    /// A renewal for `lease`, sent at `sent`, had no reply, or was sent twice to get one: a copy of it may
    /// still run at any time.
    pub(crate) fn doubt(&mut self, owner: u64, sent: Moment, lease: Duration) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.doubt(sent, lease);
        }
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
            ask.least = ask.least.min(lease);
        }
    }

    /// Its holder is about to renew it, beside the renewal thread.
    pub(crate) fn is_renewed_beside(&mut self, owner: u64) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.is_renewed_beside();
        }
    }

    /// `renew_for` asked for the grant to last until `until`: later renewals do not shorten it.
    pub(crate) fn wanted(&mut self, owner: u64, until: Moment) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.wants(until);
        }
    }

    /// Checks the local deadline of a grant. Has no effect before that.
    pub(crate) fn expire(&mut self, owner: u64, now: Moment) -> Effects {
        match self.grant(owner) {
            Some(t) if t.lost.is_none() && t.valid_until <= now => self.lose(owner, LossReason::Expired, now),
            _ => Effects::default(),
        }
    }

    /// A message: a caller took the grant away by force, and gave `said` as its reason.
    pub(crate) fn forced(&mut self, owner: u64, said: &str, now: Moment) -> Effects {
        if let Some(grant) = self.grant_mut(owner).filter(|t| t.lost.is_none() && !said.is_empty()) {
            grant.said = Some(Box::new(said.into()));
        }
        self.lose_for_good(owner, LossReason::Forced, now)
    }

    /// Like [`lose`](Self::lose), for an owner with a tombstone in Redis: no copy of a request has an effect
    /// any more, and its entry may stay to keep others out.
    fn lose_for_good(&mut self, owner: u64, why: LossReason, now: Moment) -> Effects {
        if let Some(grant) = self.grant_mut(owner) {
            grant.unsettled = false;
            grant.stays = true;
        }
        self.lose(owner, why, now)
    }

    /// A grant is lost because of `why`. If its local deadline passed, Redis may still have it: it leaves. If it
    /// was taken away, Redis may keep others out for as long as a thread may still work under it: it leaves at
    /// once if no thread does, and if a copy of its request may still arrive.
    pub(crate) fn lose(&mut self, owner: u64, why: LossReason, now: Moment) -> Effects {
        if self.ask.take_if(|a| a.owner == owner).is_some() {
            // Taken away before its thread learned that it was granted: this id is done with.
            return Effects { wake: self.head(), ..Effects::default() };
        }
        let since = self.holds.of_owner(owner).next().and_then(|h| h.since);
        let Some(grant) = self.grant_mut(owner).filter(|t| t.lost.is_none()) else {
            return Effects::default();
        };
        grant.lost = Some(why);
        let idle = grant.is_idle();
        let holds = grant.holds;
        let background =
            (why == LossReason::Expired || grant.unsettled || (idle && grant.stays)).then(|| {
                grant.unsettled |= why == LossReason::Expired;
                // A lease expires here a little before it does in Redis, where the minimum hold time is not over
                // either then.
                let stays =
                    if why == LossReason::Expired { grant.stays_until(since) } else { Moment::default() };
                PendingRelease { stays_until: stays, ..PendingRelease::of(grant, now) }
            });
        let ended = Effects { wake: self.head(), background, ..Effects::default() };
        if idle {
            // No thread held it, so nothing is lost.
            self.grants.remove(owner);
            return Effects { dropped: Some((owner, KeptEnd::Lost)), ..ended };
        }
        Effects { lost: Some((owner, why, holds)), ..ended }
    }
}
