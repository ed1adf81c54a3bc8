//! What latch, barrier and stock gate have in common: threads that come in each by a cell of its own, so that
//! none stands behind others of its process, and a state that calls change.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use redis::Value;

use crate::engine::acquire;
use crate::engine::change::change;
use crate::engine::entry::{Cell, Cells, made};
use crate::engine::redis::answers::number;
use crate::engine::redis::inspect::{Inspection, inspect};
use crate::engine::runtime::Shared;
use crate::engine::state::lock_state::{Grip, Request, Taker, Terms};
use crate::error::{Error, ErrorKind};
use crate::kind::Kind;
use crate::wait::Wait;

/// The meeting of one name.
pub(crate) struct Meeting<K> {
    /// For what is asked of its state; nobody waits there.
    cell: Result<Arc<Cell>, Error>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Meeting<K> {
    fn clone(&self) -> Self {
        Meeting { cell: self.cell.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Meeting<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

impl<K> Meeting<K> {
    pub(crate) fn name(&self) -> &str {
        match &self.cell {
            Ok(cell) => &cell.name,
            Err(error) => error.name(),
        }
    }

    pub(crate) fn cell(&self) -> Result<&Arc<Cell>, Error> {
        self.cell.as_ref().map_err(Clone::clone)
    }

    /// The same, of which every call says what is wrong with it.
    pub(crate) fn failing(mut self, error: Error) -> Self {
        self.cell = self.cell.and(Err(error));
        self
    }
}

impl<K: Kind> Meeting<K> {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        let cell = Cells::get(shared, TypeId::of::<K>(), name, || made::<K>(shared, name));
        Meeting { cell, kind: PhantomData }
    }

    /// Gets the calling thread in, by a cell of its own: what is told to one who waits (it is broken, it is
    /// reset) is not for those of its process who come later. `None` where the time is up.
    pub(crate) fn come_in(&self, args: &str, wait: &Wait<'_>) -> Result<Option<(Arc<Cell>, Grip)>, Error> {
        let config = &self.cell()?.shared.config;
        // A lease longer than the window would only be what the others wait for, should this process die.
        let lease = config.lease.min(config.waiter_timeout);
        self.come_in_on(Terms::new(lease, args), wait)
    }

    /// The same, on these terms.
    pub(crate) fn come_in_on(
        &self,
        terms: Terms,
        wait: &Wait<'_>,
    ) -> Result<Option<(Arc<Cell>, Grip)>, Error> {
        let own = Cells::alone(self.cell()?)?;
        let request =
            Request { taker: Taker::Guard, thread: 0, terms, once: wait.once, from: None, instead: false };
        Ok(acquire(&own, None, request, wait)?.map(|grip| (own, grip)))
    }

    /// Has the state changed, once, also where the request is sent twice. Returns the number that the rule
    /// answers.
    pub(crate) fn change(&self, what: &[&str]) -> Result<i64, Error> {
        let answer = change(self.cell()?, what)?;
        self.first(&answer)
    }

    /// What the rule says of the state, and who waits.
    pub(crate) fn inspect(&self) -> Result<(i64, Inspection), Error> {
        let inspection = self.ask("")?;
        Ok((self.first(&inspection.state)?, inspection))
    }

    /// What the rule says to this question, and who waits.
    pub(crate) fn ask(&self, question: &str) -> Result<Inspection, Error> {
        inspect(self.cell()?, question)
    }

    fn first(&self, answer: &[Value]) -> Result<i64, Error> {
        let strange = || Error::new(ErrorKind::Protocol, self.name()).because("the rule answered no number");
        number(answer.first()).ok_or_else(strange)
    }

    /// The error of a call on this name.
    pub(crate) fn error(&self, kind: ErrorKind, why: impl Into<String>) -> Error {
        Error::new(kind, self.name()).because(why)
    }
}
