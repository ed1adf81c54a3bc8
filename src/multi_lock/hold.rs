//! The hold of a multi-lock: the holds of its locks, which end together.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::engine::call::held;
use crate::engine::call::release::Stay;
use crate::engine::call::several::Holds;
use crate::engine::call::unheard;
use crate::engine::call::warning;
use crate::error::Error;
use crate::guard::sealed::AnyHold;
use crate::observe::{LockInfo, Span};

/// A hold of each of several locks.
pub struct MultiHold {
    /// The names of all locks.
    pub(super) name: Arc<str>,
    pub(super) holds: Holds,
    /// Cancelled when any of the holds is lost; made on first use, then kept, as callers have clones.
    lost: OnceLock<CancellationToken>,
    _span: Option<Span>,
}

impl AnyHold for MultiHold {
    fn name(&self) -> &str {
        &self.name
    }

    /// Always `None`: there is a token for each lock.
    fn token(&self) -> Option<u64> {
        None
    }

    fn remaining(&self) -> Duration {
        let each = self.holds.iter().map(|held| held::remaining(&held.entry, held.ticket));
        each.min().unwrap_or_default()
    }

    fn lost(&self) -> CancellationToken {
        let each = || self.holds.iter().map(|held| held::lost_token(&held.entry, held.ticket));
        // Checked again each time, so that a loss that has just happened is reported.
        if let Some(lost) = each().find(CancellationToken::is_cancelled) {
            return lost;
        }
        let any = || {
            let any = CancellationToken::new();
            each().for_each(|lost| lost.cancels(&any));
            any
        };
        self.lost.get_or_init(any).clone()
    }

    /// Renews each hold; returns the first error, in the order of the locks.
    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        let renewed = self.holds.iter().map(|held| held::renew_for(&held.entry, held.ticket, lease));
        renewed.fold(Ok(()), Result::and)
    }

    /// Releases all holds; returns the first error, in the order of the locks. Other errors are reported to
    /// observers.
    fn release(self) -> Result<(), Error> {
        self.release_as(Stay::Agreed)
    }

    fn loss(&self) -> Option<Error> {
        self.holds.iter().find_map(|held| held::loss(&held.entry, held.ticket))
    }

    fn time_left(&self) -> warning::Holds {
        self.holds.iter().map(|held| held::time_left(&held.entry, held.ticket)).collect()
    }
}

impl MultiHold {
    pub(super) fn new(name: Arc<str>, holds: Holds) -> Self {
        let span = Span::hold(|| LockInfo { kind: "multi-lock", name: &name, is_held: true });
        MultiHold { name, holds, lost: OnceLock::new(), _span: span }
    }

    pub(super) fn joined(self, other: MultiHold) -> Self {
        let name = format!("{} + {}", self.name, other.name);
        MultiHold::new(name.into(), self.holds.joined(other.holds))
    }

    pub(super) fn release_as(self, stay: Stay) -> Result<(), Error> {
        let mut errors = self.holds.release(stay).into_iter();
        let first = errors.next();
        for (entry, error) in errors {
            unheard(&entry, &error);
        }
        first.map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl fmt::Debug for MultiHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.holds.iter().map(|held| (&held.entry, held.token()));
        f.debug_list().entries(each).finish()
    }
}
