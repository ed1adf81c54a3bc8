//! One of the locks that a call is about: what the call needs to know of it, and which locks go by one
//! request.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::call::replicas::{self, Replicas};
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::Terms;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::settings::check_lease;

/// A lock among several.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) entry: Arc<LockEntry>,
    /// The same lock in its other mode.
    pub(crate) other_mode: Option<Arc<LockEntry>>,
    pub(crate) sharing: Sharing,
    pub(crate) terms: Terms,
    pub(crate) replicas: Option<Replicas>,
}

impl Part {
    /// Returns the same part with a fixed lease.
    pub(crate) fn with_lease(mut self, lease: Duration) -> Result<Part, Error> {
        (self.terms.lease, self.terms.fixed) = (lease, true);
        let checked = check_lease("lease", lease).and_then(|()| replicas::agree(&self.terms, self.replicas));
        checked.map_err(|why| self.entry.error(ErrorKind::InvalidInput.because(why)))?;
        Ok(self)
    }
}

/// Returns whether both locks go by one request: they are of one client and one kind, so they have the same
/// scripts, and in one slot, so they are on one server.
pub(super) fn goes_with(a: &LockEntry, b: &LockEntry) -> bool {
    Arc::ptr_eq(&a.scripts, &b.scripts) && a.hash_slot == b.hash_slot
}
