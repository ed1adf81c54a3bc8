//! A thread that waits in a lock state: it takes turns and sleeps between them. The requests that the lock state
//! decides on are in `head.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::deadlock::Suspicion;
use crate::engine::call::outcomes::{of_refusal, of_rule};
use crate::engine::call::{How, end, modes};
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::operations::effects::{
    LEAVE_TIMEOUT, carry_out, has_left, lock_at, no_longer_kept, report,
};
use crate::engine::operations::replies::of_ask;
use crate::engine::operations::requests;
use crate::engine::redis::connection::Unread;
use crate::engine::redis::pool::Given;
use crate::engine::state::lock_state::{
    Acquired, Answer, Asking, Effects, Entered, GaveUp, Request, Step, Ticket,
};
use crate::error::{Error, ErrorKind};
use crate::observe::{AcquiredVia, KeptEnd, Span};
use crate::sync::{Condvar, MutexGuard};
use crate::wait::Wait;

/// How long a request may be in flight before the threads behind it report that Redis does not reply.
pub(super) const UNHEARD: Duration = Duration::from_millis(100);
/// What a request may take at least, however short the unreachable timeout is.
const SHORTEST: Duration = Duration::from_millis(100);

/// How far a call is: over with a hold, over without one, or there is something to do next.
pub(crate) enum Progress<T> {
    In(Acquired),
    /// It timed out, or it is a single attempt that found the lock busy.
    Out,
    Next(T),
}

/// Whether a waiter may sleep for its turn.
#[derive(Clone, Copy)]
pub(in crate::engine) enum MayPark {
    Yes,
    /// It is one of several locks that are tried at the same time: whatever it would sleep for counts as
    /// busy. A request may take until `limit`.
    No {
        limit: Moment,
    },
}

/// Where a thread is in the lock state.
pub(super) enum Position {
    /// It takes its first turn at the time of the call, so that one attempt is made whatever the deadline.
    New,
    Waiting,
    /// A request of this owner is being sent, and Redis may have received it if it is `sent`. If the thread
    /// ends early (an error, a panic), the pending acquire must not wait for the reply.
    Asking {
        owner: u64,
        sent: bool,
    },
    /// It has its hold, has given up, or another thread continues.
    Left,
}

/// A thread's position in the lock state. If it is dropped while the position is taken (an error, a panic),
/// it passes on whatever it was granted.
pub(in crate::engine) struct Waiter<'a> {
    pub(in crate::engine) entry: &'a Arc<LockEntry>,
    /// The lock's read mode, if this is a writer: readers queue behind it.
    readers: Option<&'a Arc<LockEntry>>,
    pub(in crate::engine) ticket: Ticket,
    pub(super) wait: Wait<'a>,
    pub(in crate::engine) entered: Moment,
    pub(super) position: Position,
    /// The connection on which its request must be sent, behind a leave that is unread.
    pub(super) behind: Option<Given>,
    /// `Some` from its first sleep on of which somebody may hear.
    waits: Option<Waits<'a>>,
    pub(super) suspicion: Suspicion,
}

/// A wait that was reported to the observers.
struct Waits<'a> {
    entry: &'a LockEntry,
    _span: Option<Span>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.entry.shared.observers.tell_often(|o| o.wait_ended(self.entry.observed()));
    }
}

impl<'a> Waiter<'a> {
    /// Takes a position in the lock state. `readers` is the lock's read mode, if its threads must queue
    /// behind this one. A thread that joins others in a hold may have to ask Redis, within `limit`, whether
    /// still more may join. (Inlined, it would have its callers' loops prepared for a wait at each re-entry.)
    #[inline(never)]
    pub(in crate::engine) fn enter(
        entry: &'a Arc<LockEntry>,
        readers: Option<&'a Arc<LockEntry>>,
        request: &Request,
        wait: Wait<'a>,
        entered: Moment,
        limit: impl FnOnce() -> Moment,
    ) -> Result<Progress<Waiter<'a>>, Error> {
        // Checked first, as in a forked child the lock state is a copy of the parent's.
        let mut core = lock_at(entry, entered)?;
        entry.shared.not_closed().map_err(|e| entry.error(e))?;
        match core.lock_state.enter(request, entered) {
            Ok(Entered::Again(acquired)) => Ok(Progress::In(acquired)),
            Ok(Entered::Joined(acquired, ahead)) => {
                core.lock_state.came_in(acquired.ticket, entered);
                drop(core);
                if let Some(asking) = ahead {
                    ask_ahead(entry, &asking, limit());
                }
                let waited = Duration::ZERO;
                entry.shared.observers.tell_often(|o| o.acquired(entry.observed(), waited, acquired.via));
                Ok(Progress::In(acquired))
            }
            Ok(Entered::Waits(ticket)) => {
                if let Some(arrived) = wait.arrived {
                    core.take_trouble_on(arrived);
                }
                let suspicion = Suspicion::begins(entry, request.thread, entered);
                drop(core);
                let (position, behind, waits) = (Position::New, None, None);
                let waiter =
                    Waiter { entry, readers, ticket, wait, entered, position, behind, waits, suspicion };
                Ok(Progress::Next(waiter))
            }
            Ok(Entered::Busy) => Ok(Progress::Out),
            Err(refusal) => Err(entry.error(of_refusal(refusal))),
        }
    }

    /// Returns the waiter of a single attempt that was begun before, perhaps by another thread.
    pub(super) fn resumed(
        entry: &'a Arc<LockEntry>,
        ticket: Ticket,
        entered: Moment,
        position: Position,
    ) -> Self {
        let (readers, wait, suspicion) = (None, Wait::once(), Suspicion::default());
        let (behind, waits) = (None, None);
        Waiter { entry, readers, ticket, wait, entered, position, behind, waits, suspicion }
    }

    /// Returns what wakes this waiter when its call is cancelled.
    pub(in crate::engine) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let (entry, ticket) = (self.entry.clone(), self.ticket);
        move || entry.core.lock().wake(Some(ticket))
    }

    /// Takes turns, and sleeps between them if it may, until there is a request to send or the wait is over.
    /// No other code in the crate takes turns of a lock state, or sleeps for one.
    pub(in crate::engine) fn advance(
        &mut self,
        may_park: MayPark,
    ) -> Result<Progress<(Asking, Moment)>, Error> {
        let entry = self.entry;
        loop {
            let mut core = entry.core.lock();
            let again = !matches!(std::mem::replace(&mut self.position, Position::Waiting), Position::New);
            let now = if again { Moment::now() } else { self.entered };
            // Redis has not replied to the calls ahead for too long: this one sends no request.
            if !again && self.wait.arrived.is_some() && self.gives_up(&core, now) {
                return Err(self.unavailable(&core));
            }
            let mut over = again && (self.wait.is_over(now) || self.suspicion.error().is_some());
            if over && core.lock_state.turns_back(now) {
                // A wait for a condition cannot end without the lock: now it waits for the lock, without a
                // timeout.
                (self.wait, over) = (Wait::forever(), false);
            }
            let gives_up_at = self.gives_up_at(&core, now);
            let limit = || match may_park {
                MayPark::Yes => self
                    .wait
                    .limit(now, entry.shared.config.command_timeout)
                    .min(gives_up_at.max(now.after(SHORTEST))),
                MayPark::No { limit } => limit,
            };
            self.keep_readers_behind(&core);
            let inbox = entry.hears();
            let mut step = core.lock_state.turn(self.ticket, now, inbox, over, || entry.fresh());
            if let Step::Behind(until) = step {
                let its = |unread: &Unread| unread.about == entry.number();
                let connection = entry.server().backend.aside.take(|it| it.unread.as_ref().is_some_and(its));
                step = match (connection, may_park) {
                    (None, _) => Step::Park(until),
                    (connection, MayPark::Yes) => {
                        self.behind = connection;
                        core.lock_state.goes_behind();
                        core.lock_state.turn(self.ticket, now, inbox, over, || entry.fresh())
                    }
                    // Its request goes with those for other locks.
                    (Some(mut connection), MayPark::No { limit }) => {
                        drop(core);
                        let _ = connection.catch_up(limit);
                        self.position = if again { Position::Waiting } else { Position::New };
                        continue;
                    }
                };
            }
            match step {
                Step::In(acquired, next) => {
                    core.wake(next);
                    self.position = Position::Left;
                    self.keep_readers_behind(&core);
                    return register_hold(entry, core, acquired, now, self.entered).map(Progress::In);
                }
                Step::Ask(asking) => {
                    let limit = limit();
                    self.position = Position::Asking { owner: asking.owner, sent: false };
                    return Ok(Progress::Next((asking, limit)));
                }
                Step::Confirm(owner, lease) => {
                    drop(core);
                    confirm(entry, owner, lease, now, limit());
                }
                Step::Leave(leaving) => {
                    let dropped = Some((leaving.owner, KeptEnd::Replaced));
                    carry_out(entry, core, Effects { leave: Some(leaving), dropped, ..Effects::default() });
                }
                Step::LeaveAndAsk(leaving, mut asking) => {
                    asking.thread = this_name();
                    core.add_leave(&leaving);
                    let kept = core.ends(entry, leaving.owner);
                    drop(core);
                    no_longer_kept(entry, kept.then_some(KeptEnd::Replaced));
                    let left = requests::leave(entry, &leaving, Some(&asking), limit());
                    has_left(entry, &leaving, Some(&asking), &left);
                }
                Step::Park(until) if matches!(may_park, MayPark::Yes) => self.park(core, until, now)?,
                ending => {
                    let error = self.ending(ending, &core);
                    self.leave(core);
                    return error.map_or(Ok(Progress::Out), Err);
                }
            }
        }
    }

    /// Tells the readers of this process whether writers wait here that only this process knows of.
    fn keep_readers_behind(&self, core: &Core) {
        if let Some(readers) = self.readers {
            modes::queue_behind(core, readers);
        }
    }

    /// Returns the error of a wait that ends without a hold; `None` if a single attempt was busy, or the time
    /// was up.
    fn ending(&self, turn: Step, core: &Core) -> Option<Error> {
        let error = match turn {
            Step::GiveUp if self.wait.is_cancelled() => Error::new(ErrorKind::Cancelled, ""),
            Step::GiveUp if self.suspicion.error().is_some() => return self.suspicion.error().cloned(),
            Step::GiveUp
                if core.lock_state.trouble().is_some()
                    || core.lock_state.is_unheard(Moment::now(), UNHEARD) =>
            {
                return Some(self.unavailable(core));
            }
            Step::Refused(why) => of_rule(&why),
            Step::Closed => Error::new(ErrorKind::Closed, ""),
            _ => return None,
        };
        Some(self.entry.error(error))
    }

    /// Sleeps until it is woken, until its deadline, or until `until`. The first call, except of a wait for a condition,
    /// only reports the wait to the observers, outside the mutex, if somebody may hear of it; and one that is due only
    /// looks for a deadlock: the caller must check the state again.
    fn park(&mut self, mut core: MutexGuard<'_, Core>, until: Moment, now: Moment) -> Result<(), Error> {
        if self.gives_up(&core, now) {
            return Err(self.unavailable(&core));
        }
        if self.suspicion.is_due(now) && core.lock_state.trouble().is_none() {
            drop(core);
            self.suspicion.check(self.entry, &self.wait, now);
            return Ok(());
        }
        // (A waiter for a signal does not wait for the lock.)
        let entry = self.entry;
        if self.waits.is_none() && entry.condition.is_none() && entry.shared.observers.may_hear_of_waits() {
            drop(core);
            entry.shared.observers.tell_often(|o| o.wait_began(entry.observed()));
            self.waits = Some(Waits { entry, _span: Span::wait(|| entry.observed()) });
            return Ok(());
        }
        let mut until = until.min(self.wait.deadline);
        if core.lock_state.trouble().is_some() {
            until = until.min(self.gives_up_at(&core, now));
        }
        // The first wait of a client starts its listener, even a wait for another thread of the same process:
        // with the listener up, a release can put the next head into the queue in the same round trip. A
        // waiter that is already listening asks for its channel, too: otherwise the channel would be given up
        // with the entry that first wanted it.
        entry.will_listen(|| true);
        let condvar = Arc::new(Condvar::new());
        core.park(self.ticket, condvar.clone(), self.suspicion.published().cloned());
        until.wait_on(&condvar, &mut core);
        core.unpark(self.ticket);
        Ok(())
    }

    /// Returns whether Redis has been unreachable for so long that a call without a deadline fails.
    fn gives_up(&self, core: &Core, now: Moment) -> bool {
        core.lock_state.trouble().is_some() && self.gives_up_at(core, now) <= now
    }

    /// Returns until when a call without a deadline waits for Redis, if it cannot be reached from `now` on.
    fn gives_up_at(&self, core: &Core, now: Moment) -> Moment {
        if self.wait.deadline < Moment::NEVER {
            return Moment::NEVER;
        }
        let since = core.lock_state.trouble().unwrap_or(now).max(self.wait.arrived.unwrap_or(self.entered));
        since.after(self.entry.shared.config.unreachable_timeout)
    }

    fn unavailable(&self, core: &Core) -> Error {
        let error = core.trouble.clone().unwrap_or_else(|| Error::new(ErrorKind::Unavailable, ""));
        self.entry.error(error)
    }

    /// Gives up the position, without having released the mutex since it was found that there is no hold.
    fn leave(&mut self, mut core: MutexGuard<'_, Core>) {
        self.position = Position::Left;
        if self.wait.arrived.is_some() {
            core.pass_trouble_on(Moment::now());
        }
        let gave_up = core.lock_state.give_up(self.ticket, Moment::now());
        self.keep_readers_behind(&core);
        match gave_up {
            GaveUp::Out(then) => carry_out(self.entry, core, then),
            GaveUp::In(acquired) => {
                drop(core);
                let _ = end(self.entry, acquired.ticket, How::Unused(Moment::now().after(LEAVE_TIMEOUT)));
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let entry = self.entry;
        match self.position {
            Position::Left => return,
            // Redis may grant the request: such a grant must not remain.
            Position::Asking { owner, sent: true } => {
                report(entry, |state, now| state.answered(owner, Answer::Unanswered, now));
            }
            Position::Asking { owner, sent: false } => {
                entry.core.lock().lock_state.postponed(owner, Moment::now());
            }
            Position::New | Position::Waiting => {}
        }
        self.leave(entry.core.lock());
    }
}

/// Reports a new hold to the observers, and its grant to the renewer, unless other holds had it before.
pub(in crate::engine) fn register_hold(
    entry: &Arc<LockEntry>,
    mut core: MutexGuard<'_, Core>,
    acquired: Acquired,
    now: Moment,
    entered: Moment,
) -> Result<Acquired, Error> {
    let shared = &entry.shared;
    // What a wait for a condition is granted is renewed by the lock's own entry.
    if !matches!(acquired.via, AcquiredVia::HandedOff | AcquiredVia::Joined)
        && entry.condition.is_none()
        && let Some(grant) = core.lock_state.grant(acquired.owner)
    {
        let due = grant.due(now, shared.config.renew_every);
        if let Err(error) = shared.renewer.plan(entry, &mut core, acquired.owner, now, due) {
            drop(core);
            end(entry, acquired.ticket, How::Unused(Moment::now().after(LEAVE_TIMEOUT)))?;
            return Err(entry.error(error));
        }
    }
    core.lock_state.came_in(acquired.ticket, now);
    drop(core);
    shared.observers.tell_often(|o| o.acquired(entry.observed(), now.since(entered), acquired.via));
    Ok(acquired)
}

/// Returns the name of this thread, for a request that goes with another one or is sent by another thread.
pub(crate) fn this_name() -> Option<Arc<str>> {
    std::thread::current().name().map(Arc::from)
}

/// Asks, for a thread that shares a hold, whether more threads may, before they come.
fn ask_ahead(entry: &Arc<LockEntry>, asking: &Asking, limit: Moment) {
    let (answer, ..) = of_ask(requests::acquire(entry, asking, None, limit));
    report(entry, |state, now| state.answered(asking.owner, answer, now));
}

/// Renews a grant that came long ago, before it is used.
fn confirm(entry: &Arc<LockEntry>, owner: u64, lease: Duration, now: Moment, limit: Moment) {
    let answer = requests::renew(entry, owner, lease, limit);
    let mut core = entry.core.lock();
    if answer.resent {
        core.lock_state.doubt(owner, now, lease);
    }
    let then = core.lock_state.confirmed(owner, answer.renewal, Moment::now());
    carry_out(entry, core, then);
}
