//! One lock in this process: who waits, who holds, and what is asked of Redis for them.
//!
//! A plain state machine: each method is an event, its return value says what is to be done. No
//! I/O, no clock of its own, no threads, so that it can be model-checked as it is. Whoever drives
//! it ([`super::acquire`] and its fellows) holds the cell's mutex during a step and never during
//! I/O.
//!
//! # The protocol in this process
//!
//! - Waiting threads form one FIFO. Only its **head** talks to Redis, under one owner id, the
//!   **ask**, which belongs to the gate and not to the thread: a head that gives up leaves it,
//!   with whatever it was granted meanwhile, to the next.
//! - What Redis granted is a **tenure**; threads take turns in it as **holds**. Its id is closed
//!   the moment its `leave` is sent, and is never used again.
//! - A released exclusive tenure goes to the next local thread while its slice lasts; after that
//!   one `leave(next)` lets the other processes in and puts this one at the end of their queue.
//!
//! # The rules of safety kept here
//!
//! - *Numbers filter messages*: a grant numbered no higher than the last number that a busy answer
//!   told was overtaken while it lay unread. It is dropped.
//! - *Validity from before the send*: an answer counts from when its request was about to be sent;
//!   a message, which has no request of its own, from the last ask that was answered busy, as the
//!   grant cannot be older than that.
//! - *A grant is never dropped*: `give_up` looks for it in the same step that leaves the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::tenure::{Tenure, drift};
use crate::clock::Moment;
use crate::kind::{Reentry, Sharing};
use crate::observe::{Loss, Way};

/// How long after a hold should have lapsed we look: Redis's millisecond, and a little.
const SLACK: Duration = Duration::from_millis(2);
/// The first pause after a request that Redis did not take.
const BACKOFF: Duration = Duration::from_millis(20);
/// The longest such pause.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// What a lock of this kind, on this client, is like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) sharing: Sharing,
    pub(crate) reentry: Reentry,
    /// How long a tenure may be handed on.
    pub(crate) slice: Duration,
    /// The longest pause between two looks at anything.
    pub(crate) beat: Duration,
}

/// Who the holder is: for re-entry, and for `is_held_by_current_thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Taker {
    /// A thread, by its number in this process.
    Thread(u64),
    /// Whoever has the owned guard.
    Guard,
}

/// On what terms a hold is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// The lease ends by itself and is never renewed.
    pub(crate) fixed: bool,
    pub(crate) fair: bool,
    /// For the kind's rule.
    pub(crate) args: Arc<str>,
}

impl Terms {
    /// Whether a tenure on these terms can go on as one on those, without Redis.
    pub(crate) fn goes_on_as(&self, next: &Terms) -> bool {
        self == next && !self.fixed && !self.fair
    }
}

/// One thread's wish to get in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) taker: Taker,
    /// The thread that asks, even for an owned guard.
    pub(crate) thread: u64,
    pub(crate) terms: Terms,
    /// One attempt, no queueing.
    pub(crate) once: bool,
}

/// A place in a gate: of a waiting thread, later of its hold.
pub(crate) type Ticket = u64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    ticket: Ticket,
    request: Request,
    /// Its one attempt was made.
    attempted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    ticket: Ticket,
    taker: Taker,
    owner: u64,
    count: usize,
    token: u64,
    way: Way,
}

/// What this process asks of Redis for the head of its waiting threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ask {
    owner: u64,
    /// As last sent; the next head's replace the place's.
    terms: Terms,
    /// A request under this id is on its way.
    in_flight: bool,
    /// When the last one was about to be sent.
    sent: Moment,
    /// What a grant told by message counts from: see the rules above.
    base: Option<Moment>,
    /// Redis has answered busy.
    asked: bool,
    /// Redis keeps a place for it.
    queued: bool,
    /// Where in the order it came, to be told when the place was lost.
    arrival: String,
    /// The highest last number that a busy answer told.
    floor: u64,
    /// When asking again makes sense.
    again_at: Moment,
    unsettled: bool,
    /// See [`Tenure::least`].
    least: Duration,
    grant: Option<Grant>,
    refused: Option<String>,
    failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Grant {
    number: u64,
    valid_until: Moment,
    way: Way,
    /// Its lease was set anew since it was granted.
    confirmed: bool,
}

/// The gate. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    shape: Shape,
    waiters: VecDeque<Waiter>,
    holds: Vec<Hold>,
    tenures: Vec<Tenure>,
    ask: Option<Ask>,
    /// Leaves of this gate that are on their way.
    leaving: usize,
    tickets: u64,
    /// Redis has not answered since.
    trouble: Option<Moment>,
    closed: bool,
}

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Try,
    Wait,
    Keep,
}

/// A request to send for the head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asking {
    pub(crate) owner: u64,
    pub(crate) how: How,
    pub(crate) terms: Terms,
    pub(crate) arrival: String,
    /// How many threads wait behind it, itself included.
    pub(crate) threads: usize,
    /// The place was never there before, so the inbox must be ready to hear of it.
    pub(crate) enqueues: bool,
}

/// A hold, as its guard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grip {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) way: Way,
    /// Not a re-entry.
    pub(crate) outermost: bool,
}

/// An owner that is to leave Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    pub(crate) owner: u64,
    pub(crate) unsettled: bool,
    /// Until when it was valid; leaving later changes nothing here.
    pub(crate) valid_until: Moment,
    pub(crate) lease: Duration,
}

/// Why a thread did not even begin to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Closed,
    /// This thread's own hold is lost; its guard must go first.
    LeaseLost(Loss),
    WouldDeadlock,
    /// One attempt only, and a local thread is ahead.
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entered {
    Again(Grip),
    Waits(Ticket),
}

/// What the thread with this ticket is to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// It has its hold; wake the new head, if any.
    In(Grip, Option<Ticket>),
    /// Send this and report by [`Gate::answered`].
    Ask(Asking),
    /// The grant is too old to be used as it is: renew it and report by [`Gate::confirmed`].
    Confirm(u64, Duration),
    /// Leave, report by [`Gate::left`], come back: what was granted is not what this head wants.
    Leave(Leaving),
    /// Sleep, at most until then.
    Park(Moment),
    /// One attempt, and it was busy.
    Busy,
    /// The rule said never.
    Refused(String),
    Closed,
    /// The caller's time is up, and it has nothing.
    Over,
}

/// What Redis said to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    In {
        number: u64,
        left: Duration,
    },
    Busy {
        floor: u64,
        again: Duration,
        arrival: String,
    },
    /// No place: ask anew, under the same id.
    Gone,
    /// This id is barred: ask anew, under another.
    Over,
    Refused(String),
    /// It was refused before it could do anything, and asking again may help; or it never left.
    Failed,
    /// It may have run, now or later.
    Unanswered,
}

/// What is to be done after an event, by whoever brought it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Then {
    pub(crate) wake: Option<Ticket>,
    /// Leave Redis now, and report by [`Gate::left`].
    pub(crate) leave: Option<Leaving>,
    /// Leave Redis some time, nobody waits for it.
    pub(crate) background: Option<Leaving>,
    /// This owner's tenure was just lost: tell its guards, the observer, the renewer.
    pub(crate) lost: Option<(u64, Loss)>,
}

/// How a hold ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// Others hold it still, or this thread does.
    Held,
    /// The next local thread has it now: wake it.
    HandedOn(Ticket),
    /// It was lost before; what is to be done where that was found out just now.
    Lost(Loss, Then),
    /// Send this leave, with the ask for the next head if there is one, and report by
    /// [`Gate::left`] and [`Gate::answered`].
    Leave(Leaving, Option<Asking>),
}

/// How a wait ends without a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GaveUp {
    /// It does not: the hold came in this instant.
    In(Grip),
    Out(Then),
}

/// What a renewal was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    Left(Duration),
    NotInside,
    Unanswered,
    Failed,
}

impl Gate {
    pub(crate) fn new(shape: Shape) -> Self {
        Gate {
            shape,
            waiters: VecDeque::new(),
            holds: Vec::new(),
            tenures: Vec::new(),
            ask: None,
            leaving: 0,
            tickets: 0,
            trouble: None,
            closed: false,
        }
    }

    fn exclusive(&self) -> bool {
        self.shape.sharing == Sharing::Exclusive
    }

    fn head(&self) -> Option<Ticket> {
        self.waiters.front().map(|w| w.ticket)
    }

    fn tenure(&self, owner: u64) -> Option<&Tenure> {
        self.tenures.iter().find(|t| t.owner == owner)
    }

    fn tenure_mut(&mut self, owner: u64) -> Option<&mut Tenure> {
        self.tenures.iter_mut().find(|t| t.owner == owner)
    }

    /// The tenure that keeps other threads of this process out.
    fn in_the_way(&self, now: Moment) -> Option<&Tenure> {
        self.tenures.iter().find(|t| self.exclusive() && t.loss(now).is_none())
    }

    fn grip(&self, hold: &Hold, outermost: bool) -> Grip {
        Grip { ticket: hold.ticket, owner: hold.owner, token: hold.token, way: hold.way, outermost }
    }

    // ---- coming in -------------------------------------------------------------------------

    /// A thread wants in: it holds already, takes its place, or is refused at once.
    pub(crate) fn enter(&mut self, request: Request, now: Moment) -> Result<Entered, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        let mine = self.holds.iter().position(|h| h.taker == Taker::Thread(request.thread));
        if let Some(i) = mine.filter(|_| self.shape.reentry != Reentry::Another) {
            let hold = &self.holds[i];
            if let Some(loss) = self.tenure(hold.owner).and_then(|t| t.loss(now)) {
                return Err(Refusal::LeaseLost(loss));
            }
            if self.shape.reentry == Reentry::Refuse || request.taker == Taker::Guard {
                return Err(Refusal::WouldDeadlock);
            }
            self.holds[i].count += 1;
            return Ok(Entered::Again(self.grip(&self.holds[i], false)));
        }
        if request.once && (!self.waiters.is_empty() || self.in_the_way(now).is_some()) {
            return Err(Refusal::Busy);
        }
        self.tickets += 1;
        self.waiters.push_back(Waiter { ticket: self.tickets, request, attempted: false });
        Ok(Entered::Waits(self.tickets))
    }

    /// What the waiting thread is to do. `inbox`: grants can be heard; `over`: its time is up, so
    /// that only what is already there counts; `fresh` makes a new owner number.
    pub(crate) fn turn(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        over: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Turn {
        if let Some(hold) = self.holds.iter().find(|h| h.ticket == ticket) {
            return Turn::In(self.grip(hold, true), None);
        }
        if self.closed {
            return Turn::Closed;
        }
        let nap = now.after(self.shape.beat);
        let wait = |until: Moment| if over { Turn::Over } else { Turn::Park(until.min(nap)) };
        let Some(Waiter { request, attempted, .. }) =
            self.waiters.front().filter(|w| w.ticket == ticket).cloned()
        else {
            return wait(nap);
        };
        if let Some(tenure) = self.in_the_way(now) {
            return if request.once { Turn::Busy } else { wait(tenure.valid_until) };
        }
        if self.exclusive() && self.leaving > 0 {
            return wait(nap);
        }
        if self.ask.as_ref().is_some_and(|a| a.in_flight) {
            return wait(nap);
        }
        if let Some(turn) = self.use_grant(ticket, &request, now, over) {
            return turn;
        }
        if over {
            return Turn::Over;
        }
        let threads = self.waiters.len();
        let ask = self.ask.get_or_insert_with(|| Ask::new(fresh(), request.terms.clone(), now));
        if let Some(why) = ask.refused.clone() {
            return Turn::Refused(why);
        }
        // Somebody else's terms in the queue: let Redis know ours.
        if ask.terms != request.terms {
            ask.again_at = now;
        }
        if attempted {
            return Turn::Busy;
        }
        if ask.again_at > now && !request.once {
            return Turn::Park(ask.again_at.min(nap));
        }
        let how = if ask.queued {
            How::Keep
        } else if request.once || !(inbox || ask.asked) {
            // What may be answered at once needs no inbox.
            How::Try
        } else {
            How::Wait
        };
        let asking = ask.send(how, request.terms, threads, now);
        if let Some(head) = self.waiters.front_mut() {
            head.attempted = request.once;
        }
        Turn::Ask(asking)
    }

    /// What a head does with a grant that has come: use it, renew it first, or give it back.
    fn use_grant(&mut self, ticket: Ticket, request: &Request, now: Moment, over: bool) -> Option<Turn> {
        let ask = self.ask.as_mut()?;
        let grant = ask.grant.as_mut()?;
        if ask.terms.args != request.terms.args {
            if over {
                return Some(Turn::Over);
            }
            let ask = self.ask.take()?;
            self.leaving += 1;
            return Some(Turn::Leave(ask.leaving(now)));
        }
        let lease = request.terms.lease;
        let left = grant.valid_until.since(now);
        // Made on other terms, perhaps of a head that gave up, it may last too long.
        let fresh = left > lease / 2 && left <= lease;
        let usable = fresh || (grant.confirmed && !left.is_zero());
        if !usable {
            if over {
                return Some(Turn::Over);
            }
            if left.is_zero() {
                // Perhaps it is ours still: the same id asks, and a hold is answered as one.
                ask.grant = None;
                ask.queued = false;
                // One attempt does not ask again: whoever gives this up has to leave.
                ask.unsettled = true;
                ask.again_at = now;
                return None;
            }
            ask.in_flight = true;
            ask.sent = now;
            ask.terms = request.terms.clone();
            return Some(Turn::Confirm(ask.owner, lease));
        }
        let tenure = Tenure {
            owner: ask.owner,
            number: grant.number,
            terms: request.terms.clone(),
            valid_until: grant.valid_until,
            since: now,
            wanted_until: Moment::default(),
            least: ask.least,
            hand_overs: 0,
            unsettled: ask.unsettled,
            lost: None,
            holds: 0,
        };
        let way = grant.way;
        self.ask = None;
        self.waiters.pop_front();
        self.tenures.push(tenure);
        let grip = self.take_hold(ticket, request.taker, self.tenures.len() - 1, way);
        // Others may get in beside it: the next head asks.
        let next = if self.exclusive() { None } else { self.head() };
        Some(Turn::In(grip, next))
    }

    fn take_hold(&mut self, ticket: Ticket, taker: Taker, tenure: usize, way: Way) -> Grip {
        let tenure = &mut self.tenures[tenure];
        tenure.holds += 1;
        let hold = Hold { ticket, taker, owner: tenure.owner, count: 1, token: tenure.token(), way };
        let grip = self.grip(&hold, true);
        self.holds.push(hold);
        grip
    }

    // ---- what Redis says -------------------------------------------------------------------

    /// The answer to the ask of `owner`, whoever sent it.
    pub(crate) fn answered(&mut self, owner: u64, answer: Answer, now: Moment) -> Then {
        let alone = self.waiters.is_empty();
        let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) else {
            return Then::default();
        };
        ask.in_flight = false;
        if answer == Answer::Over {
            self.ask = None;
            return Then { wake: self.head(), ..Then::default() };
        }
        let heard = !matches!(answer, Answer::Failed | Answer::Unanswered);
        match answer {
            Answer::In { number, left } => {
                let most = drift(left.max(ask.terms.lease));
                let valid_until = ask.sent.after(left.min(ask.least)).before(most);
                // Behind a message it is the same grant, known more exactly.
                let way = if ask.asked { Way::Granted } else { Way::Free };
                ask.grant = Some(Grant { number, valid_until, way, confirmed: false });
                ask.queued = false;
            }
            Answer::Busy { floor, again, arrival } => {
                ask.floor = ask.floor.max(floor);
                ask.queued = !arrival.is_empty();
                ask.asked = true;
                ask.base = Some(ask.sent);
                ask.arrival = arrival;
                // Not in the queue: it was a first try, and now wants a place.
                ask.again_at = if ask.queued { now.after(again).after(SLACK) } else { now };
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
            Answer::Failed | Answer::Over => {}
        }
        if heard {
            ask.failures = 0;
            self.trouble = None;
        } else {
            ask.failures += 1;
            ask.again_at = now.after(LONGEST_BACKOFF.min(BACKOFF * ask.failures));
            self.trouble.get_or_insert(now);
        }
        if alone {
            return Then { leave: self.abandon(now), ..Then::default() };
        }
        Then { wake: self.head(), ..Then::default() }
    }

    /// A request of this ask was sent twice before it was answered: a copy may be on its way yet.
    pub(crate) fn unsettle(&mut self, owner: u64) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
        }
    }

    /// An ask has been on its way for `limit`: whether it is busy, nobody can say.
    pub(crate) fn is_unheard(&self, now: Moment, limit: Duration) -> bool {
        self.ask.as_ref().is_some_and(|a| a.in_flight && now.since(a.sent) >= limit)
    }

    /// It was busy, and has no place in the queue: it is asked for again then.
    pub(crate) fn try_later(&mut self, owner: u64, at: Moment) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner && !a.in_flight && !a.queued) {
            ask.again_at = ask.again_at.max(at);
        }
    }

    /// The ask was not sent, since the inbox is not ready: it is for `again_at`, or when woken.
    pub(crate) fn postponed(&mut self, owner: u64, again_at: Moment) {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.in_flight = false;
            ask.again_at = again_at;
        }
    }

    /// The inbox is (again) there: what was missed meanwhile is asked for.
    pub(crate) fn ask_again(&mut self, now: Moment) -> Then {
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
        }
        Then { wake: self.head(), ..Then::default() }
    }

    /// A message: `owner` was granted the lock.
    pub(crate) fn granted(&mut self, owner: u64, number: u64, lease: Duration) -> Then {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner)
            && ask.grant.is_none()
            && number > ask.floor
        {
            let base = ask.base.unwrap_or(ask.sent);
            let valid_until = base.after(lease.min(ask.least)).before(drift(lease));
            ask.grant = Some(Grant { number, valid_until, way: Way::Granted, confirmed: false });
            ask.queued = false;
            return Then { wake: self.head(), ..Then::default() };
        }
        Then::default()
    }

    /// A message: `owner` will never be let in.
    pub(crate) fn refused(&mut self, owner: u64, why: String) -> Then {
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.queued = false;
            ask.refused = Some(why);
            return Then { wake: self.head(), ..Then::default() };
        }
        Then::default()
    }

    /// The answer to [`Turn::Confirm`].
    pub(crate) fn confirmed(&mut self, owner: u64, answer: Renewal, now: Moment) -> Then {
        let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) else {
            return Then::default();
        };
        ask.in_flight = false;
        match (answer, &mut ask.grant) {
            // Too late: the hold may have lapsed and, by a late copy of the ask, come again under
            // a new number since. The same id asks, and is told the number.
            (_, Some(grant)) if grant.valid_until <= now && answer != Renewal::NotInside => {
                if answer == Renewal::Unanswered {
                    ask.unsettled = true;
                    ask.least = ask.least.min(ask.terms.lease);
                }
                ask.grant = None;
                ask.again_at = now;
            }
            (Renewal::Left(left), Some(grant)) => {
                let left = left.min(ask.least);
                grant.valid_until = ask.sent.after(left).before(drift(ask.terms.lease));
                grant.confirmed = true;
            }
            // Over, by Redis's own word: this id is done with.
            (Renewal::NotInside, _) => {
                let unsettled = ask.unsettled;
                let background = self.ask.take().filter(|_| unsettled).map(|a| a.leaving(now));
                return Then { wake: self.head(), background, ..Then::default() };
            }
            // What is left of it is still ours; of an inherited one perhaps less than it was.
            (Renewal::Unanswered, Some(grant)) => {
                let lease = ask.terms.lease;
                ask.unsettled = true;
                ask.least = ask.least.min(lease);
                grant.valid_until = grant.valid_until.min(ask.sent.after(lease).before(drift(lease)));
                grant.confirmed = true;
            }
            (Renewal::Failed, Some(grant)) => grant.confirmed = true,
            (_, None) => {}
        }
        if self.waiters.is_empty() {
            return Then { leave: self.abandon(now), ..Then::default() };
        }
        Then { wake: self.head(), ..Then::default() }
    }

    /// The answer to a renewal of a tenure, sent at `sent`. One without an answer comes with a
    /// [`doubt`](Gate::doubt).
    pub(crate) fn renewed(&mut self, owner: u64, sent: Moment, answer: Renewal, now: Moment) -> Then {
        let Some(tenure) = self.tenure_mut(owner) else { return Then::default() };
        match answer {
            // Once lost, lost for good: an answer that comes late changes nothing.
            Renewal::Left(left) if tenure.loss(now).is_none() => tenure.extended(sent, left),
            Renewal::NotInside => return self.lose(owner, Loss::Verdict, now),
            Renewal::Unanswered => tenure.unsettled = true,
            Renewal::Left(_) | Renewal::Failed => {}
        }
        self.expire(owner, now)
    }

    /// A renewal for `lease`, sent at `sent`, had no answer, or was sent twice to get one: a copy of it
    /// may run at any time yet.
    pub(crate) fn doubt(&mut self, owner: u64, sent: Moment, lease: Duration) {
        if let Some(tenure) = self.tenure_mut(owner) {
            tenure.doubt(sent, lease);
        }
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.unsettled = true;
            ask.least = ask.least.min(lease);
        }
    }

    /// `renew_for` asked for this much: later renewals do not shorten it.
    pub(crate) fn wanted(&mut self, owner: u64, until: Moment) {
        if let Some(tenure) = self.tenure_mut(owner) {
            tenure.wanted_until = until;
        }
    }

    /// The local deadline of a tenure, looked at: nothing where it is not over.
    pub(crate) fn expire(&mut self, owner: u64, now: Moment) -> Then {
        match self.tenure(owner) {
            Some(t) if t.lost.is_none() && t.valid_until <= now => self.lose(owner, Loss::Deadline, now),
            _ => Then::default(),
        }
    }

    /// A tenure is over for `why`. Lost by the deadline is not lost in Redis: it leaves. Lost by
    /// Redis's own verdict, there is nothing to leave, unless a copy of its ask may come yet.
    pub(crate) fn lose(&mut self, owner: u64, why: Loss, now: Moment) -> Then {
        if self.ask.take_if(|a| a.owner == owner).is_some() {
            // Taken away before its thread saw that it was granted: this id is done with.
            return Then { wake: self.head(), ..Then::default() };
        }
        let Some(tenure) = self.tenure_mut(owner).filter(|t| t.lost.is_none()) else {
            return Then::default();
        };
        tenure.lost = Some(why);
        let background = (why == Loss::Deadline || tenure.unsettled).then(|| {
            tenure.unsettled = true;
            leaving_of(tenure, now)
        });
        Then { wake: self.head(), leave: None, background, lost: Some((owner, why)) }
    }

    // ---- going out -------------------------------------------------------------------------

    /// A guard of the hold `ticket` ends. `inbox`: the next head may be put into the queue.
    pub(crate) fn exit(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Exit {
        let Some(i) = self.holds.iter().position(|h| h.ticket == ticket) else { return Exit::Held };
        self.holds[i].count -= 1;
        if self.holds[i].count > 0 {
            return Exit::Held;
        }
        let owner = self.holds.swap_remove(i).owner;
        let then = self.expire(owner, now);
        let Some(t) = self.tenures.iter().position(|t| t.owner == owner) else { return Exit::Held };
        self.tenures[t].holds -= 1;
        let last = self.tenures[t].holds == 0;
        if let Some(loss) = self.tenures[t].lost {
            if last {
                self.tenures.swap_remove(t);
            }
            return Exit::Lost(loss, then);
        }
        if !last {
            return Exit::Held;
        }
        let next = self.waiters.front().map(|w| w.request.clone()).filter(|_| self.exclusive());
        if let Some(next) = &next
            && self.tenures[t].may_be_handed_to(&next.terms, self.shape.slice, now)
        {
            self.tenures[t].hand_overs += 1;
            let waiter = self.waiters.pop_front();
            let ticket = waiter.map_or(0, |w| w.ticket);
            self.take_hold(ticket, next.taker, t, Way::HandedOver);
            return Exit::HandedOn(ticket);
        }
        let tenure = self.tenures.swap_remove(t);
        self.leaving += 1;
        let threads = self.waiters.len();
        let asking = next.filter(|n| inbox && !n.once && self.ask.is_none()).map(|next| {
            let mut ask = Ask::new(fresh(), next.terms.clone(), now);
            let asking = ask.send(How::Wait, next.terms, threads, now);
            self.ask = Some(ask);
            asking
        });
        Exit::Leave(leaving_of(&tenure, now), asking)
    }

    /// A leave was answered, or is somebody else's business now.
    pub(crate) fn left(&mut self) -> Then {
        self.leaving = self.leaving.saturating_sub(1);
        Then { wake: self.head(), ..Then::default() }
    }

    /// A thread stops waiting. The lead goes to the next one, with the ask and all it was granted.
    pub(crate) fn give_up(&mut self, ticket: Ticket, now: Moment) -> GaveUp {
        if let Some(hold) = self.holds.iter().find(|h| h.ticket == ticket) {
            return GaveUp::In(self.grip(hold, true));
        }
        let was_head = self.head() == Some(ticket);
        self.waiters.retain(|w| w.ticket != ticket);
        if !was_head {
            return GaveUp::Out(Then::default());
        }
        if self.waiters.is_empty() {
            self.trouble = None;
            let leave = self.abandon(now);
            return GaveUp::Out(Then { leave, ..Then::default() });
        }
        // What was refused was refused to this head; the next one asks under an id of its own.
        let refused = self.ask.take_if(|a| a.refused.is_some() && !a.in_flight);
        if let Some(leave) = refused.filter(|a| a.unsettled).map(|a| a.leaving(now)) {
            return GaveUp::Out(Then { wake: self.head(), background: Some(leave), ..Then::default() });
        }
        if let Some(ask) = &mut self.ask {
            ask.again_at = ask.again_at.min(now);
        }
        GaveUp::Out(Then { wake: self.head(), ..Then::default() })
    }

    /// Nobody is left to want the ask: it leaves, unless Redis cannot know of it. One that is on
    /// its way stays until it is answered: then whoever sent it comes here again.
    fn abandon(&mut self, now: Moment) -> Option<Leaving> {
        if self.ask.as_ref().is_some_and(|a| a.in_flight) {
            return None;
        }
        let ask = self.ask.take()?;
        if !(ask.queued || ask.unsettled || ask.grant.is_some()) {
            return None;
        }
        self.leaving += 1;
        Some(ask.leaving(now))
    }

    /// The client closes: nobody comes in any more, all holds are lost. Returns what is to leave
    /// Redis.
    pub(crate) fn close(&mut self, now: Moment) -> Vec<Leaving> {
        self.closed = true;
        let mut leave = Vec::new();
        for tenure in &mut self.tenures {
            if tenure.lost.is_none() {
                leave.push(leaving_of(tenure, now));
                tenure.lost = Some(Loss::Closed);
            }
        }
        if let Some(ask) = self.ask.take()
            && (ask.in_flight || ask.queued || ask.unsettled || ask.grant.is_some())
        {
            leave.push(Leaving { unsettled: true, ..ask.leaving(now) });
        }
        leave
    }

    // ---- questions -------------------------------------------------------------------------

    /// How often this thread holds it, if its tenure is valid.
    pub(crate) fn hold_count(&self, thread: u64, now: Moment) -> usize {
        let mine = self.holds.iter().filter(|h| h.taker == Taker::Thread(thread));
        mine.filter(|h| self.tenure(h.owner).is_some_and(|t| t.loss(now).is_none())).map(|h| h.count).sum()
    }

    /// How many threads of this process wait.
    pub(crate) fn queued_threads(&self) -> usize {
        self.waiters.len()
    }

    /// The tenure of this owner, for its guards and the renewer.
    pub(crate) fn look(&self, owner: u64) -> Option<&Tenure> {
        self.tenure(owner)
    }

    /// Since when Redis has not answered this gate.
    pub(crate) fn trouble(&self) -> Option<Moment> {
        self.trouble
    }

    /// Whether this hold is there and its tenure valid.
    #[cfg(test)]
    pub(crate) fn holds_valid(&self, ticket: Ticket, now: Moment) -> bool {
        let hold = self.holds.iter().find(|h| h.ticket == ticket);
        hold.and_then(|h| self.tenure(h.owner)).is_some_and(|t| t.loss(now).is_none())
    }

    /// The owners of its tenures.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> Vec<u64> {
        self.tenures.iter().map(|t| t.owner).collect()
    }

    /// Nobody waits, nobody holds, nothing is on its way.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
            && self.holds.is_empty()
            && self.tenures.is_empty()
            && self.ask.is_none()
            && self.leaving == 0
    }
}

fn leaving_of(tenure: &Tenure, now: Moment) -> Leaving {
    Leaving {
        owner: tenure.owner,
        unsettled: tenure.unsettled,
        valid_until: tenure.valid_until,
        lease: tenure.renewal(now),
    }
}

impl Ask {
    fn new(owner: u64, terms: Terms, now: Moment) -> Self {
        Ask {
            owner,
            terms,
            in_flight: false,
            sent: now,
            base: None,
            asked: false,
            queued: false,
            arrival: String::new(),
            floor: 0,
            again_at: now,
            unsettled: false,
            least: Duration::MAX,
            grant: None,
            refused: None,
            failures: 0,
        }
    }

    /// It is about to be sent.
    fn send(&mut self, how: How, terms: Terms, threads: usize, now: Moment) -> Asking {
        self.in_flight = true;
        self.sent = now;
        // Until one is answered busy, a grant counts from the first ask sent.
        self.base.get_or_insert(now);
        self.terms = terms.clone();
        let enqueues = how == How::Wait && self.arrival.is_empty();
        Asking { owner: self.owner, how, terms, arrival: self.arrival.clone(), threads, enqueues }
    }

    fn leaving(&self, now: Moment) -> Leaving {
        let valid_until = self.grant.as_ref().map_or(now, |g| g.valid_until);
        Leaving { owner: self.owner, unsettled: self.unsettled, valid_until, lease: self.terms.lease }
    }
}
