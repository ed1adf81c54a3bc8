//! How holds and waits end: a guard is released, a thread gives up, the client closes.

use super::{
    AcquireMode, Behind, Effects, Exit, GaveUp, Grant, InLine, Leaves, LockState, OurHold, PendingRelease,
    Ticket,
};
use crate::clock::Moment;
use crate::engine::state::grant::Lost;
use crate::observe::{AcquiredVia, LossReason};

impl LockState {
    /// A guard of the hold `ticket` is released. `inbox`: the next head may be put into the queue.
    pub(crate) fn exit(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Exit {
        let Some(hold) = self.holds.get_mut(ticket) else { return Exit::Held };
        hold.count -= 1;
        let OurHold { owner, since, count, .. } = *hold;
        let then = self.expire(owner, now);
        if count > 0 {
            let loss = self.grant(owner).and_then(Grant::lost).map(|lost| lost.why);
            return loss.map_or(Exit::Held, |loss| Exit::Lost(loss, then));
        }
        self.holds.remove(ticket);
        let Some(grant) = self.grants.get_mut(owner) else { return Exit::Held };
        grant.holds -= 1;
        let last = grant.holds == 0;
        if let Some(&Lost { why: loss, remains, .. }) = grant.lost() {
            let removed = last.then(|| self.grants.remove(owner)).flatten().filter(|_| remains);
            let Some(grant) = removed else { return Exit::Lost(loss, then) };
            self.leaves.in_flight += 1;
            let leave = Some(PendingRelease::of(&grant, grant.stays_until(since), now));
            return Exit::Lost(loss, Effects { leave, ..then });
        }
        if !last {
            return Exit::Shared;
        }
        if let Some(next) = self.hand_on(owner, now, inbox) {
            return Exit::HandedOn(next);
        }
        if inbox && let Some(until) = self.keep(owner, now) {
            return Exit::Kept(owner, until);
        }
        let Some(grant) = self.grants.remove(owner) else { return Exit::Held };
        self.was_kept(&grant, now);
        self.leaves.in_flight += 1;
        let leaving = PendingRelease::of(&grant, grant.stays_until(since), now);
        // A hold that stays for its minimum time sends no leave that a request could go with.
        let asks = inbox && leaving.stays_until <= now && self.ask.is_none() && self.exclusive();
        let next = self.line.waiters.front().filter(|w| asks && !w.request.once).map(|w| w.request.clone());
        let threads = self.line.waiters.len();
        let asking = next.map(|next| self.new_ask(fresh(), &next, now).send(AcquireMode::Wait, threads, now));
        Exit::Leave(leaving, asking)
    }

    /// Gives the grant that no thread holds any more to the next thread here, if it may have it: as a local
    /// hand-off, or because the process may keep it.
    fn hand_on(&mut self, owner: u64, now: Moment, inbox: bool) -> Option<Ticket> {
        // A thread with a queue position waits for its turn there.
        if self.ask.is_some() || !self.exclusive() {
            return None;
        }
        let (next, grant) = (&self.line.waiters.front()?.request, self.grants.get_mut(owner)?);
        let handed_on = grant.may_be_handed_to(&next.terms, self.shape.local_handoff, now);
        let kept = inbox && next.terms.lingers() && grant.may_be_kept_for(&next.terms, now);
        if !handed_on && !kept {
            return None;
        }
        grant.kept_from(now);
        grant.goes_to(&next.terms, !handed_on);
        let InLine { ticket, request, .. } = self.line.take_first()?;
        self.holds.take(grant, ticket, request.holder, AcquiredVia::HandedOff);
        Some(ticket)
    }

    /// Releases one of several guards of a hold whose grant is valid: only their count changes. Otherwise it
    /// returns `false` and has changed nothing, and [`exit`](Self::exit) is needed.
    pub(crate) fn ends_inner(&mut self, ticket: Ticket, now: Moment) -> bool {
        let Some(hold) = self.holds.get_mut(ticket).filter(|hold| hold.count > 1) else { return false };
        let valid = self.grants.get(hold.owner).is_some_and(|grant| grant.loss(now).is_none());
        hold.count -= u32::from(valid);
        valid
    }

    /// A leave is about to be written, and its reply may be read by whoever uses the connection next. Returns
    /// `false` if a thread here waits for it.
    pub(crate) fn leaves_unread(&mut self) -> bool {
        let alone = self.exclusive() && self.leaves.in_flight == 1;
        let unread = alone && self.line.waiters.is_empty() && self.ask.is_none() && !self.closed;
        self.leaves.behind = if unread { Behind::MayGo } else { Behind::No };
        unread
    }

    /// The head's request goes behind the leave whose reply is unread.
    pub(crate) fn goes_behind(&mut self) {
        self.leaves.behind = Behind::Goes;
    }

    /// A leave was answered, or has become another thread's task.
    pub(crate) fn left(&mut self) -> Effects {
        self.leaves = Leaves { in_flight: self.leaves.in_flight.saturating_sub(1), ..Leaves::default() };
        self.wakes_head()
    }

    /// A thread stops waiting. If it was the head, the next thread continues with the pending acquire, and
    /// with whatever that was granted.
    pub(crate) fn give_up(&mut self, ticket: Ticket, now: Moment) -> GaveUp {
        if let Some(hold) = self.holds.get(ticket) {
            return GaveUp::In(hold.acquired(self.grant(hold.owner)));
        }
        let was_head = self.head() == Some(ticket);
        self.line.waiters.retain(|w| w.ticket != ticket);
        if !was_head {
            return GaveUp::Out(Effects::default());
        }
        if self.line.waiters.is_empty() {
            self.trouble = None;
            return GaveUp::Out(self.goes_on(now));
        }
        // The rejection was meant for this head; the next one asks under an id of its own.
        let refused = self.ask.take_if(|a| a.is_refused() && a.in_flight.is_none());
        if let Some(leave) = refused.filter(|a| a.doubt.exists()).map(|a| a.leaving(now)) {
            return GaveUp::Out(Effects { background: Some(leave), ..self.wakes_head() });
        }
        if let Some(ask) = &mut self.ask {
            ask.again_at = ask.again_at.min(now);
        }
        GaveUp::Out(self.wakes_head())
    }

    /// The head continues with the pending acquire. If there is none, no thread wants that any more: it leaves,
    /// unless Redis cannot know of it. If it is in flight, it stays until it is answered; its sender then gets here
    /// again.
    pub(super) fn goes_on(&mut self, now: Moment) -> Effects {
        let alone = self.line.waiters.is_empty();
        let unwanted = self.ask.take_if(|ask| alone && ask.in_flight.is_none());
        let leave = unwanted.filter(|ask| ask.is_there()).map(|ask| ask.leaving(now));
        self.leaves.in_flight += u16::from(leave.is_some());
        Effects { leave, ..self.wakes_head() }
    }

    /// The client closes: no thread is admitted any more, and all holds are lost. Returns what must leave
    /// Redis.
    pub(crate) fn close(&mut self, now: Moment) -> Vec<PendingRelease> {
        self.closed = true;
        let mut leave = Vec::new();
        for grant in self.grants.iter_mut() {
            if grant.lost().is_none() {
                let since = self.holds.of_owner(grant.owner).next().and_then(|h| h.since);
                leave.push(PendingRelease::of(grant, grant.stays_until(since), now));
                grant.loses(LossReason::Closed);
            }
        }
        if let Some(idle) = self.idle().map(|grant| grant.owner) {
            // It has no hold whose release would remove it.
            self.grants.remove(idle);
        }
        if let Some(ask) = self.ask.take()
            && (ask.in_flight.is_some() || ask.is_there())
        {
            leave.push(PendingRelease { maybe_in_flight: true, ..ask.leaving(now) });
        }
        leave
    }
}
