//! A kind's own state, for kinds that have one: what their users do to it and ask about it.

use redis::Value;

use super::RedisLock;
use crate::engine::change::change;
use crate::engine::redis::inspect::inspect;
use crate::error::Error;
use crate::kind::Kind;

impl<K: Kind> RedisLock<K> {
    /// Updates the state: calls the rule's `update` with the first three texts of `what`, and then admits the waiters
    /// that may be admitted now. Done once, even if the request is sent twice. Returns the rule's list. One request;
    /// blocks for the command timeout at most.
    ///
    /// # Errors
    /// `InvalidInput` if the rule has no `update`, or fails. `OutcomeUnknown` if Redis did not reply: the update may
    /// have been made, or may still be. `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn update_state(&self, what: &[&str]) -> Result<Vec<Value>, Error> {
        change(self.entry()?, what)
    }

    /// What the rule's `describe` returns; `question` is its `F[6]`. One request a page; blocks for the command
    /// timeout at most for each.
    ///
    /// # Errors
    /// `InvalidInput` if the rule fails. `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn describe_state(&self, question: &str) -> Result<Vec<Value>, Error> {
        Ok(inspect(self.entry()?, question)?.state)
    }
}
