//! Coming in: a call's way from its first look at the gate to its hold, or to the end of its time.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{Cell, Core};
use super::redis::failure::Failure;
use super::redis::requests;
use super::state::lock_state::{
    Answer, Asking, Entered, GaveUp, Grip, How, NOT_INSIDE, Refusal, Request, Ticket, Turn,
};
use super::{LEAVE_LIMIT, carry_out, held, leave_queue, lock, lost, modes, take_back};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::{Loss, Way};
use crate::percent::unescape;
use crate::sync::{Condvar, MutexGuard};
use crate::wait::Wait;

/// How long a request may be on its way before those behind it say that Redis does not answer.
const UNHEARD: Duration = Duration::from_millis(100);
/// How long a head waits for the inbox before it looks again, if nothing wakes it.
const INBOX_LIMIT: Duration = Duration::from_millis(250);

/// Gets `request` in, within `wait`: a hold, or `None` where it is busy and the time is up. `other` is the lock's
/// other mode, where that is to [stand behind](modes::tie) it.
pub(crate) fn acquire(
    cell: &Arc<Cell>,
    other: Option<&Arc<Cell>>,
    request: Request,
    wait: &Wait<'_>,
) -> Result<Option<Grip>, Error> {
    let entered = Moment::now();
    let outcome = come_in(cell, other, request, wait, entered);
    let forked = matches!(&outcome, Err(error) if error.kind() == ErrorKind::Forked);
    if !forked && !matches!(outcome, Ok(Some(_))) && cell.shared.watch.is_on() {
        let waited = Moment::now().since(entered);
        cell.shared.watch.tell(|o| o.not_acquired(cell.observed(), waited, outcome.as_ref().err()));
    }
    outcome
}

fn come_in(
    cell: &Arc<Cell>,
    other: Option<&Arc<Cell>>,
    request: Request,
    wait: &Wait<'_>,
    entered: Moment,
) -> Result<Option<Grip>, Error> {
    if wait.is_cancelled() {
        return Err(cell.error(Error::new(ErrorKind::Cancelled, "")));
    }
    loop {
        let grip = enter(cell, other, request.clone(), wait, entered)?;
        match grip {
            // Handed on while it was valid, but this thread woke too late for it.
            Some(grip)
                if matches!(grip.way, Way::HandedOver | Way::Joined)
                    && held::remaining(cell, grip.ticket).is_zero() =>
            {
                let limit = wait.limit(Moment::now(), cell.shared.config.command_timeout);
                take_back(cell, grip.ticket, limit);
            }
            grip => return Ok(grip),
        }
    }
}

/// Takes a place in the gate and waits there.
fn enter(
    cell: &Arc<Cell>,
    other: Option<&Arc<Cell>>,
    request: Request,
    wait: &Wait<'_>,
    entered: Moment,
) -> Result<Option<Grip>, Error> {
    // Before the gate says anything: in a forked child what it knows is the parent's.
    cell.shared.usable_at(entered).map_err(|e| cell.error(e))?;
    let mut core = lock(cell)?;
    let ticket = match core.gate.enter(request, entered) {
        Ok(Entered::Again(grip)) => return Ok(Some(grip)),
        Ok(Entered::Joined(grip, ahead)) => return joined(cell, core, grip, ahead, wait, entered).map(Some),
        Ok(Entered::Waits(ticket)) => ticket,
        Err(Refusal::Busy) => return Ok(None),
        Err(refusal) => return Err(cell.error(refusal.error())),
    };
    let mut seat = Seat { cell, other, ticket, taken: true, asking: None, sent: false };
    if let Some(token) = wait.cancel {
        // A token that is cancelled by now calls back at once, and that takes our lock.
        drop(core);
        let waker = {
            let cell = cell.clone();
            move || cell.core.lock().wake(Some(ticket))
        };
        let _registered = token.on_cancel(waker);
        return seat.sit(cell.core.lock(), wait, entered);
    }
    seat.sit(core, wait, entered)
}

/// A thread shares a hold of others.
pub(super) fn joined(
    cell: &Arc<Cell>,
    mut core: MutexGuard<'_, Core>,
    grip: Grip,
    ahead: Option<Asking>,
    wait: &Wait<'_>,
    entered: Moment,
) -> Result<Grip, Error> {
    core.gate.came_in(grip.ticket, entered);
    drop(core);
    if let Some(asking) = ahead {
        let limit = wait.limit(entered, cell.shared.config.command_timeout);
        let (answer, ..) = settle(requests::acquire(cell, &asking, limit));
        let mut core = cell.core.lock();
        let then = core.gate.answered(asking.owner, answer, Moment::now());
        drop(carry_out(cell, core, then));
    }
    cell.shared.watch.tell(|o| o.acquired(cell.observed(), Duration::ZERO, grip.way));
    Ok(grip)
}

/// A hold is there: the renewer learns of a new tenure, the observer of the hold.
pub(super) fn welcome(
    cell: &Arc<Cell>,
    mut core: MutexGuard<'_, Core>,
    grip: Grip,
    now: Moment,
    entered: Moment,
) -> Result<Grip, Error> {
    let shared = &cell.shared;
    // What a wait for a condition is granted is its lock's to renew.
    if !matches!(grip.way, Way::HandedOver | Way::Joined)
        && cell.room.is_none()
        && let Some(tenure) = core.gate.look(grip.owner)
    {
        let due = tenure.due(now, shared.config.renew_every);
        if let Err(error) = shared.renewer.watch(cell, &mut core, grip.owner, due) {
            drop(core);
            take_back(cell, grip.ticket, Moment::now().after(LEAVE_LIMIT));
            return Err(cell.error(error));
        }
    }
    core.gate.came_in(grip.ticket, now);
    drop(core);
    shared.watch.tell(|o| o.acquired(cell.observed(), now.since(entered), grip.way));
    Ok(grip)
}

/// A thread's place in the gate. Dropped while it is taken (an error, a panic), it passes on
/// whatever it was granted.
pub(super) struct Seat<'a> {
    pub(super) cell: &'a Arc<Cell>,
    /// The lock's other mode, whose threads stand behind this one's.
    pub(super) other: Option<&'a Arc<Cell>>,
    pub(super) ticket: Ticket,
    pub(super) taken: bool,
    /// The request it is about. Should it not come back from there, the ask must not wait for it.
    pub(super) asking: Option<u64>,
    /// And Redis may have got it.
    pub(super) sent: bool,
}

impl<'a> Seat<'a> {
    /// The one waiting loop of the crate.
    fn sit(
        &mut self,
        mut core: MutexGuard<'a, Core>,
        wait: &Wait<'_>,
        entered: Moment,
    ) -> Result<Option<Grip>, Error> {
        let cell = self.cell;
        let shared = &cell.shared;
        let mut wait = *wait;
        // The first turn is taken at the time of the call, whatever its deadline: one attempt.
        let mut first = Some(entered);
        loop {
            let again = first.is_none();
            let now = first.take().unwrap_or_else(Moment::now);
            let mut over = again && wait.is_over(now);
            if over && core.gate.turns_back(now) {
                // A wait for a condition cannot end without the lock: now it waits for that.
                (wait, over) = (Wait::forever(), false);
            }
            self.tie(&core);
            match core.gate.turn(self.ticket, now, shared.inbox.is_up(), over, || cell.fresh()) {
                Turn::In(grip, next) => {
                    core.wake(next);
                    self.taken = false;
                    self.tie(&core);
                    return welcome(cell, core, grip, now, entered).map(Some);
                }
                Turn::Ask(asking) => {
                    drop(core);
                    let limit = wait.limit(now, shared.config.command_timeout);
                    core = self.ask(&asking, limit, wait.once)?;
                }
                Turn::Confirm(owner, lease) => {
                    drop(core);
                    core = confirm(cell, owner, lease, now, wait.limit(now, shared.config.command_timeout));
                }
                Turn::Leave(leaving) => core = leave_queue(cell, core, leaving),
                Turn::Park(until) => {
                    if wait.deadline.is_none() && core.gives_up(entered, now, shared.config.give_up_after) {
                        return Err(self.unavailable(&core));
                    }
                    core = self.park(core, until.min(wait.deadline.unwrap_or(Moment::NEVER)));
                }
                ending => {
                    let outcome = self.ending(ending, &core, &wait);
                    self.leave(core);
                    return outcome;
                }
            }
        }
    }

    /// The lock's other mode learns whether anybody waits here of whom only this process knows.
    fn tie(&self, core: &Core) {
        if let Some(other) = self.other {
            modes::tie(core, other);
        }
    }

    /// What a wait that ends without a hold comes to.
    pub(super) fn ending(&self, turn: Turn, core: &Core, wait: &Wait<'_>) -> Result<Option<Grip>, Error> {
        let error = match turn {
            Turn::Over if wait.is_cancelled() => Error::new(ErrorKind::Cancelled, ""),
            Turn::Over if core.gate.trouble().is_some() || core.gate.is_unheard(Moment::now(), UNHEARD) => {
                return Err(self.unavailable(core));
            }
            Turn::Refused(why) => refused(&why),
            Turn::Closed => Error::new(ErrorKind::Closed, ""),
            _ => return Ok(None),
        };
        Err(self.cell.error(error))
    }

    /// One request for the head, and what became of it.
    fn ask(&mut self, asking: &Asking, limit: Moment, once: bool) -> Result<MutexGuard<'a, Core>, Error> {
        let cell = self.cell;
        let shared = &cell.shared;
        let owner = asking.owner;
        self.asking = Some(owner);
        if !asking.enqueues || shared.inbox.is_up() {
            return self.send(asking, limit, once);
        }
        // It must be there before we are in the queue: what is granted is told only once.
        shared.inbox.start(shared).map_err(|e| cell.error(e))?;
        match shared.inbox.failure() {
            Some(failure) if failure.is_final() => Err(cell.error(failure.error())),
            // Who waits for a condition has no use for a mere try: it could not begin.
            Some(failure) if cell.room.is_some() => {
                let mut core = cell.core.lock();
                self.asking = None;
                let then = core.gate.answered(owner, Answer::Failed, Moment::now());
                core.trouble = Some(failure.error());
                Ok(carry_out(cell, core, then))
            }
            None => {
                let mut core = cell.core.lock();
                let now = Moment::now();
                // Should it have come up in between, its call to ask again went unheard.
                let again_at = if shared.inbox.is_up() { now } else { now.after(INBOX_LIMIT) };
                core.gate.postponed(owner, again_at);
                self.asking = None;
                Ok(core)
            }
            _ => {
                // No place where the grant would not be heard; but the lock may be free by now.
                let asking = Asking { how: How::Try, ..asking.clone() };
                let mut core = self.send(&asking, limit, once)?;
                core.gate.try_later(owner, Moment::now().after(INBOX_LIMIT));
                Ok(core)
            }
        }
    }

    /// Sends it, and tells the gate what became of it.
    fn send(&mut self, asking: &Asking, limit: Moment, once: bool) -> Result<MutexGuard<'a, Core>, Error> {
        self.sent = true;
        let outcome = requests::acquire(self.cell, asking, limit);
        self.heard(asking.owner, outcome, once)
    }

    /// Tells the gate what became of an ask; an error is the thread's where one attempt was all, or where
    /// it is final.
    pub(super) fn heard(
        &mut self,
        owner: u64,
        outcome: Result<(Answer, bool), Failure>,
        once: bool,
    ) -> Result<MutexGuard<'a, Core>, Error> {
        let cell = self.cell;
        let mut core = cell.core.lock();
        (self.asking, self.sent) = (None, false);
        let (answer, resent, error) = settle(outcome);
        if resent {
            core.gate.unsettle(owner);
        }
        let then = core.gate.answered(owner, answer, Moment::now());
        core.trouble = error.as_ref().map(|(e, _)| e.clone());
        match error {
            Some((error, never)) if never || once => {
                drop(carry_out(cell, core, then));
                Err(cell.error(error))
            }
            _ => Ok(carry_out(cell, core, then)),
        }
    }

    fn park(&self, mut core: MutexGuard<'a, Core>, until: Moment) -> MutexGuard<'a, Core> {
        // The first wait of a client starts its listener, even one for a thread of its own: with
        // the listener there, a release can put the next head into the queue in the same trip.
        if !self.cell.shared.inbox.is_up()
            && let Err(error) = self.cell.shared.inbox.start(&self.cell.shared)
        {
            tracing::warn!(error = %format_args!("{error:#}"), "waiting without a listener");
        }
        let seat = Arc::new(Condvar::new());
        core.sit(self.ticket, seat.clone());
        match until.instant() {
            Some(instant) => drop(seat.wait_until(&mut core, instant)),
            None => seat.wait(&mut core),
        }
        core.rise(self.ticket);
        core
    }

    fn unavailable(&self, core: &Core) -> Error {
        let error = core.trouble.clone().unwrap_or_else(|| Error::new(ErrorKind::Unavailable, ""));
        self.cell.error(error)
    }

    /// Gives the place up, under the lock that saw there is nothing to be had.
    pub(super) fn leave(&mut self, mut core: MutexGuard<'_, Core>) {
        self.taken = false;
        let gave_up = core.gate.give_up(self.ticket, Moment::now());
        self.tie(&core);
        match gave_up {
            GaveUp::Out(then) => drop(carry_out(self.cell, core, then)),
            GaveUp::In(grip) => {
                drop(core);
                take_back(self.cell, grip.ticket, Moment::now().after(LEAVE_LIMIT));
            }
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if self.taken {
            let mut core = self.cell.core.lock();
            match self.asking {
                // What it may be granted must not stay.
                Some(owner) if self.sent => {
                    let then = core.gate.answered(owner, Answer::Unanswered, Moment::now());
                    core = carry_out(self.cell, core, then);
                }
                Some(owner) => core.gate.postponed(owner, Moment::now()),
                None => {}
            }
            self.leave(core);
        }
    }
}

/// A grant that came long ago is renewed before it is used.
pub(super) fn confirm<'a>(
    cell: &'a Arc<Cell>,
    owner: u64,
    lease: Duration,
    now: Moment,
    limit: Moment,
) -> MutexGuard<'a, Core> {
    let answer = requests::renew(cell, owner, lease, limit);
    let mut core = cell.core.lock();
    if answer.resent {
        core.gate.doubt(owner, now, lease);
    }
    let then = core.gate.confirmed(owner, answer.renewal, Moment::now());
    carry_out(cell, core, then)
}

impl Core {
    /// Redis has been out of reach for so long that a call without a deadline says so.
    fn gives_up(&self, entered: Moment, now: Moment, limit: Duration) -> bool {
        self.gate.trouble().is_some_and(|since| now.since(since.max(entered)) >= limit)
    }
}

/// What a refusal is to a caller: that there is no hold to give up for it; `broken`, or
/// `broken-` and how, of what broke while we waited; `conflict-` and what with; or the rule's own word.
fn refused(why: &str) -> Error {
    if why == NOT_INSIDE {
        return lost(Loss::Verdict);
    }
    let (kind, why) = match (why.strip_prefix("broken"), why.strip_prefix("conflict-")) {
        (Some(how), _) => (ErrorKind::Broken, how.trim_start_matches('-')),
        (_, Some(with)) => (ErrorKind::Conflict, with),
        _ => (ErrorKind::Refused, why),
    };
    let why = why.replace('-', " ");
    // Names in it are escaped; of a rule that writes a mere `%`, it is what it says.
    Error::new(kind, "").because(unescape(&why).unwrap_or(why))
}

impl Refusal {
    pub(super) fn error(self) -> Error {
        match self {
            Refusal::Closed => Error::new(ErrorKind::Closed, ""),
            Refusal::LeaseLost(loss) => lost(loss),
            Refusal::WouldDeadlock => {
                Error::new(ErrorKind::WouldDeadlock, "").because("this thread holds it already")
            }
            Refusal::Busy => Error::new(ErrorKind::Timeout, ""),
        }
    }
}

/// What an ask's outcome is to the gate, whether it was sent twice, and what it is to the thread: an
/// error, and whether it is final.
fn settle(outcome: Result<(Answer, bool), Failure>) -> (Answer, bool, Option<(Error, bool)>) {
    match outcome {
        Ok((answer, resent)) => (answer, resent, None),
        Err(Failure::Unsent(e) | Failure::Later(e)) => (Answer::Failed, false, Some((e, false))),
        Err(Failure::Unanswered(e)) => (Answer::Unanswered, false, Some((e, false))),
        Err(failure) if failure.is_wrong_kind() => (Answer::Failed, false, Some((failure.error(), true))),
        Err(Failure::Denied(e)) => (Answer::Failed, false, Some((e, true))),
        // A script that errs half-way keeps what it wrote.
        Err(Failure::Never(e)) => (Answer::Unanswered, false, Some((e, true))),
    }
}
