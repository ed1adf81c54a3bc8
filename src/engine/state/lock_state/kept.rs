//! A grant that its process keeps while no thread holds it: for its next hold, until another caller wants the
//! lock or its time is up.
//!
//! The owner id of such a grant says so ([`KEEPS`]), and the scripts then notify its process when the lock is
//! wanted. A kept grant is not a hold, so its end is not a loss.

use super::past::Habit;
use super::{AcquireMode, Acquired, Effects, Grant, LockState, PendingRelease, Request, Step, Terms, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::KEEPS;
use crate::observe::{AcquiredVia, KeptEnd};

impl LockState {
    /// Returns the mark of an owner whose grant may be kept, or 0. A wait for a condition has a lock state of
    /// its own, in which a notification would not find the grant.
    pub(super) fn keeps(&self, terms: &Terms, now: Moment) -> u64 {
        let pauses = self.past.habit.pauses(now);
        if terms.lingers() && self.exclusive() && !self.waits_for.is_condition() && !pauses {
            KEEPS
        } else {
            0
        }
    }

    /// Returns the kept grant that no thread holds, if there is one.
    pub(crate) fn idle(&self) -> Option<&Grant> {
        if !self.exclusive() {
            return None;
        }
        self.grants.iter().find(|grant| grant.is_idle())
    }

    /// Gives a thread the grant that its process kept, without Redis.
    pub(super) fn take_kept(&mut self, ticket: Ticket, request: &Request, now: Moment) -> Option<Acquired> {
        let free = self.line.waiters.is_empty() && self.ask.is_none() && request.from.is_none();
        let owner = self.idle().filter(|grant| free && grant.may_be_kept_for(&request.terms, now))?.owner;
        let grant = self.grants.get_mut(owner)?;
        grant.goes_to(&request.terms, true);
        Some(self.holds.take(grant, ticket, request.holder, AcquiredVia::Kept))
    }

    /// The last hold of `owner` has ended. Returns until when the process keeps the grant, if it does: if no thread
    /// waits.
    pub(super) fn keep(&mut self, owner: u64, now: Moment) -> Option<Moment> {
        let alone = self.line.waiters.is_empty() && self.ask.is_none() && !self.closed;
        let may = |grant: &&mut Grant| alone && grant.terms.lingers() && grant.may_be_kept(now);
        self.grants.get_mut(owner).filter(may)?.kept_from(now)
    }

    /// The head cannot use the kept grant, which therefore leaves. If the head may have a queue position, its
    /// request goes with that leave.
    pub(super) fn make_way(
        &mut self,
        request: &Request,
        inbox: bool,
        now: Moment,
        fresh: impl FnOnce() -> u64,
    ) -> Step {
        let Some(leaving) = self.lets_go(now) else { return Step::Park(now) };
        self.leaves.in_flight += 1;
        if request.once || request.from.is_some() || request.most.is_some() || !inbox || self.ask.is_some() {
            return Step::Leave(leaving);
        }
        let threads = self.line.waiters.len();
        let ask = self.new_ask(fresh(), request, now);
        Step::LeaveAndAsk(leaving, ask.send(AcquireMode::Wait, threads, now))
    }

    /// Stops keeping the grant, and returns its release.
    fn lets_go(&mut self, now: Moment) -> Option<PendingRelease> {
        let owner = self.idle()?.owner;
        let grant = self.grants.remove(owner)?;
        self.was_kept(&grant, now);
        Some(PendingRelease::of(&grant, Moment::default(), now))
    }

    /// A grant that may have been kept leaves: records whether keeping it has paid.
    pub(super) fn was_kept(&mut self, grant: &Grant, now: Moment) {
        let Some(keep) = grant.keep() else { return };
        if keep.used {
            self.past.habit = Habit::default();
        } else if keep.wanted.is_some() {
            self.past.habit.was_not_used(now);
        }
    }

    /// A message: another caller wants the grant of `owner`. If no thread holds it, it leaves.
    pub(crate) fn is_wanted(&mut self, owner: u64, now: Moment) -> Effects {
        if let Some(ask) = self.ask_of(owner) {
            ask.wanted.get_or_insert(now);
        }
        if let Some(grant) = self.grant_mut(owner) {
            grant.is_wanted(now);
        }
        if self.idle().is_none_or(|grant| grant.owner != owner) {
            return Effects::default();
        }
        self.leaves_now(KeptEnd::Wanted, now)
    }

    /// The hold `ticket` is about to end for good: its grant must not be kept.
    pub(crate) fn not_to_be_kept(&mut self, ticket: Ticket, now: Moment) {
        let owner = self.holds.get(ticket).map(|hold| hold.owner);
        if let Some(grant) = owner.and_then(|owner| self.grant_mut(owner)) {
            grant.is_wanted(now);
        }
    }

    /// Messages may have been missed, or will be: the kept grant leaves.
    pub(crate) fn deaf(&mut self, now: Moment) -> Effects {
        if self.exclusive() {
            self.grants.iter_mut().for_each(|grant| grant.is_wanted(now));
            if let Some(ask) = &mut self.ask {
                ask.wanted.get_or_insert(now);
            }
        }
        self.leaves_some_time(KeptEnd::Unheard, now)
    }

    /// A thread of this process wants the lock's other mode.
    pub(crate) fn makes_way(&mut self, now: Moment) -> Effects {
        self.leaves_now(KeptEnd::Replaced, now)
    }

    fn leaves_now(&mut self, why: KeptEnd, now: Moment) -> Effects {
        let Effects { background: leave, dropped, .. } = self.leaves_some_time(why, now);
        self.leaves.in_flight += u16::from(leave.is_some());
        Effects { leave, dropped, ..Effects::default() }
    }

    fn leaves_some_time(&mut self, why: KeptEnd, now: Moment) -> Effects {
        let background = self.lets_go(now);
        Effects { dropped: background.as_ref().map(|l| (l.owner, why)), background, ..Effects::default() }
    }

    /// The renewal thread looks at `owner`: if it is a kept grant whose time is up, and no thread holds it,
    /// it leaves.
    pub(crate) fn kept_long_enough(&mut self, owner: u64, now: Moment) -> Effects {
        let over = |grant: &Grant| {
            grant.owner == owner && grant.keep().and_then(|keep| keep.until).is_some_and(|until| until <= now)
        };
        match self.idle().is_some_and(over) {
            true => self.leaves_some_time(KeptEnd::Expired, now),
            false => Effects::default(),
        }
    }
}

impl Grant {
    /// Starts the time for which it is kept, unless that has started. Returns its end.
    pub(super) fn kept_from(&mut self, now: Moment) -> Option<Moment> {
        let linger = self.terms.linger.into();
        let keep = self.keep_mut()?;
        Some(*keep.until.get_or_insert(now.after(linger)))
    }
}
