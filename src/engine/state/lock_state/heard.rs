//! How the lock state handles what Redis says: replies, messages, renewals, and silence.

use std::time::Duration;

use super::ask::PendingGrant;
use super::{Answer, BACKOFF, Effects, LONGEST_BACKOFF, LockState, PendingRelease, Renewal, SLACK};
use crate::clock::Moment;
use crate::engine::state::grant::ends_at;
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
                // Not in the queue: it was a first try, and now wants a position.
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
            self.trouble.get_or_insert(now);
        }
        let background = self.forget_given_up();
        if alone {
            return Effects { leave: self.abandon(now), background, ..Effects::default() };
        }
        Effects { wake: self.head(), background, ..Effects::default() }
    }

    /// A request of this pending acquire was sent twice before it was answered: a copy may be in flight yet.
    pub(crate) fn unsettle(&mut self, owner: u64) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
        }
    }

    /// Redis has not replied since, to a thread that has left.
    pub(crate) fn in_trouble_since(&mut self, since: Moment) {
        self.trouble.get_or_insert(since);
    }

    /// A request has been in flight for `limit`: whether the lock is busy is unknown.
    pub(crate) fn is_unheard(&self, now: Moment, limit: Duration) -> bool {
        self.ask.as_ref().is_some_and(|a| a.in_flight && now.since(a.sent) >= limit)
    }

    /// It was busy, and has no queue position: it is asked for again then.
    pub(crate) fn try_later(&mut self, owner: u64, at: Moment) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner && !a.in_flight && !a.queued) {
            ask.again_at = ask.again_at.max(at);
        }
    }

    /// The request was not sent, since the inbox is not ready: it is due at `again_at`, or when woken.
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

    /// The inbox is up (again): what was missed meanwhile is asked for.
    pub(crate) fn ask_again(&mut self, now: Moment) -> Effects {
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
            ask.unheard = ask.in_flight;
        }
        Effects { wake: self.head(), ..Effects::default() }
    }

    /// A message: `owner` was granted the lock.
    pub(crate) fn granted(
        &mut self,
        owner: u64,
        number: u64,
        lease: Duration,
        value: u64,
        now: Moment,
    ) -> Effects {
        let said = if self.joined() { now } else { Moment::default() };
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner)
            && ask.grant.is_none()
            && number > ask.floor
        {
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
            // Too late: the hold may have expired and, by a late copy of the request, come again under a new
            // number since. The same id asks, and gets the number.
            (_, Some(grant)) if grant.valid_until <= now && !answer.is_over() => {
                if answer == Renewal::Unanswered {
                    ask.least = ask.least.min(ask.terms.lease);
                }
                ask.grant = None;
                // It may have been renewed: a thread that gives this up has to leave.
                ask.unsettled = true;
                ask.again_at = now;
            }
            (Renewal::Left(left), Some(grant)) => {
                grant.valid_until = ends_at(ask.sent, left.min(ask.least));
                (grant.since, grant.lease, grant.told) = (ask.sent, ask.terms.lease, false);
                grant.confirmed = true;
            }
            // Over, by Redis's own word: this id is done with.
            (Renewal::NotInside | Renewal::Tombstone, _) => {
                let unsettled = ask.unsettled && answer == Renewal::NotInside;
                let background = self.ask.take().filter(|_| unsettled).map(|a| a.leaving(now));
                return Effects { wake: self.head(), background, ..Effects::default() };
            }
            // What is left of it is still ours.
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

    /// The reply to a renewal of a grant, sent at `sent`. One without a reply comes with a
    /// [`doubt`](LockState::doubt).
    pub(crate) fn renewed(&mut self, owner: u64, sent: Moment, answer: Renewal, now: Moment) -> Effects {
        let Some(grant) = self.grant_mut(owner) else { return Effects::default() };
        match answer {
            // Once lost, lost for good: a late reply changes nothing.
            Renewal::Left(left) if grant.loss(now).is_none() => grant.extended(sent, left, now),
            // The thread that exchanges it learns of that by itself.
            Renewal::NotInside | Renewal::Tombstone if grant.exchanged => {}
            Renewal::NotInside => return self.lose(owner, LossReason::Revoked, now),
            Renewal::Tombstone => return self.lose_for_good(owner, LossReason::Revoked, now),
            Renewal::Unanswered => grant.unsettled = true,
            Renewal::Left(_) | Renewal::Failed => {}
        }
        self.expire(owner, now)
    }

    /// A renewal for `lease`, sent at `sent`, had no reply, or was sent twice to get one: a copy of it may
    /// run at any time yet.
    pub(crate) fn doubt(&mut self, owner: u64, sent: Moment, lease: Duration) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.doubt(sent, lease);
        }
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
            ask.least = ask.least.min(lease);
        }
    }

    /// Its holder is about to renew it, beside the background.
    pub(crate) fn is_renewed_beside(&mut self, owner: u64) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.is_renewed_beside();
        }
    }

    /// `renew_for` asked for this much: later renewals do not shorten it.
    pub(crate) fn wanted(&mut self, owner: u64, until: Moment) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.wants(until);
        }
    }

    /// Checks the local deadline of a grant; no effect if it is not over.
    pub(crate) fn expire(&mut self, owner: u64, now: Moment) -> Effects {
        match self.grant(owner) {
            Some(t) if t.lost.is_none() && t.valid_until <= now => self.lose(owner, LossReason::Expired, now),
            _ => Effects::default(),
        }
    }

    /// A message: the grant was taken away by force, by a caller that said this about it.
    pub(crate) fn forced(&mut self, owner: u64, said: &str, now: Moment) -> Effects {
        if let Some(grant) = self.grant_mut(owner).filter(|t| t.lost.is_none() && !said.is_empty()) {
            grant.said = Some(Box::new(said.into()));
        }
        self.lose_for_good(owner, LossReason::Forced, now)
    }

    /// [`lose`](Self::lose), of what has a tombstone in Redis: no copy of a request has an effect, and what it had
    /// may stay to keep others out.
    fn lose_for_good(&mut self, owner: u64, why: LossReason, now: Moment) -> Effects {
        if let Some(grant) = self.grant_mut(owner) {
            grant.unsettled = false;
        }
        self.lose(owner, why, now)
    }

    /// A grant is over for `why`. Lost by the deadline is not lost in Redis: it leaves. If Redis revoked it,
    /// there is nothing to leave, unless a copy of its request may come yet.
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
        let background = (why == LossReason::Expired || grant.unsettled).then(|| {
            grant.unsettled = true;
            // By its lease it ends here a little before it does in Redis, where its least time is not over either then.
            let stays = if why == LossReason::Expired { grant.stays_until(since) } else { Moment::default() };
            PendingRelease { stays_until: stays, ..PendingRelease::of(grant, now) }
        });
        let ended = Effects { wake: self.head(), background, ..Effects::default() };
        if idle {
            // No thread had it: nothing is lost.
            self.grants.remove(owner);
            return Effects { dropped: Some((owner, KeptEnd::Lost)), ..ended };
        }
        Effects { lost: Some((owner, why, holds)), ..ended }
    }
}
