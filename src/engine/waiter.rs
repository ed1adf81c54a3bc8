//! A thread that waits in a lock state: it takes its turns, sleeps between them, and sends what the lock state asks
//! of Redis.

use std::sync::Arc;
use std::time::Duration;

use super::effects::no_longer_kept;
use super::entry::{Core, LockEntry};
use super::outcomes::{of_ask, of_refusal, of_rule};
use super::redis::failure::Failure;
use super::redis::requests;
use super::release::leave_and_ask;
use super::state::lock_state::{
    AcquireMode, Acquired, Answer, Asking, Effects, Entered, GaveUp, Refusal, Request, Step, Ticket,
};
use super::{LEAVE_LIMIT, carry_out, lock, modes, take_back};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::{AcquiredVia, KeptEnd, Span};
use crate::sync::{Condvar, MutexGuard};
use crate::wait::Wait;

/// How long a request may be in flight before the threads behind it report that Redis does not reply.
const UNHEARD: Duration = Duration::from_millis(100);
/// How long a head waits for the inbox before it checks again, if it is not woken.
const INBOX_LIMIT: Duration = Duration::from_millis(250);

/// What a lock state has for a thread that arrives.
pub(super) enum Arrival<'a> {
    /// It holds already, or shares a hold of others.
    In(Acquired),
    /// One attempt, and a thread of this process is in the way.
    Busy,
    Waits(Waiter<'a>),
}

/// What a waiter has to do next, or has come to.
pub(super) enum Progress {
    In(Acquired),
    /// It ends without a hold: its time is up, or the one attempt was busy.
    Over,
    /// Send this, and wait for the answer until then.
    Ask(Asking, Moment),
}

/// Whether a waiter may sleep for its turn.
#[derive(Clone, Copy)]
pub(super) enum MayPark {
    Yes,
    /// It is one of several that are asked for at the same time: what it would sleep for is busy. Until `limit`
    /// it waits for the answer to a request.
    No {
        limit: Moment,
    },
}

/// A thread's position in the lock state. Dropped while it is taken (an error, a panic), it passes on whatever
/// it was granted.
pub(super) struct Waiter<'a> {
    pub(super) entry: &'a Arc<LockEntry>,
    /// The lock's mode for readers, if this one writes: they queue behind it.
    readers: Option<&'a Arc<LockEntry>>,
    pub(super) ticket: Ticket,
    wait: Wait<'a>,
    pub(super) entered: Moment,
    /// The first turn is taken at the time of the call, whatever its deadline: one attempt.
    first: Option<Moment>,
    taken: bool,
    /// The request that is being sent. If the thread does not return from there, the pending acquire must not
    /// wait for it.
    asking: Option<u64>,
    /// And Redis may have received it.
    sent: bool,
    /// From its first sleep on.
    waits: Option<Waits<'a>>,
}

/// A wait that observers have been told of.
struct Waits<'a> {
    entry: &'a LockEntry,
    _span: Option<Span>,
}

impl<'a> Waits<'a> {
    fn begin(entry: &'a LockEntry) -> Self {
        entry.shared.observers.tell(|o| o.wait_began(entry.observed()));
        Waits { entry, _span: Span::wait(|| entry.observed()) }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.entry.shared.observers.tell(|o| o.wait_ended(self.entry.observed()));
    }
}

impl<'a> Waiter<'a> {
    /// Takes a position in the lock state. `readers`: the lock's mode for them, if they must queue behind this one. A
    /// thread that joins others in a hold may have to ask Redis whether still others may: by `limit`.
    pub(super) fn enter(
        entry: &'a Arc<LockEntry>,
        readers: Option<&'a Arc<LockEntry>>,
        request: &Request,
        wait: Wait<'a>,
        entered: Moment,
        limit: impl FnOnce() -> Moment,
    ) -> Result<Arrival<'a>, Error> {
        // Before the lock state is asked anything: in a forked child what it knows is the parent's.
        entry.shared.usable_at(entered).map_err(|e| entry.error(e))?;
        let mut core = lock(entry)?;
        match core.lock_state.enter(request, entered) {
            Ok(Entered::Again(acquired)) => Ok(Arrival::In(acquired)),
            Ok(Entered::Joined(acquired, ahead)) => {
                core.lock_state.came_in(acquired.ticket, entered);
                drop(core);
                if let Some(asking) = ahead {
                    ask_ahead(entry, &asking, limit());
                }
                entry
                    .shared
                    .observers
                    .tell_often(|o| o.acquired(entry.observed(), Duration::ZERO, acquired.way));
                Ok(Arrival::In(acquired))
            }
            Ok(Entered::Kept(acquired)) => {
                core.lock_state.came_in(acquired.ticket, entered);
                drop(core);
                entry
                    .shared
                    .observers
                    .tell_often(|o| o.acquired(entry.observed(), Duration::ZERO, acquired.way));
                Ok(Arrival::In(acquired))
            }
            Ok(Entered::Waits(ticket)) => {
                if let Some(arrived) = wait.arrived {
                    core.take_trouble_on(arrived);
                }
                drop(core);
                let first = Some(entered);
                let (taken, asking, sent, waits) = (true, None, false, None);
                Ok(Arrival::Waits(Waiter {
                    entry,
                    readers,
                    ticket,
                    wait,
                    entered,
                    first,
                    taken,
                    asking,
                    sent,
                    waits,
                }))
            }
            Err(Refusal::Busy) => Ok(Arrival::Busy),
            Err(refusal) => Err(entry.error(of_refusal(refusal))),
        }
    }

    /// One whose request another thread has sent.
    pub(super) fn resumed(entry: &'a Arc<LockEntry>, ticket: Ticket, entered: Moment, asking: u64) -> Self {
        let (readers, wait, first) = (None, Wait::once(), None);
        let (taken, asking, sent, waits) = (true, Some(asking), true, None);
        Waiter { entry, readers, ticket, wait, entered, first, taken, asking, sent, waits }
    }

    /// What wakes it when its call is cancelled.
    pub(super) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let (entry, ticket) = (self.entry.clone(), self.ticket);
        move || entry.core.lock().wake(Some(ticket))
    }

    /// Takes its turns, and sleeps between them where it may, until there is something to send or it is over.
    /// No other code in the crate takes a turn of a lock state, or sleeps for one.
    pub(super) fn advance(&mut self, may_park: MayPark) -> Result<Progress, Error> {
        let entry = self.entry;
        let shared = &entry.shared;
        loop {
            let mut core = entry.core.lock();
            let again = self.first.is_none();
            let now = self.first.take().unwrap_or_else(Moment::now);
            // It has waited in vain by the time of its turn: no request more.
            if !again && self.wait.arrived.is_some() && self.gives_up(&core, now) {
                return Err(self.unavailable(&core));
            }
            let mut over = again && self.wait.is_over(now);
            if over && core.lock_state.turns_back(now) {
                // A wait for a condition cannot end without the lock: now it waits for that.
                (self.wait, over) = (Wait::forever(), false);
            }
            let limit = || match may_park {
                MayPark::Yes => self.wait.limit(now, shared.config.command_timeout),
                MayPark::No { limit } => limit,
            };
            self.keep_readers_behind(&core);
            match core.lock_state.turn(self.ticket, now, entry.hears(), over, || entry.fresh()) {
                Step::In(acquired, next) => {
                    core.wake(next);
                    self.taken = false;
                    self.keep_readers_behind(&core);
                    return welcome(entry, core, acquired, now, self.entered).map(Progress::In);
                }
                Step::Ask(asking) => {
                    let limit = limit();
                    self.asking = Some(asking.owner);
                    return Ok(Progress::Ask(asking, limit));
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
                    core.sets_out(&leaving);
                    let kept = core.ends(entry, leaving.owner);
                    drop(core);
                    no_longer_kept(entry, kept.then_some(KeptEnd::Replaced));
                    leave_and_ask(entry, leaving, &asking, limit());
                }
                Step::Park(until) if matches!(may_park, MayPark::Yes) => self.park(core, until, now)?,
                ending => {
                    let error = self.ending(ending, &core);
                    self.leave(core);
                    return error.map_or(Ok(Progress::Over), Err);
                }
            }
        }
    }

    /// The readers of this process learn whether writers wait here that only this process knows of.
    fn keep_readers_behind(&self, core: &Core) {
        if let Some(readers) = self.readers {
            modes::queue_behind(core, readers);
        }
    }

    /// What a wait that ends without a hold says of itself; nothing where it was busy, or the time is up.
    fn ending(&self, turn: Step, core: &Core) -> Option<Error> {
        let error = match turn {
            Step::Over if self.wait.is_cancelled() => Error::new(ErrorKind::Cancelled, ""),
            Step::Over
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

    /// Sends a request for the head, and reports the outcome to the lock state.
    pub(super) fn ask(&mut self, asking: Asking, limit: Moment) -> Result<(), Error> {
        let entry = self.entry;
        let owner = asking.owner;
        if !asking.enqueues || entry.hears() {
            self.sent = true;
            let queues = matches!(asking.how, AcquireMode::Wait | AcquireMode::Keep);
            self.heard(owner, requests::acquire(entry, &asking, limit))?;
            // Its position may have moved to another server.
            if queues && !entry.hears() {
                entry.listens().map_err(|e| entry.error(e))?;
            }
            return Ok(());
        }
        if self.awaits_inbox(owner)? {
            return Ok(());
        }
        // No position where the grant would not be heard; but the lock may be free by now.
        self.sent = true;
        self.heard(owner, requests::acquire(entry, &Asking { how: AcquireMode::Try, ..asking }, limit))?;
        entry.core.lock().lock_state.try_later(owner, Moment::now().after(INBOX_LIMIT));
        Ok(())
    }

    /// Has the inbox come up, which must be there before a queue position is taken: what is granted is told
    /// only once. `false` where that has failed, and the request may be sent as a mere try.
    fn awaits_inbox(&mut self, owner: u64) -> Result<bool, Error> {
        let entry = self.entry;
        entry.listens().map_err(|e| entry.error(e))?;
        match entry.deafness() {
            Some(failure) if failure.is_final() => return Err(entry.error(failure.error())),
            // A wait for a condition has no use for a mere try: it could not begin.
            Some(failure) if entry.condition.is_some() => {
                let mut core = entry.core.lock();
                let then = core.lock_state.answered(owner, Answer::Failed, Moment::now());
                core.trouble = Some(failure.error());
                carry_out(entry, core, then);
            }
            None => {
                // Looked at under the mutex: if it comes up later, it makes this entry ask again; if it came up
                // before, that went unheard.
                let mut core = entry.core.lock();
                let now = Moment::now();
                let again_at = if entry.hears() { now } else { now.after(INBOX_LIMIT) };
                core.lock_state.postponed(owner, again_at);
            }
            Some(_) => return Ok(false),
        }
        self.asking = None;
        Ok(true)
    }

    /// Its request is about to be sent, by its caller.
    pub(super) fn sends(&mut self) {
        self.sent = true;
    }

    /// Its request was not sent: it is put back when this is dropped.
    pub(super) fn called_off(&mut self) {
        self.sent = false;
    }

    /// Another thread goes on with it.
    pub(super) fn is_passed_on(&mut self) {
        self.taken = false;
    }

    /// Reports the outcome of a request to the lock state; an error is the thread's if it makes only one
    /// attempt, or if the error is final.
    pub(super) fn heard(
        &mut self,
        owner: u64,
        outcome: Result<(Answer, bool), Failure>,
    ) -> Result<(), Error> {
        let entry = self.entry;
        let mut core = entry.core.lock();
        (self.asking, self.sent) = (None, false);
        let (answer, resent, error) = of_ask(outcome);
        if resent {
            core.lock_state.unsettle(owner);
        }
        let then = core.lock_state.answered(owner, answer, Moment::now());
        core.trouble = error.as_ref().map(|(e, _)| e.clone());
        carry_out(entry, core, then);
        match error {
            Some((error, never)) if never || self.wait.once => Err(entry.error(error)),
            _ => Ok(()),
        }
    }

    /// Sleeps until it is woken, or its time is up, or until then. Not before observers were told that it waits: that is
    /// done outside the mutex, so it looks anew afterwards.
    fn park(&mut self, mut core: MutexGuard<'_, Core>, until: Moment, now: Moment) -> Result<(), Error> {
        if self.gives_up(&core, now) {
            return Err(self.unavailable(&core));
        }
        // (A waiter for a signal does not wait for the lock.)
        if self.waits.is_none() && self.entry.condition.is_none() {
            drop(core);
            self.waits = Some(Waits::begin(self.entry));
            return Ok(());
        }
        let until = until.min(self.wait.deadline.unwrap_or(Moment::NEVER));
        // The first wait of a client starts its listener, even one for another thread of its own process:
        // with the listener there, a release can put the next head into the queue in the same round trip. One that
        // hears says so, too: otherwise the channel would be given up with the entry for which it was wanted.
        if let Err(error) = self.entry.will_listen() {
            tracing::warn!(error = %format_args!("{error:#}"), "waiting without a listener");
        }
        let condvar = Arc::new(Condvar::new());
        core.park(self.ticket, condvar.clone());
        match until.instant() {
            Some(instant) => drop(condvar.wait_until(&mut core, instant)),
            None => condvar.wait(&mut core),
        }
        core.unpark(self.ticket);
        Ok(())
    }

    /// Redis has been out of reach for so long that a call without a deadline returns an error.
    fn gives_up(&self, core: &Core, now: Moment) -> bool {
        let (bears, began) =
            (self.entry.shared.config.unreachable_timeout, self.wait.arrived.unwrap_or(self.entered));
        let trouble = core.lock_state.trouble().filter(|_| self.wait.deadline.is_none());
        trouble.is_some_and(|since| now.since(since.max(began)) >= bears)
    }

    fn unavailable(&self, core: &Core) -> Error {
        let error = core.trouble.clone().unwrap_or_else(|| Error::new(ErrorKind::Unavailable, ""));
        self.entry.error(error)
    }

    /// Gives up its position, under the mutex under which it saw that there is nothing to be had.
    fn leave(&mut self, mut core: MutexGuard<'_, Core>) {
        self.taken = false;
        if self.wait.arrived.is_some() {
            core.pass_trouble_on(Moment::now());
        }
        let gave_up = core.lock_state.give_up(self.ticket, Moment::now());
        self.keep_readers_behind(&core);
        match gave_up {
            GaveUp::Out(then) => carry_out(self.entry, core, then),
            GaveUp::In(acquired) => {
                drop(core);
                take_back(self.entry, acquired.ticket, Moment::now().after(LEAVE_LIMIT));
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.taken {
            return;
        }
        let mut core = self.entry.core.lock();
        match self.asking {
            // What it may be granted must not stay.
            Some(owner) if self.sent => {
                let then = core.lock_state.answered(owner, Answer::Unanswered, Moment::now());
                carry_out(self.entry, core, then);
                core = self.entry.core.lock();
            }
            Some(owner) => core.lock_state.postponed(owner, Moment::now()),
            None => {}
        }
        self.leave(core);
    }
}

/// A hold is there: the renewer learns of a new grant, the observer of the hold.
pub(super) fn welcome(
    entry: &Arc<LockEntry>,
    mut core: MutexGuard<'_, Core>,
    acquired: Acquired,
    now: Moment,
    entered: Moment,
) -> Result<Acquired, Error> {
    let shared = &entry.shared;
    // What a wait for a condition is granted is its lock's to renew.
    if !matches!(acquired.way, AcquiredVia::HandedOff | AcquiredVia::Joined)
        && entry.condition.is_none()
        && let Some(grant) = core.lock_state.look(acquired.owner)
    {
        let due = grant.due(now, shared.config.renew_every);
        if let Err(error) = shared.renewer.look_at(entry, &mut core, acquired.owner, now, due) {
            drop(core);
            take_back(entry, acquired.ticket, Moment::now().after(LEAVE_LIMIT));
            return Err(entry.error(error));
        }
    }
    core.lock_state.came_in(acquired.ticket, now);
    drop(core);
    shared.observers.tell_often(|o| o.acquired(entry.observed(), now.since(entered), acquired.way));
    Ok(acquired)
}

/// A thread that shares a hold asks whether still others may, before those come.
fn ask_ahead(entry: &Arc<LockEntry>, asking: &Asking, limit: Moment) {
    let (answer, ..) = of_ask(requests::acquire(entry, asking, limit));
    let mut core = entry.core.lock();
    let then = core.lock_state.answered(asking.owner, answer, Moment::now());
    carry_out(entry, core, then);
}

/// The name of this thread, for a request that it does not send as its own.
pub(super) fn this_name() -> Option<Arc<str>> {
    std::thread::current().name().map(Arc::from)
}

/// A grant that came long ago is renewed before it is used.
fn confirm(entry: &Arc<LockEntry>, owner: u64, lease: Duration, now: Moment, limit: Moment) {
    let answer = requests::renew(entry, owner, lease, limit);
    let mut core = entry.core.lock();
    if answer.resent {
        core.lock_state.doubt(owner, now, lease);
    }
    let then = core.lock_state.confirmed(owner, answer.renewal, Moment::now());
    carry_out(entry, core, then);
}
