//! What latches, barriers and inventories have in common: each caller asks Redis through an entry of its own,
//! so that it does not queue behind others of its process, and calls update a shared state.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use redis::Value;

use crate::engine::call::acquire;
use crate::engine::call::change::change;
use crate::engine::entries::entry::{LockEntries, LockEntry, made};
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::inspect::{Inspection, describe, inspect};
use crate::engine::redis::answers::number;
use crate::engine::state::lock_state::{Acquired, HolderId, Request, Terms};
use crate::error::{Error, ErrorKind};
use crate::kind::Kind;
use crate::wait::Wait;

/// The callers of one name.
pub(crate) struct PerCaller<K> {
    /// For reading and updating the state; no thread waits there.
    entry: Result<Arc<LockEntry>, Error>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for PerCaller<K> {
    fn clone(&self) -> Self {
        PerCaller { entry: self.entry.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for PerCaller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

impl<K> PerCaller<K> {
    pub(crate) fn name(&self) -> &str {
        match &self.entry {
            Ok(entry) => entry.name(),
            Err(error) => error.name(),
        }
    }

    pub(crate) fn entry(&self) -> Result<&Arc<LockEntry>, Error> {
        self.entry.as_ref().map_err(Clone::clone)
    }

    /// The same callers, with an error that every call returns.
    pub(crate) fn failing(mut self, error: Error) -> Self {
        self.entry = self.entry.and(Err(error));
        self
    }
}

impl<K: Kind> PerCaller<K> {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        let entry = LockEntries::get(shared, TypeId::of::<K>(), name, || made::<K>(shared, name));
        PerCaller { entry, kind: PhantomData }
    }

    /// Waits until the calling thread is admitted, through an entry of its own: a message for one waiter
    /// (that the synchronizer was broken, or reset) does not concern later callers of its process. `None` if
    /// the time is up.
    pub(crate) fn acquire(
        &self,
        args: &str,
        wait: &Wait<'_>,
    ) -> Result<Option<(Arc<LockEntry>, Acquired)>, Error> {
        let config = &self.entry()?.shared.config;
        // A lease longer than the waiter timeout would only make the others wait longer if this process dies.
        let lease = config.lease.min(config.waiter_timeout);
        self.acquire_on(Terms::new(lease, args), wait)
    }

    /// The same, on these terms.
    pub(crate) fn acquire_on(
        &self,
        terms: Terms,
        wait: &Wait<'_>,
    ) -> Result<Option<(Arc<LockEntry>, Acquired)>, Error> {
        let own = LockEntries::alone(self.entry()?)?;
        let request = Request {
            holder: HolderId::Guard,
            thread: 0,
            terms,
            once: wait.once,
            from: None,
            instead: false,
        };
        Ok(acquire(&own, None, &request, wait)?.map(|acquired| (own, acquired)))
    }

    /// Updates the state, once, even if the request is sent twice. Returns the rule's reply, a number.
    pub(crate) fn change(&self, what: &[&str]) -> Result<i64, Error> {
        change_number(self.entry()?, what)
    }

    /// The rule's description of the state, a number, and the waiters.
    pub(crate) fn inspect(&self) -> Result<(i64, Inspection), Error> {
        let inspection = self.ask("")?;
        Ok((first(self.name(), &inspection.state)?, inspection))
    }

    /// The rule's reply to this question, and the waiters.
    pub(crate) fn ask(&self, question: &str) -> Result<Inspection, Error> {
        inspect(self.entry()?, question)
    }

    /// The rule's reply alone to this question, which must fit one page. Takes no longer than `wait` allows.
    pub(crate) fn describe(&self, question: &str, wait: &Wait<'_>) -> Result<Vec<Value>, Error> {
        describe(self.entry()?, question, wait)
    }

    /// The error of a call on this name.
    pub(crate) fn error(&self, kind: ErrorKind, why: impl Into<String>) -> Error {
        Error::new(kind, self.name()).because(why)
    }
}

/// Updates the state behind this entry, once, even if the request is sent twice. Returns the rule's reply, a
/// number.
pub(crate) fn change_number(entry: &Arc<LockEntry>, what: &[&str]) -> Result<i64, Error> {
    first(entry.name(), &change(entry, what)?)
}

fn first(name: &str, answer: &[Value]) -> Result<i64, Error> {
    let unexpected_reply =
        || Error::new(ErrorKind::Protocol, name).because("the rule's reply is not a number");
    number(answer.first()).ok_or_else(unexpected_reply)
}
