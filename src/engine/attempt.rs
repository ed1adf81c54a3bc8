//! One attempt in two halves, so that attempts at several locks can be in flight at the same time: first all
//! are written, then all are read.
//!
//! It never parks: what a single call would wait for (a leave in flight, a request of another thread) is busy
//! here. A waiting call waits for one lock, by [`acquire`](super::acquire()).

use std::sync::Arc;

use super::entry::LockEntry;
use super::redis::failure::Failure;
use super::state::lock_state::{Acquired, Answer, Asking, Request, Ticket};
use super::waiter::{Arrival, MayPark, Progress, Waiter, this_name};
use super::{held, take_back};
use crate::clock::Moment;
use crate::error::Error;
use crate::wait::Wait;

/// How an attempt begins.
#[allow(
    clippy::large_enum_variant,
    reason = "it is on the stack for one attempt, and a box would cost an allocation"
)]
pub(crate) enum Begun<'a> {
    /// It is over: the thread holds the lock already, or shares a hold with others.
    In(Acquired),
    /// It is over: a thread of this process is in the way.
    Busy,
    /// Its request must be sent.
    Asks(Attempt<'a>),
}

/// An attempt whose request must be sent, or was. Dropped without an [answer](Attempt::answered), it counts
/// as sent: what it may have been granted is given back in the background.
pub(crate) struct Attempt<'a> {
    waiter: Waiter<'a>,
    asking: Asking,
}

/// Begins an attempt by `request`, which must be [`once`](Request::once). Redis is not asked anything yet,
/// except, by `limit`, for what need not wait for others' requests: a grant that waits here for its thread is renewed,
/// and a thread that joins others may ask whether still others may.
pub(crate) fn begin<'a>(
    entry: &'a Arc<LockEntry>,
    request: &Request,
    limit: Moment,
) -> Result<Begun<'a>, Error> {
    let entered = Moment::now();
    let mut waiter = match Waiter::enter(entry, None, request, Wait::once(), entered, || limit)? {
        Arrival::In(acquired)
            if acquired.is_outermost() && held::remaining(entry, acquired.ticket).is_zero() =>
        {
            take_back(entry, acquired.ticket, limit);
            return Ok(busy(entry, entered));
        }
        Arrival::In(acquired) => return Ok(Begun::In(acquired)),
        Arrival::Busy => return Ok(busy(entry, entered)),
        Arrival::Waits(waiter) => waiter,
    };
    Ok(match waiter.advance(MayPark::No { limit })? {
        Progress::In(acquired) => Begun::In(acquired),
        Progress::Over => busy(entry, entered),
        Progress::Ask(asking, _) => {
            waiter.sends();
            Begun::Asks(Attempt { waiter, asking })
        }
    })
}

fn busy<'a>(entry: &Arc<LockEntry>, entered: Moment) -> Begun<'a> {
    let waited = Moment::now().since(entered);
    entry.shared.observers.tell_often(|o| o.not_acquired(entry.observed(), waited, None));
    Begun::Busy
}

/// An attempt whose reply another thread will read. Dropped, it is given back as an [`Attempt`] is.
pub(crate) struct Detached {
    entry: Arc<LockEntry>,
    ticket: Ticket,
    entered: Moment,
    /// Until it is resumed.
    asking: Option<Asking>,
}

impl Detached {
    /// It is resumed in this thread; once.
    pub(crate) fn attach(&mut self) -> Option<Attempt<'_>> {
        let asking = self.asking.take()?;
        let waiter = Waiter::resumed(&self.entry, self.ticket, self.entered, asking.owner);
        Some(Attempt { waiter, asking })
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        drop(self.attach());
    }
}

impl Attempt<'_> {
    /// What must be sent.
    pub(crate) fn asking(&self) -> &Asking {
        &self.asking
    }

    /// The lock that it is for.
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        self.waiter.entry
    }

    /// Moves it out of this thread.
    pub(crate) fn detach(self) -> Detached {
        let Attempt { mut waiter, mut asking } = self;
        asking.thread = this_name();
        waiter.is_passed_on();
        let Waiter { entry, ticket, entered, .. } = waiter;
        Detached { entry: entry.clone(), ticket, entered, asking: Some(asking) }
    }

    /// Ends it: its request was not sent.
    pub(crate) fn called_off(mut self) {
        self.waiter.called_off();
        busy(self.waiter.entry, self.waiter.entered);
    }

    /// Ends it with Redis's reply; `None` if it is busy. A grant that has to be renewed first is renewed by
    /// `limit`.
    pub(crate) fn answered(
        self,
        outcome: Result<(Answer, bool), Failure>,
        limit: Moment,
    ) -> Result<Option<Acquired>, Error> {
        let Attempt { mut waiter, asking } = self;
        let (entry, entered) = (waiter.entry, waiter.entered);
        let ended = waiter.heard(asking.owner, outcome).and_then(|()| waiter.advance(MayPark::No { limit }));
        let ended = match ended {
            Ok(Progress::In(acquired)) => return Ok(Some(acquired)),
            // One attempt asks once: what it would ask anew is given up.
            Ok(Progress::Over | Progress::Ask(..)) => Ok(None),
            Err(error) => Err(error),
        };
        drop(waiter);
        let waited = Moment::now().since(entered);
        entry.shared.observers.tell_often(|o| o.not_acquired(entry.observed(), waited, ended.as_ref().err()));
        ended
    }
}
