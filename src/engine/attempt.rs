//! One attempt in two halves, so that those at several locks can be on their way at the same time: first
//! all are written, then all are read.
//!
//! It never parks: what a single call would wait for (a leave that is on its way, an ask of another thread)
//! is busy here. Whoever waits, waits for one lock, by [`acquire`](super::acquire()).

use std::sync::Arc;

use super::acquire::{Seat, confirm, joined};
use super::entry::{Cell, Core};
use super::redis::failure::Failure;
use super::state::lock_state::{Answer, Asking, Entered, Grip, Refusal, Request, Ticket, Turn};
use super::{held, leave_queue, lock, take_back};
use crate::clock::Moment;
use crate::error::Error;
use crate::sync::MutexGuard;
use crate::wait::Wait;

/// How an attempt begins.
pub(crate) enum Begun<'a> {
    /// It is over: the thread holds it already, or shares a hold of others.
    In(Grip),
    /// It is over: a thread of this process is in the way.
    Busy,
    /// Its request is to be sent.
    Asks(Attempt<'a>),
}

/// An attempt whose request is to be sent, or was. Dropped without an [answer](Attempt::answered), it
/// counts as sent: what it may have been granted is given back in the background.
pub(crate) struct Attempt<'a> {
    seat: Seat<'a>,
    asking: Asking,
    entered: Moment,
}

/// Begins an attempt by `request`, which is to be [`once`](Request::once). Redis is asked nothing yet, but
/// for a grant that waits here for its thread, which is renewed by `limit`.
pub(crate) fn begin<'a>(cell: &'a Arc<Cell>, request: Request, limit: Moment) -> Result<Begun<'a>, Error> {
    let entered = Moment::now();
    cell.shared.usable_at(entered).map_err(|e| cell.error(e))?;
    let mut core = lock(cell)?;
    let ticket = match core.gate.enter(request, entered) {
        Ok(Entered::Again(grip)) => return Ok(Begun::In(grip)),
        Ok(Entered::Joined(grip, ahead)) => {
            let grip = joined(cell, core, grip, ahead, &Wait::once(), entered)?;
            if held::remaining(cell, grip.ticket).is_zero() {
                take_back(cell, grip.ticket, limit);
                return Ok(busy(cell, entered));
            }
            return Ok(Begun::In(grip));
        }
        Ok(Entered::Waits(ticket)) => ticket,
        Err(Refusal::Busy) => return Ok(busy(cell, entered)),
        Err(refusal) => return Err(cell.error(refusal.error())),
    };
    let seat = Seat { cell, other: None, ticket, taken: true, asking: None, sent: false };
    Ok(match advance(seat, core, limit, entered)? {
        Advanced::In(grip) => Begun::In(grip),
        Advanced::Busy => busy(cell, entered),
        Advanced::Asks(mut seat, asking) => {
            seat.sent = true;
            Begun::Asks(Attempt { seat, asking, entered })
        }
    })
}

fn busy<'a>(cell: &Arc<Cell>, entered: Moment) -> Begun<'a> {
    let waited = Moment::now().since(entered);
    cell.shared.watch.tell(|o| o.not_acquired(cell.observed(), waited, None));
    Begun::Busy
}

/// An attempt whose answer another thread is to hear. Dropped, it is given back as an [`Attempt`] is.
pub(crate) struct Detached {
    cell: Arc<Cell>,
    ticket: Ticket,
    entered: Moment,
    /// Until it goes on.
    asking: Option<Asking>,
}

impl Detached {
    /// It goes on in this thread; once.
    pub(crate) fn attach(&mut self) -> Option<Attempt<'_>> {
        let asking = self.asking.take()?;
        let seat = Seat {
            cell: &self.cell,
            other: None,
            ticket: self.ticket,
            taken: true,
            asking: Some(asking.owner),
            sent: true,
        };
        Some(Attempt { seat, asking, entered: self.entered })
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        drop(self.attach());
    }
}

enum Advanced<'a> {
    In(Grip),
    Busy,
    Asks(Seat<'a>, Asking),
}

/// Takes its turns until there is something to send, or it is over.
fn advance<'a>(
    mut seat: Seat<'a>,
    mut core: MutexGuard<'a, Core>,
    limit: Moment,
    entered: Moment,
) -> Result<Advanced<'a>, Error> {
    let cell = seat.cell;
    loop {
        let now = Moment::now();
        match core.gate.turn(seat.ticket, now, cell.shared.inbox.is_up(), false, || cell.fresh()) {
            Turn::In(grip, next) => {
                core.wake(next);
                seat.taken = false;
                return super::acquire::welcome(cell, core, grip, now, entered).map(Advanced::In);
            }
            Turn::Ask(asking) => {
                drop(core);
                seat.asking = Some(asking.owner);
                return Ok(Advanced::Asks(seat, asking));
            }
            Turn::Confirm(owner, lease) => {
                drop(core);
                core = confirm(cell, owner, lease, now, limit);
            }
            Turn::Leave(leaving) => core = leave_queue(cell, core, leaving),
            Turn::Park(_) => {
                seat.leave(core);
                return Ok(Advanced::Busy);
            }
            ending => {
                let outcome = seat.ending(ending, &core, &Wait::once());
                seat.leave(core);
                return outcome.map(|_| Advanced::Busy);
            }
        }
    }
}

impl Attempt<'_> {
    /// What is to be sent.
    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    /// The lock that it is at.
    pub(crate) fn cell(&self) -> &Arc<Cell> {
        self.seat.cell
    }

    /// Takes it out of this thread.
    pub(crate) fn detach(self) -> Detached {
        let Attempt { mut seat, asking, entered } = self;
        seat.taken = false;
        Detached { cell: seat.cell.clone(), ticket: seat.ticket, entered, asking: Some(asking) }
    }

    /// Ends it: its request was not sent.
    pub(crate) fn called_off(mut self) {
        // Put back, as it drops.
        self.seat.sent = false;
        busy(self.seat.cell, self.entered);
    }

    /// Ends it by what Redis said; `None` where it is busy. A grant that has to be renewed first is renewed
    /// by `limit`.
    pub(crate) fn answered(
        self,
        outcome: Result<(Answer, bool), Failure>,
        limit: Moment,
    ) -> Result<Option<Grip>, Error> {
        let Attempt { mut seat, asking, entered } = self;
        let cell = seat.cell;
        let ended =
            seat.heard(asking.owner, outcome, true).and_then(|core| advance(seat, core, limit, entered));
        let waited = || Moment::now().since(entered);
        match ended {
            Ok(Advanced::In(grip)) => Ok(Some(grip)),
            // One attempt asks once: what it would ask anew is given up.
            Ok(Advanced::Busy | Advanced::Asks(..)) => {
                cell.shared.watch.tell(|o| o.not_acquired(cell.observed(), waited(), None));
                Ok(None)
            }
            Err(error) => {
                cell.shared.watch.tell(|o| o.not_acquired(cell.observed(), waited(), Some(&error)));
                Err(error)
            }
        }
    }
}
