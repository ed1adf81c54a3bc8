//! One attempt in two halves, so that attempts at several locks can be in flight at the same time: all
//! requests are written before any reply is read.
//!
//! An attempt never parks: what a single call would wait for (a leave in flight, another thread's request)
//! counts as busy here. A call that waits does so for one lock, by [`acquire`](crate::engine::call::acquire()).

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::call::acquire::not_acquired;
use crate::engine::call::waiter::{MayPark, Position, Progress, UNHEARD, Waiter};
use crate::engine::call::{How, end, held};
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{Acquired, Answer, Asking, Request, Ticket};
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// An attempt whose request must be sent, or was; whichever thread goes on with it. If it is dropped without an
/// [answer](OneTry::answered), its request counts as sent: whatever it was granted is given back in the background.
pub(crate) struct OneTry {
    pub(crate) entry: Arc<LockEntry>,
    /// The request to send.
    pub(crate) asking: Asking,
    ticket: Ticket,
    entered: Moment,
    over: bool,
}

/// Begins an attempt by `request`, which must be [`once`](Request::once). Two requests need not wait for the
/// other attempts, and are sent here, within `limit`: the renewal of a grant that waits here for its thread,
/// and the question of a thread that joins others whether still more may join.
pub(crate) fn begin(
    entry: &Arc<LockEntry>,
    request: &Request,
    entered: Moment,
    limit: Moment,
) -> Result<Progress<OneTry>, Error> {
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
            waiter.position = Position::Left;
            let (entry, ticket) = (entry.clone(), waiter.ticket);
            Progress::Next(OneTry { entry, asking, ticket, entered, over: false })
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

impl OneTry {
    /// Its place in the lock state, which is given up when that is dropped; and its request, if it was `sent`.
    fn ends(&mut self, sent: bool) -> Waiter<'_> {
        self.over = true;
        let position = Position::Asking { owner: self.asking.owner, sent };
        Waiter::resumed(&self.entry, self.ticket, self.entered, position)
    }

    /// Ends the attempt, whose request was not sent: it is due again.
    pub(crate) fn called_off(mut self) {
        let waiter = self.ends(false);
        not_acquired(waiter.entry, waiter.entered, None);
    }

    /// Ends the attempt with Redis's reply. Returns `None` if the lock is busy. A grant that must be renewed
    /// before it is used is renewed within `limit`.
    pub(crate) fn answered(
        mut self,
        outcome: Result<(Answer, bool), Failure>,
        limit: Moment,
    ) -> Result<Option<Acquired>, Error> {
        let owner = self.asking.owner;
        let mut waiter = self.ends(true);
        let (entry, entered) = (waiter.entry, waiter.entered);
        let ended = waiter.learn(owner, outcome).and_then(|()| waiter.advance(MayPark::No { limit }));
        let ended = match ended {
            Ok(Progress::In(acquired)) => return Ok(Some(acquired)),
            // An attempt asks once; a request to ask again is given up.
            Ok(Progress::Out | Progress::Next(_)) => Ok(None),
            Err(error) => Err(error),
        };
        drop(waiter);
        not_acquired(entry, entered, ended.as_ref().err());
        ended
    }
}

impl Drop for OneTry {
    fn drop(&mut self) {
        if !self.over {
            drop(self.ends(true));
        }
    }
}
