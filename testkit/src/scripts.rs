//! The scripts of the operations, for tests of a rule that call them one by one.

use redis_concurrent::internals;

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

/// Composes the operations over `rule` ([`Kind::RULE`](redis_concurrent::kinds::Kind::RULE)).
///
/// # Errors
///
/// Says what is wrong with the rule.
pub fn scripts(rule: &str) -> Result<ScriptTexts, String> {
    let mut texts = internals::scripts(rule)?;
    let (update, adopt) = (texts.remove("update"), texts.remove("adopt"));
    let mut text = |name| texts.remove(name).unwrap_or_default();
    Ok(ScriptTexts {
        acquire: text("acquire"),
        leave: text("leave"),
        renew: text("renew"),
        inspect: text("inspect"),
        update,
        adopt,
        wait_for: text("await"),
        quit: text("quit"),
        signal: text("signal"),
        all: text("all"),
    })
}
