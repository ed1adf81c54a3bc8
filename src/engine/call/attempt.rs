//! One attempt in two halves, so that attempts at several locks can be in flight at the same time: all
//! requests are written before any reply is read.
//!
//! An attempt never parks: what a single call would wait for (a leave in flight, another thread's request)
//! counts as busy here. A call that waits does so for one lock, by [`acquire`](crate::engine::call::acquire()).

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::call::acquire::not_acquired;
use crate::engine::call::waiter::{MayPark, Position, Progress, UNHEARD, Waiter, this_name};
use crate::engine::call::{How, end, held};
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{Acquired, Answer, Asking, Request, Ticket};
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// An attempt whose request must be sent, or was. If it is dropped without an [answer](OneTry::answered),
/// its request counts as sent: whatever it was granted is given back in the background. (Used in a box, as it is moved a
/// dozen times.)
pub(crate) struct OneTry<'a> {
    waiter: Waiter<'a>,
    asking: Asking,
}

/// Begins an attempt by `request`, which must be [`once`](Request::once). Two requests need not wait for the
/// other attempts, and are sent here, within `limit`: the renewal of a grant that waits here for its thread,
/// and the question of a thread that joins others whether still more may join.
pub(crate) fn begin<'a>(
    entry: &'a Arc<LockEntry>,
    request: &Request,
    entered: Moment,
    limit: Moment,
) -> Result<Progress<Box<OneTry<'a>>>, Error> {
    let mut waiter = match Waiter::enter(entry, None, request, Wait::once(), entered, || limit)? {
        Progress::In(acquired)
            if acquired.is_outermost() && held::remaining(entry, acquired.ticket, entered).is_zero() =>
        {
            end(entry, acquired.ticket, How::Unused(limit))?;
            return Ok(busy(entry, entered));
        }
        Progress::In(acquired) => return Ok(Progress::In(acquired)),
        Progress::Out => return Ok(busy(entry, entered)),
        Progress::Next(waiter) => waiter,
    };
    Ok(match waiter.advance(MayPark::No { limit })? {
        Progress::In(acquired) => Progress::In(acquired),
        Progress::Out => busy(entry, entered),
        Progress::Next((asking, _)) => {
            waiter.position = Position::Asking { owner: asking.owner, sent: true };
            Progress::Next(Box::new(OneTry { waiter, asking }))
        }
    })
}

fn busy<T>(entry: &Arc<LockEntry>, entered: Moment) -> Progress<T> {
    not_acquired(entry, entered, None);
    Progress::Out
}

/// Whether it is unknown that the lock is busy, although an attempt at it was: the request of another call of this
/// process has had no reply for too long. Returns the error for that.
pub(crate) fn unheard(entry: &LockEntry) -> Option<Error> {
    let is_unheard = entry.core.lock().lock_state.is_unheard(Moment::now(), UNHEARD);
    let why = "another call of this process waits for its reply";
    is_unheard.then(|| ErrorKind::Unavailable.because(why))
}

/// An attempt whose reply another thread will read. Dropping it has the same effect as dropping an
/// [`OneTry`].
pub(crate) struct Detached {
    entry: Arc<LockEntry>,
    ticket: Ticket,
    entered: Moment,
    /// `None` once it is resumed.
    asking: Option<Asking>,
}

impl Detached {
    /// Resumes the attempt in this thread. Returns `None` from the second time on.
    pub(crate) fn attach(&mut self) -> Option<Box<OneTry<'_>>> {
        let asking = self.asking.take()?;
        let waiter = Waiter::resumed(&self.entry, self.ticket, self.entered, asking.owner);
        Some(Box::new(OneTry { waiter, asking }))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        drop(self.attach());
    }
}

impl<'a> OneTry<'a> {
    /// The request to send.
    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    /// The lock that the attempt is for.
    pub(crate) fn entry(&self) -> &'a Arc<LockEntry> {
        self.waiter.entry
    }

    /// Makes the attempt one that another thread can resume.
    pub(crate) fn detach(self: Box<Self>) -> Detached {
        let OneTry { mut waiter, mut asking } = *self;
        asking.thread = this_name();
        waiter.position = Position::Left;
        let Waiter { entry, ticket, entered, .. } = waiter;
        Detached { entry: entry.clone(), ticket, entered, asking: Some(asking) }
    }

    /// Ends the attempt, whose request was not sent.
    pub(crate) fn called_off(mut self: Box<Self>) {
        if let Position::Asking { sent, .. } = &mut self.waiter.position {
            // Dropping the waiter makes it due again.
            *sent = false;
        }
        not_acquired(self.waiter.entry, self.waiter.entered, None);
    }

    /// Ends the attempt with Redis's reply. Returns `None` if the lock is busy. A grant that must be renewed
    /// before it is used is renewed within `limit`.
    pub(crate) fn answered(
        mut self: Box<Self>,
        outcome: Result<(Answer, bool), Failure>,
        limit: Moment,
    ) -> Result<Option<Acquired>, Error> {
        let OneTry { waiter, asking } = &mut *self;
        let (entry, entered) = (waiter.entry, waiter.entered);
        let ended = waiter.learn(asking.owner, outcome).and_then(|()| waiter.advance(MayPark::No { limit }));
        let ended = match ended {
            Ok(Progress::In(acquired)) => return Ok(Some(acquired)),
            // An attempt asks once; a request to ask again is given up.
            Ok(Progress::Out | Progress::Next(_)) => Ok(None),
            Err(error) => Err(error),
        };
        drop(self);
        not_acquired(entry, entered, ended.as_ref().err());
        ended
    }
}
