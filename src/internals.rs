//! For the test kit, in the same version: not part of the public API, and without any guarantee of stability.

use crate::kind::Kind;
use crate::recipes::{fenced, rate_limiter};
use crate::{Client, Error, RedisLock, script};

/// The source text of the operations over one rule, as `EVAL` takes it. Each takes the lock's six keys, and
/// the arguments that are listed at the top of its file in `lua/lib/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptTexts {
    /// Acquire, take a queue position, or keep it alive.
    pub acquire: String,
    /// Leave the lock and the queue.
    pub leave: String,
    /// Renew a hold's lease.
    pub renew: String,
    /// List holders and waiters.
    pub inspect: String,
    /// Apply a user's update to the kind's state, for a rule that has `kind.update`.
    pub update: Option<String>,
    /// Transfer a hold from one owner to another, for a rule that has `kind.transfer`.
    pub adopt: Option<String>,
    /// `acquire` of a waiter for a condition.
    pub wait_for: String,
    /// `leave` of a waiter for a condition.
    pub quit: String,
    /// Signal a condition, or count its waiters.
    pub signal: String,
    /// `acquire` or `leave` of several locks in one script.
    pub all: String,
}

/// Composes the operations over `rule` ([`Kind::RULE`](crate::kinds::Kind::RULE)).
///
/// # Errors
///
/// Says what is wrong with the rule.
pub fn scripts(rule: &str) -> Result<ScriptTexts, String> {
    let made = script::Scripts::of(rule)?;
    let condition = script::Scripts::of_conditions(rule)?;
    let all = made.all().source.clone();
    Ok(ScriptTexts {
        all,
        acquire: made.acquire.source,
        leave: made.leave.source,
        renew: made.renew.source,
        inspect: made.inspect.source,
        update: made.update.map(|script| script.source),
        adopt: made.adopt.map(|script| script.source),
        wait_for: condition.acquire.source,
        quit: condition.leave.source,
        signal: condition.update.map(|signal| signal.source).unwrap_or_default(),
    })
}

/// Returns the source text of a script of `lua/rate_limiter/`, as `EVAL` takes it, with the limiter's key.
pub fn rate_limiter_script(source: &str) -> String {
    rate_limiter::script(source).source
}

/// Returns the source text of a user's script that runs only with a token that is high enough, as `EVAL`
/// takes it. The resource's key and the token come before the script's own keys and arguments.
pub fn fenced_script(source: &str) -> String {
    fenced::admitting(source).source
}

/// The keys of a lock, in the order of `KEYS` in every script.
///
/// # Errors
///
/// If the lock cannot be used: because of its name, say, or because its client is closed.
pub fn keys<K: Kind>(lock: &RedisLock<K>) -> Result<[String; 6], Error> {
    Ok(lock.entry()?.names.keys().map(|parts| parts.concat()))
}

/// The number of locks that a client has in use: those with a handle, a guard or a waiting thread. 0 in a forked
/// child, which uses none of its parent's locks.
pub fn lock_count(client: &Client) -> usize {
    client.shared().entries().map_or(0, |entries| entries.len())
}
