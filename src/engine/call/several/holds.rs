//! Holds of several locks that are released together.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::release::{Stay, begin_release};
use crate::engine::call::replicas::{self, Replicas};
use crate::engine::call::{held, modes, unlock_failed};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::lock_at;
use crate::engine::operations::several;
use crate::engine::redis::slots::Slot;
use crate::engine::state::lock_state::{Acquired, HolderId, Request, Terms, Ticket};
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::settings::check_lease;
use crate::wait::Wait;

/// A lock as its handle asks for it, alone or among several.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) entry: Arc<LockEntry>,
    /// The same lock in its other mode.
    pub(crate) other_mode: Option<Arc<LockEntry>>,
    /// Whether a thread may re-enter its hold. (A constant of the kind, but looked up: otherwise the compiler lays out
    /// the rest of an acquisition so that a kept lock takes 5 % more.)
    pub(crate) counted: bool,
    pub(crate) terms: Terms,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) max_waiters: Option<usize>,
}

impl Part {
    /// Alters what is asked for. Returns the error of `alter`, or of terms that contradict each other.
    pub(crate) fn altered(
        mut self,
        alter: impl FnOnce(&mut Part) -> Result<(), String>,
    ) -> Result<Part, Error> {
        let altered = alter(&mut self).and_then(|()| replicas::agree(&self.terms, self.replicas));
        altered.map_err(|why| Error::new(ErrorKind::InvalidInput, self.entry.name()).because(why))?;
        Ok(self)
    }

    /// Returns the same part with a fixed lease.
    pub(crate) fn with_lease(self, lease: Duration) -> Result<Part, Error> {
        self.altered(|part| {
            (part.terms.lease, part.terms.fixed) = (lease, true);
            check_lease("lease", lease)
        })
    }

    pub(crate) fn request(&self, holder: HolderId, thread: u64, once: bool) -> Request {
        let (terms, most) = (self.terms.clone(), self.max_waiters.filter(|_| !once));
        Request { holder, thread, terms, once, from: None, instead: false, most }
    }

    /// Re-enters this thread's hold, if it has a valid one and nothing else is to be looked at. All else takes a
    /// [request](Self::request), which is not put together for this. (Inlined, it would cost the other calls more.)
    #[inline(never)]
    pub(crate) fn again(&self, holder: HolderId, thread: u64) -> Option<Acquired> {
        let may = self.other_mode.is_none() && self.replicas.is_none() && !self.entry.shared.is_closed();
        let now = may.then(Moment::now)?;
        lock_at(&self.entry, now).ok()?.lock_state.again(holder, thread, now)?.ok()
    }

    /// Fits the request to what this thread holds in the other mode. Returns the readers of this process if they
    /// must queue behind it.
    pub(crate) fn readers(&self, request: &mut Request) -> Result<Option<&Arc<LockEntry>>, Error> {
        let Some(other_mode) = &self.other_mode else { return Ok(None) };
        modes::consider(&self.entry, other_mode, request)
    }
}

/// What locks have in common that go by one request: they are of one client and have the same scripts, those of one kind,
/// and are in one slot, so they are on one server.
pub(super) fn common(entry: &LockEntry) -> (usize, usize, Slot) {
    (Arc::as_ptr(&entry.shared).addr(), Arc::as_ptr(&entry.scripts).addr(), entry.hash_slot)
}

/// Returns those together of which `common` is the same, in the order of the first of each.
pub(super) fn together<T, K: PartialEq>(
    all: impl Iterator<Item = T>,
    common: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let mut batches: Vec<(K, Vec<T>)> = Vec::new();
    for it in all {
        let of = common(&it);
        match batches.iter_mut().find(|(other, _)| *other == of) {
            Some((_, batch)) => batch.push(it),
            None => batches.push((of, vec![it])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Holds of several locks, released together.
pub(crate) struct Holds {
    held: Vec<HeldPart>,
    /// Until all are held at once: the timeouts of the call that acquires them, which also apply to giving back an
    /// incomplete set. A hold of such a set does not stay in Redis for a minimum hold time.
    pub(super) acquired_by: Option<Wait<'static>>,
}

/// A hold of one of the locks.
pub(crate) struct HeldPart {
    /// The part to which it belongs.
    part: usize,
    pub(crate) entry: Arc<LockEntry>,
    pub(crate) ticket: Ticket,
    /// For an exclusive lock, the hold's token when it began.
    first_token: Option<u64>,
}

impl HeldPart {
    /// Returns the hold's token, for an exclusive lock.
    pub(crate) fn token(&self) -> Option<u64> {
        self.first_token.map(|first| held::token(&self.entry, self.ticket).unwrap_or(first))
    }
}

impl Holds {
    pub(super) fn of(wait: &Wait<'_>) -> Holds {
        Holds { held: Vec::new(), acquired_by: Some(wait.uncancelled()) }
    }

    pub(super) fn add(&mut self, parts: &[Part], part: usize, acquired: Acquired) {
        let entry = &parts[part].entry;
        let first_token = (entry.shape.sharing == Sharing::Exclusive).then_some(acquired.token);
        let at = self.held.partition_point(|held| held.part < part);
        self.held.insert(at, HeldPart { part, entry: entry.clone(), ticket: acquired.ticket, first_token });
    }

    /// Returns these holds and, after them, the others.
    pub(crate) fn joined(mut self, mut others: Holds) -> Holds {
        let first = self.held.last().map_or(0, |held| held.part + 1);
        let moved = |held: HeldPart| HeldPart { part: first + held.part, ..held };
        self.held.extend(std::mem::take(&mut others.held).into_iter().map(moved));
        self
    }

    /// Checks that no hold was lost before the last one was acquired.
    pub(super) fn are_valid(&self) -> Result<(), Error> {
        let now = Moment::now();
        let lost = self.held.iter().find(|held| held::remaining(&held.entry, held.ticket, now).is_zero());
        let Some(HeldPart { entry, .. }) = lost else { return Ok(()) };
        let error = ErrorKind::LeaseLost.because("the lease expired before the other locks were acquired");
        Err(entry.error(error))
    }

    /// Returns the holds, in the order of the parts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HeldPart> {
        self.held.iter()
    }

    /// Releases them in reverse order, those that go by one request together. Returns the first error in the order of the
    /// parts, with its lock; the others are reported to the observers.
    pub(crate) fn release(&mut self, stay: Stay) -> Result<(), (Arc<LockEntry>, Error)> {
        let (all, mut errors) = (std::mem::take(&mut self.held), Vec::new());
        for batch in together(all.iter().rev(), |held| common(&held.entry)) {
            errors.extend(leave(&batch, stay, self.acquired_by.as_ref()));
        }
        errors.sort_by_key(|(held, _)| held.part);
        let mut errors = errors.into_iter();
        let first = errors.next();
        errors.for_each(|(held, error)| unlock_failed(&held.entry, &error));
        first.map_or(Ok(()), |(held, error)| Err((held.entry.clone(), error)))
    }
}

/// Releases the holds of one request, and returns the errors. For a `call` that did not acquire all of them, no hold stays
/// in Redis, and what the call has no time for is left to the renewal thread.
fn leave<'a>(batch: &[&'a HeldPart], stay: Stay, call: Option<&Wait<'_>>) -> Vec<(&'a HeldPart, Error)> {
    let stay = if call.is_some() { Stay::No } else { stay };
    let (mut releases, mut errors) = (Vec::new(), Vec::new());
    for &held in batch {
        let begun = begin_release(&held.entry, held.ticket, stay).and_then(|begun| {
            let Some(mut release) = begun else { return Ok(()) };
            if let Some(call) = call {
                release.within(call.limit(Moment::now(), held.entry.shared.config.command_timeout));
            }
            if release.is_late() || release.leaving.rest(Moment::now).is_some() {
                return release.sent();
            }
            releases.push((held, release));
            Ok(())
        });
        errors.extend(begun.err().map(|error| (held, error)));
    }
    let Some(limit) = releases.first().map(|(_, first)| first.limit) else { return errors };
    let all: Vec<_> = releases.iter().map(|(_, it)| (it.entry, &it.leaving, it.next.as_deref())).collect();
    let outcomes = several::leave_all(&all, limit);
    let outcomes = outcomes.unwrap_or_else(|failure| all.iter().map(|_| Err(failure.clone())).collect());
    for ((held, release), outcome) in releases.into_iter().zip(outcomes) {
        errors.extend(release.answered(outcome).err().map(|error| (held, error)));
    }
    errors
}

/// Reports errors to the observers, as no caller gets them.
impl Drop for Holds {
    fn drop(&mut self) {
        if let Err((entry, error)) = self.release(Stay::Agreed) {
            unlock_failed(&entry, &error);
        }
    }
}
