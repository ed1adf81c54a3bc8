//! How the lock state handles what Redis says: replies, messages, renewals, and silence.

use std::time::Duration;

use super::ask::{PendingGrant, Phase, Source};
use super::{Answer, BACKOFF, Effects, LONGEST_BACKOFF, LockState, PendingRelease, Renewal, SLACK, Trouble};
use crate::clock::Moment;
use crate::engine::state::grant::{Grant, Lost, MOST_NUMBER, Standing, ends_at};
use crate::observe::{AcquiredVia, KeptEnd, LossReason};

impl LockState {
    /// The reply to the request of `owner`, whichever thread sent it.
    pub(crate) fn answered(&mut self, owner: u64, answer: Answer, now: Moment) -> Effects {
        let joined = self.joined();
        if let Some(grant) = self.grant_mut(owner).filter(|t| t.share_in_flight()) {
            grant.may_be_joined_since(&answer);
            return self.wakes_head();
        }
        let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) else {
            return Effects::default();
        };
        let Some(request) = ask.in_flight.take() else { return Effects::default() };
        let answer = self.waits_for.hears(ask, answer);
        if answer == Answer::Ended {
            return self.ask_ends(now);
        }
        let replied = !matches!(answer, Answer::Failed | Answer::Unanswered);
        match answer {
            Answer::In { number, left, value } => ask.is_in(request.sent, number, left, value, joined),
            Answer::Busy { last_number, again, arrival, others } => {
                // Not in the queue: this was a first try, and the head now wants a position.
                let nothing_to_do = !arrival.is_empty() && !request.unheard;
                ask.again_at = if nothing_to_do { now.after(again).after(SLACK) } else { now };
                if !arrival.is_empty() {
                    self.line.have_places();
                }
                ask.is_busy(request.sent, last_number, arrival, others);
            }
            Answer::Gone => ask.is_gone(now),
            Answer::Refused(why) => ask.is_rejected(why),
            Answer::Unanswered => ask.doubt.begins(),
            Answer::Failed | Answer::Ended | Answer::Back(_) => {}
        }
        if replied {
            self.trouble = None;
        } else {
            let trouble = self.trouble.get_or_insert(Trouble { since: request.sent, failures: 0 });
            trouble.failures += 1;
            ask.again_at = now.after(LONGEST_BACKOFF.min(BACKOFF * trouble.failures));
        }
        let background = self.forget_given_up();
        Effects { background, ..self.goes_on(now) }
    }

    /// A request of this pending acquire was sent twice before it was answered: a copy may still be in
    /// flight.
    pub(crate) fn unsettle(&mut self, owner: u64) {
        if let Some(ask) = self.ask_of(owner) {
            ask.doubt.begins();
        }
    }

    /// A thread that has stopped waiting had no reply from Redis since `since`.
    pub(crate) fn in_trouble_since(&mut self, since: Moment) {
        self.trouble.get_or_insert(Trouble { since, failures: 0 });
    }

    /// Whether a request has been in flight for `limit`, so that it is unknown whether the lock is busy.
    pub(crate) fn is_unheard(&self, now: Moment, limit: Duration) -> bool {
        let request = self.ask.as_ref().and_then(|ask| ask.in_flight.as_ref());
        request.is_some_and(|request| now.since(request.sent) >= limit)
    }

    /// The lock was busy, and gave no queue position: it is asked for again at `at`.
    pub(crate) fn try_later(&mut self, owner: u64, at: Moment) {
        if let Some(ask) = self.ask_of(owner).filter(|a| a.in_flight.is_none() && !a.is_queued()) {
            ask.again_at = ask.again_at.max(at);
        }
    }

    /// The request was not sent, as the inbox is not ready: it is due at `again_at`, or when the thread is
    /// woken.
    pub(crate) fn postponed(&mut self, owner: u64, again_at: Moment) {
        if let Some(ask) = self.ask_of(owner) {
            ask.in_flight = None;
            ask.again_at = again_at;
        }
        // It is no longer known whether a shared hold may be joined.
        if let Some(share) = self.grant_mut(owner).filter(|t| t.share_in_flight()) {
            share.may_be_joined_since(&Answer::Unanswered);
        }
    }

    /// The inbox is up, perhaps again: the head asks for what was missed meanwhile.
    pub(crate) fn ask_again(&mut self, now: Moment) -> Effects {
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
            if let Some(request) = &mut ask.in_flight {
                request.unheard = true;
            }
        }
        self.wakes_head()
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
        let seen = if self.joined() { now } else { Moment::default() };
        let first_lease = self.shape.first_lease;
        if let Some(ask) = self.ask_of(owner)
            && !ask.is_granted()
            && number > ask.last_number
            && number <= MOST_NUMBER
        {
            let lease = lease.min(first_lease).min(ask.sought.terms.lease);
            let valid_until = ends_at(ask.counts_from, lease.min(ask.doubt.shortest()));
            let (since, by, via) = (ask.counts_from, Source::Message, AcquiredVia::Granted);
            let confirmed = false;
            let granted = PendingGrant { number, value, seen, valid_until, since, lease, by, via, confirmed };
            ask.phase = Phase::Granted(granted);
            return self.wakes_head();
        }
        Effects::default()
    }

    /// A message: `owner` will never be admitted.
    pub(crate) fn refused(&mut self, owner: u64, why: String) -> Effects {
        if let Some(ask) = self.ask_of(owner) {
            ask.is_rejected(why);
            return self.wakes_head();
        }
        Effects::default()
    }

    /// The reply to [`Step::Confirm`](super::Step::Confirm).
    pub(crate) fn confirmed(&mut self, owner: u64, answer: Renewal, now: Moment) -> Effects {
        let Some(ask) = self.ask_of(owner) else { return Effects::default() };
        let (Some(request), Phase::Granted(granted)) = (ask.in_flight.take(), &mut ask.phase) else {
            return Effects::default();
        };
        let lease = ask.sought.terms.lease;
        if answer == Renewal::Unanswered {
            ask.doubt.caps(lease);
        }
        match answer {
            Renewal::NotInside if !ask.doubt.exists() => {
                self.ask = None;
                return self.wakes_head();
            }
            Renewal::NotInside | Renewal::Tombstone => return self.ask_ends(now),
            // Too late: since then the hold may have expired and, by a late copy of the request, been granted
            // again under a new number. Asking under the same id returns that number.
            _ if granted.valid_until <= now => {
                // The renewal may have run: a thread that gives up now has to leave.
                ask.doubt.begins();
                ask.is_gone(now);
            }
            Renewal::Left(left) => {
                granted.valid_until = ends_at(request.sent, left.min(ask.doubt.shortest()));
                (granted.since, granted.lease, granted.by) = (request.sent, lease, Source::Reply);
                granted.confirmed = true;
            }
            // What is left of the lease is still ours.
            Renewal::Unanswered | Renewal::Failed => granted.confirmed = true,
        }
        self.goes_on(now)
    }

    /// The outcome of a grant's renewal, sent at `sent`. If there was no reply, [`doubt`](LockState::doubt)
    /// is reported as well.
    pub(crate) fn renewed(&mut self, owner: u64, sent: Moment, answer: Renewal, now: Moment) -> Effects {
        // A loss is final: a late reply changes nothing.
        let grant = self.grant_mut(owner).filter(|grant| grant.lost().is_none());
        let Some(grant) = grant else { return Effects::default() };
        match answer {
            Renewal::Left(left) if grant.loss(now).is_none() => grant.extended(sent, left, now),
            // The thread that exchanges it finds that out by itself.
            Renewal::NotInside | Renewal::Tombstone if grant.standing == Standing::Exchanged => {}
            Renewal::NotInside => return self.lose(owner, LossReason::Revoked, now),
            Renewal::Tombstone => {
                return self.ends_early(owner, now, |grant| grant.taken_away(LossReason::Revoked, None));
            }
            Renewal::Unanswered => grant.validity.doubt.begins(),
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
        if let Some(ask) = self.ask_of(owner) {
            ask.doubt.caps(lease);
        }
    }

    /// Redis itself says that the pending acquire is over: its id is done with. What was taken away before its thread
    /// learned of it may keep others out until it leaves.
    fn ask_ends(&mut self, now: Moment) -> Effects {
        let background = self.ask.take().map(|ask| ask.leaving(now));
        Effects { background, ..self.wakes_head() }
    }

    /// `renew_for` asked for the grant to last until `until`: later renewals do not shorten it.
    pub(crate) fn must_last(&mut self, owner: u64, until: Moment) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.must_last(until);
        }
    }

    /// Checks the local deadline of a grant. Has no effect before that.
    pub(crate) fn expire(&mut self, owner: u64, now: Moment) -> Effects {
        match self.grant(owner) {
            Some(t) if t.lost().is_none() && t.validity.until <= now => {
                self.lose(owner, LossReason::Expired, now)
            }
            _ => Effects::default(),
        }
    }

    /// A message: a caller took the grant away by force, and gave `reason`, which may be empty.
    pub(crate) fn forced(&mut self, owner: u64, reason: &str, now: Moment) -> Effects {
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        self.ends_early(owner, now, |grant| grant.taken_away(LossReason::Forced, reason))
    }

    /// A grant is lost because of `why`.
    pub(crate) fn lose(&mut self, owner: u64, why: LossReason, now: Moment) -> Effects {
        self.ends_early(owner, now, |grant| grant.loses(why))
    }

    /// A grant is lost, by `how`. If its local deadline passed, Redis may still have it: it leaves. If it was
    /// taken away, Redis may keep others out for as long as a thread may still work under it: it leaves at
    /// once if no thread does, and if a copy of its request may still arrive.
    fn ends_early(&mut self, owner: u64, now: Moment, how: impl FnOnce(&mut Grant)) -> Effects {
        if self.ask_of(owner).is_some() {
            return self.ask_ends(now);
        }
        let since = self.holds.of_owner(owner).next().and_then(|h| h.since);
        let Some(grant) = self.grant_mut(owner) else { return Effects::default() };
        let was_lost = grant.lost().is_some();
        how(grant);
        let Some(&Lost { why, remains, .. }) = grant.lost().filter(|_| !was_lost) else {
            return Effects::default();
        };
        let idle = grant.is_idle();
        let holds = grant.holds;
        let mut leave = None;
        if why == LossReason::Expired {
            grant.validity.doubt.begins();
            // A lease expires here a little before it does in Redis, where the minimum hold time is not over
            // either then.
            leave = Some(grant.stays_until(since));
        } else if grant.validity.doubt.exists() || (idle && remains) {
            leave = Some(Moment::default());
        }
        let background = leave.map(|stays_until| PendingRelease::of(grant, stays_until, now));
        let ended = Effects { background, ..self.wakes_head() };
        if idle {
            // No thread held it, so nothing is lost.
            self.grants.remove(owner);
            return Effects { dropped: Some((owner, KeptEnd::Lost)), ..ended };
        }
        Effects { lost: Some((owner, why, holds)), ..ended }
    }
}
