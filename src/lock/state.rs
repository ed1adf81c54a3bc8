//! What the types of rich kinds are written with: a kind's own state, and updates of it that concern a hold.

use redis::{FromRedisValue, Value};

use super::RedisLock;
use crate::engine::call::change::change;
use crate::engine::operations::inspect::describe;
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, OwnedGuard, Ownership};
use crate::kind::Kind;
use crate::wait::Wait;

impl<K: Kind> RedisLock<K> {
    /// The same lock, on the same terms, with requests as `kind` makes them: for a kind with
    /// [arguments](Kind::args), such as a number of permits.
    #[must_use]
    pub fn with_kind(&self, kind: K) -> Self {
        RedisLock { kind: kind.into(), ..self.clone() }.asking()
    }

    /// Updates the state: calls the rule's `update` with the first three strings of `what`, then admits the
    /// waiters that can now be admitted. Applied once, even if the request is sent twice. Returns the list
    /// that the rule returns; a list of one can also be converted to that one's type. One request; blocks for
    /// at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` if the rule has no `update`, or fails. `OutcomeUnknown` if Redis did not reply: the
    /// update may have been applied, or may still be. `Protocol` if the list cannot be converted to a `T`.
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn update_state<T: FromRedisValue>(&self, what: &[&str]) -> Result<T, Error> {
        converted(self.name(), change(self.entry()?, what)?)
    }

    /// Returns what the rule's `describe` returns, as [`update_state`](RedisLock::update_state) does;
    /// `question` is its `F[6]`. One request; blocks for at most the command timeout, and no longer than
    /// `wait` allows, if this is part of a longer call.
    ///
    /// # Errors
    /// `InvalidInput` if the rule fails, `Protocol` if the list cannot be converted to a `T`. `Unavailable`,
    /// `WrongType`, `Closed`, `Forked`.
    pub fn describe_state<'w, T: FromRedisValue>(
        &self,
        question: &str,
        wait: impl Into<Wait<'w>>,
    ) -> Result<T, Error> {
        converted(self.name(), describe(self.entry()?, question, &wait.into())?)
    }
}

impl<K: Kind, O: Ownership> Guard<K, O> {
    /// The number that the rule's `try_acquire` returned after that of the hold: how many permits it has, say.
    /// 0 if there was none.
    pub fn value(&self) -> u64 {
        self.hold.value()
    }

    /// Updates the state as the holder: calls the rule's `update` with `what`, `arg`, and this hold's owner id.
    /// It must return `{1}`, or `{0}` if that owner has no hold: then this hold is lost. Otherwise like
    /// [`update_state`](RedisLock::update_state).
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold is lost. See also [`update_state`](RedisLock::update_state).
    pub fn update(&self, what: &str, arg: &str) -> Result<(), Error> {
        self.hold.update(what, arg)
    }
}

impl<K: Kind> OwnedGuard<K> {
    /// Ends the hold by an update, as when reserved goods are sold: calls the rule's `update` with the first
    /// three strings of `what`, under the owner id of this hold, `F[1]`. It must end that hold and return
    /// `{1}`, or `{0}` if there is none; as `again`, it must say which of the two it was, for a minute.
    ///
    /// Takes effect once, however often it has to be sent: while Redis does not reply, it is sent again, for
    /// as long as [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout) says, at most 30 s. Waits for
    /// the [replicas](RedisLock::with_replicas) that must have the hold. Usually one request.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold had ended before. `OutcomeUnknown` if there was no reply: the update
    /// was applied, or else the hold is released in the background. `Unavailable` if Redis accepted no request:
    /// the hold is released. `NotReplicated` if the update was applied, and too few replicas have it. `Forked`.
    pub fn conclude(self, what: &[&str]) -> Result<(), Error> {
        self.hold.conclude(what)
    }
}

fn converted<T: FromRedisValue>(name: &str, mut reply: Vec<Value>) -> Result<T, Error> {
    let only = if reply.len() == 1 { reply.first().cloned() } else { None };
    let whole = redis::from_redis_value(Value::Array(std::mem::take(&mut reply)));
    whole.or_else(|e| only.map_or(Err(e), redis::from_redis_value)).map_err(|e| {
        Error::new(ErrorKind::Protocol, name)
            .because("the rule's reply is not of the expected type")
            .caused_by(e)
    })
}
