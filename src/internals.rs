//! For the crates of the same version beside this one: not part of the public interface, and without any guarantee.

use std::time::Instant;

use redis::RedisError;

use crate::clock::Moment;
use crate::engine::redis::refusal;
use crate::{Error, Kind, RedisLock, Wait, fenced, rate_limiter, script};

/// The source text of the operations over one rule: what `EVAL` takes, with the lock's six keys and the
/// arguments that `lua/lib/` names in the head of each operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripts {
    /// Acquire, take a queue position, or keep it alive.
    pub acquire: String,
    /// Out of the lock and the queue.
    pub leave: String,
    /// Set a hold's lease anew.
    pub renew: String,
    /// Holders and waiters.
    pub inspect: String,
    /// Apply an update of the kind's user to its state, for a rule that has `kind.update`.
    pub change: Option<String>,
    /// Make one owner's hold another's, for a rule that has `kind.transfer`.
    pub adopt: Option<String>,
    /// `acquire` of a waiter for a condition.
    pub wait_for: String,
    /// `leave` of a waiter for a condition.
    pub quit: String,
    /// Signal a condition, or count its waiters.
    pub signal: String,
    /// `acquire` or `leave` of several locks in one.
    pub all: String,
}

/// Composes the operations over `rule` ([`Kind::RULE`](crate::Kind::RULE)).
///
/// # Errors
///
/// What is wrong with the rule.
pub fn scripts(rule: &str) -> Result<Scripts, String> {
    let made = script::Scripts::of(rule)?;
    let condition = script::Scripts::of_conditions(rule)?;
    let all = made.all().source.clone();
    Ok(Scripts {
        all,
        acquire: made.acquire.source,
        leave: made.leave.source,
        renew: made.renew.source,
        inspect: made.inspect.source,
        change: made.change.map(|script| script.source),
        adopt: made.adopt.map(|script| script.source),
        wait_for: condition.acquire.source,
        quit: condition.leave.source,
        signal: condition.change.map(|signal| signal.source).unwrap_or_default(),
    })
}

/// The source text of a script of `lua/rate_limiter/`: what `EVAL` takes, with the limiter's key.
pub fn rate_limiter_script(source: &str) -> String {
    rate_limiter::script(source).source
}

/// The source text of a user's script that runs only with a token that is high enough: what `EVAL` takes, with
/// the resource's key and the token before the script's own keys and arguments.
pub fn fenced_script(source: &str) -> String {
    fenced::admitting(source).source
}

/// The keys of a lock, in the order of `KEYS` in every script.
///
/// # Errors
///
/// If the lock cannot work: for its name, say, or because its client is closed.
pub fn keys<K: Kind>(lock: &RedisLock<K>) -> Result<[String; 6], Error> {
    Ok(lock.entry()?.names.keys().map(|parts| parts.concat()))
}

/// Whether a server does not have a command, or was configured not to have it.
pub fn is_unknown_command(e: &RedisError) -> bool {
    refusal::is_unknown(e)
}

/// `wait` for a caller that has waited for its turn to call since `arrived`, one after another: the time for which it
/// bears that Redis is out of reach began then.
pub fn arrived(wait: Wait<'_>, arrived: Instant) -> Wait<'_> {
    Wait { arrived: Some(Moment::now().before(arrived.elapsed())), ..wait }
}

/// Something that waits as a lock of one name does: its queue in this process.
pub trait Queued {
    /// A number of the queue, the same for all handles of one client, kind and name as long as one of them lives;
    /// `None` if the lock cannot work.
    fn queue(&self) -> Option<usize>;
}

impl<K: Kind> Queued for RedisLock<K> {
    fn queue(&self) -> Option<usize> {
        Some(std::sync::Arc::as_ptr(self.entry().ok()?).addr())
    }
}

/// Whether so many permits can be asked for, and if not, the error of each call that does.
///
/// # Errors
///
/// `InvalidInput` for a number out of range.
pub fn check_permits(semaphore: &crate::Semaphore, n: u32) -> Result<(), Error> {
    semaphore.checked(n).map(drop)
}

impl Queued for crate::Semaphore {
    fn queue(&self) -> Option<usize> {
        self.lock().queue()
    }
}
