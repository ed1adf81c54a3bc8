//! A kind's own state, for kinds that have one: updates and queries.

use redis::Value;

use super::RedisLock;
use crate::engine::call::change::change;
use crate::engine::operations::inspect::inspect;
use crate::error::Error;
use crate::kind::Kind;

impl<K: Kind> RedisLock<K> {
    /// Updates the state: calls the rule's `update` with the first three strings of `what`, then admits the
    /// waiters that can now be admitted. Applied once, even if the request is sent twice. Returns the list
    /// that the rule returns. One request; blocks for at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` if the rule has no `update`, or fails. `OutcomeUnknown` if Redis did not reply: the
    /// update may have been applied, or may still be. `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn update_state(&self, what: &[&str]) -> Result<Vec<Value>, Error> {
        change(self.entry()?, what)
    }

    /// Returns what the rule's `describe` returns; `question` is its `F[6]`. One request per page; blocks for
    /// at most the command timeout for each.
    ///
    /// # Errors
    /// `InvalidInput` if the rule fails. `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn describe_state(&self, question: &str) -> Result<Vec<Value>, Error> {
        Ok(inspect(self.entry()?, question)?.state)
    }
}
