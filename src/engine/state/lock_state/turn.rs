//! A waiting thread's turn: what it has to do next, and what the head does with a grant that has arrived.

use std::cmp::Reverse;

use super::ask::{InFlight, PendingAcquire, Phase, Source};
use super::{Acquired, Behind, LockState, Request, Step, Terms, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::{Grant, Joining, KEEPS, Keep, Reuse, Standing, Validity};
use crate::kind::Sharing;

impl LockState {
    /// Returns what the waiting thread must do. `inbox`: grants can be received; `over`: its time is up, so
    /// that only what is already there counts; `fresh` creates a new owner number.
    pub(crate) fn turn(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        over: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Step {
        if let Some(hold) = self.holds.get(ticket) {
            return Step::In(hold.acquired(self.grant(hold.owner)), None);
        }
        if self.closed {
            return Step::Closed;
        }
        let nap = now.after(self.shape.heartbeat);
        let wait = |until: Moment| if over { Step::GiveUp } else { Step::Park(until.min(nap)) };
        let first = self.line.waiters.front().filter(|w| w.ticket == ticket);
        let first = first.map(|w| (w.request.clone(), w.attempted));
        let Some((request, attempted)) = first else { return wait(nap) };
        if let Some(until) = self.in_the_way(now).map(|t| t.validity.until) {
            // A hold that came back from a wait for a condition may find that the head has a queue position,
            // which must be kept meanwhile.
            match self.ask.as_ref().filter(|a| a.is_queued() && a.in_flight.is_none() && !over) {
                Some(ask) if ask.again_at > now => return wait(until.min(ask.again_at)),
                Some(_) => {}
                None => return if request.once { Step::Busy } else { wait(until) },
            }
        }
        if self.exclusive() && self.leaves.in_flight > u16::from(self.leaves.behind == Behind::Goes) {
            let may_go = self.leaves.behind == Behind::MayGo && !over;
            return if may_go { Step::Behind(nap) } else { wait(nap) };
        }
        if self.idle().is_some() {
            // Kept for holds on other terms, or for too long.
            return if over { Step::GiveUp } else { self.make_way(&request, inbox, now, fresh) };
        }
        if self.ask.is_none()
            && let Some(acquired) = self.join(ticket, &request, now)
        {
            self.line.take_first();
            return Step::In(acquired, self.head());
        }
        if self.ask.is_none() && self.stands_behind(&request) {
            return if request.once { Step::Busy } else { wait(nap) };
        }
        if self.ask.as_ref().is_some_and(|a| a.in_flight.is_some()) {
            return wait(nap);
        }
        if let Some(turn) = self.turn_ask_to(&request, now, over) {
            return turn;
        }
        if let Some(turn) = self.use_grant(ticket, &request, now, over) {
            return turn;
        }
        // Even if its time is up: a rejection says more.
        if let Some(PendingAcquire { phase: Phase::Refused(why), .. }) = self.ask.as_deref() {
            return Step::Refused(why.clone());
        }
        if over { Step::GiveUp } else { self.ask_for(&request, attempted, now, inbox, fresh) }
    }

    /// Turns the pending acquire, if it was one for other terms, into the head's. Returns the step that the
    /// head has to take first, if there is one.
    fn turn_ask_to(&mut self, request: &Request, now: Moment, over: bool) -> Option<Step> {
        let ask = self.ask.as_mut().filter(|ask| !ask.sought.is(request))?;
        if over {
            return Some(Step::GiveUp);
        }
        let urgency = |terms: &Terms| (Reverse(terms.class), terms.priority);
        if urgency(&request.terms) != urgency(&ask.sought.terms) {
            // An arrival counts within its class and priority only.
            let arrival = std::mem::take(&mut ask.arrival);
            if urgency(&request.terms) > urgency(&ask.sought.terms) && !arrival.is_empty() {
                self.past.displaced.push((ask.sought.terms.clone(), arrival));
            }
        }
        if ask.is_there() || ask.is_refused() {
            let leaving = ask.leaving(now);
            self.ask = None;
            self.leaves.in_flight += 1;
            return Some(Step::Leave(leaving));
        }
        ask.turns_to(request, now);
        None
    }

    /// Decides on the head's request: to send it now or later, or not again if its single attempt was made.
    fn ask_for(
        &mut self,
        request: &Request,
        attempted: bool,
        now: Moment,
        inbox: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Step {
        if attempted {
            return Step::Busy;
        }
        let nap = now.after(self.shape.heartbeat);
        let (threads, last) = (self.line.waiters.len(), self.line.last);
        if self.ask.is_none()
            && let Some(share) = self.share_to_extend(request, now)
        {
            if share.share_in_flight() {
                return Step::Park(nap);
            }
            return Step::Ask(share.asks(request, threads, last, now));
        }
        if self.ask.is_none() {
            self.new_ask(fresh(), request, now);
        }
        let Some(ask) = &mut self.ask else { return Step::Park(nap) };
        if ask.again_at > now && !request.once {
            return Step::Park(ask.again_at.min(nap));
        }
        let how = self.waits_for.mode(ask, request.once, inbox);
        let mut asking = ask.send(how, threads, now);
        asking.most = request.most;
        if let Some(head) = self.line.waiters.front_mut() {
            head.attempted = request.once;
        }
        Step::Ask(asking)
    }

    /// What the head does with a grant that has arrived: use it, renew it first, or give it back.
    fn use_grant(&mut self, ticket: Ticket, request: &Request, now: Moment, over: bool) -> Option<Step> {
        let joined = self.joined();
        let ask = self.ask.as_mut()?;
        let Phase::Granted(got) = &ask.phase else { return None };
        let lease = request.terms.lease;
        let left = got.valid_until.since(now);
        let granted = if got.by == Source::Message { got.lease } else { lease };
        // A pass-through kind has admitted the caller, however long ago: there is no lease to renew.
        let usable = self.shape.sharing == Sharing::PassThrough
            || left > granted / 2
            || (got.confirmed && !left.is_zero());
        if !usable {
            if over {
                return Some(Step::GiveUp);
            }
            if left.is_zero() {
                // It may still be ours: if so, asking again under the same id returns it.
                ask.is_gone(now);
                // A single attempt does not ask again: a thread that gives up now has to leave.
                ask.doubt.begins();
                return None;
            }
            ask.in_flight = Some(InFlight { sent: now, unheard: false });
            return Some(Step::Confirm(ask.owner, lease));
        }
        let mut grant = Grant {
            value: got.value,
            since: now,
            validity: Validity::new(got.valid_until, ask.doubt),
            standing: if joined && ask.wanted.is_some() { Standing::ClosedToOthers } else { Standing::Open },
            // No other thread may join a grant beside its thread's hold in another mode.
            reuse: if joined && request.from.is_none() {
                Reuse::Shared(Joining { open_since: Some(got.seen), ..Joining::default() })
            } else if ask.owner & KEEPS != 0 {
                Reuse::Kept(Keep { wanted: ask.wanted, ..Keep::default() })
            } else {
                Reuse::HandOff
            },
            ..Grant::new(ask.owner, got.number, request.terms.clone())
        };
        // What only a message says is renewed soon, which confirms it.
        if got.by == Source::Message || (got.lease < lease && request.terms.fixed) {
            grant.begins_for(got.lease, got.since);
        }
        let via = got.via;
        self.ask = None;
        self.line.take_first();
        if self.shape.sharing == Sharing::PassThrough {
            let Grant { owner, value, .. } = grant;
            let acquired = Acquired { ticket, owner, token: grant.token(), value, via, count: 1 };
            return Some(Step::In(acquired, self.head()));
        }
        let acquired = self.holds.take(&mut grant, ticket, request.holder, via);
        self.grants.insert(grant);
        // Others may be admitted beside it: the next head asks.
        if !self.exclusive() {
            return Some(Step::In(acquired, self.head()));
        }
        self.line.have_places();
        Some(Step::In(acquired, None))
    }
}
