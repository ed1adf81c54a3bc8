//! For the test kit, in the same version: not part of the public API, and without any guarantee of stability.

use std::collections::BTreeMap;

use crate::kind::Kind;
use crate::recipes::{fenced, rate_limiter};
use crate::script::Scripts;
use crate::{Client, Error, RedisLock};

/// Composes the operations over `rule` ([`Kind::RULE`](crate::kinds::Kind::RULE)). Returns their source texts by the
/// names of their files in `lua/lib/`.
///
/// # Errors
///
/// Says what is wrong with the rule.
pub fn scripts(rule: &str) -> Result<BTreeMap<&'static str, String>, String> {
    let (made, condition) = (Scripts::of(rule)?, Scripts::of_conditions(rule)?);
    let all = made.all().source.clone();
    let each = [
        ("acquire", Some(made.acquire)),
        ("leave", Some(made.leave)),
        ("renew", Some(made.renew)),
        ("inspect", Some(made.inspect)),
        ("update", made.update),
        ("adopt", made.adopt),
        ("await", Some(condition.acquire)),
        ("quit", Some(condition.leave)),
        ("signal", condition.update),
    ];
    let texts = each.into_iter().filter_map(|(name, script)| Some((name, script?.source)));
    Ok(texts.chain([("all", all)]).collect())
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
