//! The locks of other libraries, each in its own format: Redisson's and Spring Integration's.

use crate::kind::{Exclusive, Kind, Reentrancy};

const RULE: &str = rule_file!("../../lua/redisson.lua");

/// The kind of [`RedissonLock`](crate::interop::RedissonLock): a hash as Redisson's `RLock` keeps it, which Java
/// programs lock by `redisson.getLock(key)`. See [`Client::redisson_lock`](crate::Client::redisson_lock).
///
/// A thread that holds it may lock it again. As with the [reentrant lock](crate::kinds::Reentrant), **the hold count
/// is kept in the process**: in Redis it is 1. Redisson counts its own holds there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redisson;

impl Kind for Redisson {
    const NAME: &'static str = "Redisson lock";
    const RULE: &'static str = RULE;
    const REENTRANCY: Reentrancy = Reentrancy::Counted;
}

impl Exclusive for Redisson {}

/// The kind of [`RedissonFencedLock`](crate::interop::RedissonFencedLock): the same hash, and beside it the counter of
/// Redisson's `RFencedLock`, from which each hold on either side gets its fencing token. See
/// [`Client::redisson_fenced_lock`](crate::Client::redisson_fenced_lock).
#[derive(Clone, Copy, Debug, Default)]
pub struct RedissonFenced;

impl Kind for RedissonFenced {
    const NAME: &'static str = "Redisson fenced lock";
    const RULE: &'static str = RULE;
    const REENTRANCY: Reentrancy = Reentrancy::Counted;
    const TOKEN_IS_VALUE: bool = true;

    fn args(&self) -> String {
        "fenced".to_owned()
    }
}

impl Exclusive for RedissonFenced {}

/// The kind of [`SpringLock`](crate::interop::SpringLock): a string as Spring Integration's `RedisLockRegistry` keeps
/// it, and the channel of its `PUB_SUB_LOCK` mode. See [`Client::spring_lock`](crate::Client::spring_lock).
///
/// A thread that holds it may lock it again. As with the [reentrant lock](crate::kinds::Reentrant), **the hold count
/// is kept in the process**.
#[derive(Clone, Debug)]
pub struct Spring {
    channel: String,
}

impl Spring {
    /// The kind of the locks of the registry with this key.
    pub(crate) fn of(registry: &str) -> Self {
        Spring { channel: format!("{registry}-channel") }
    }
}

impl Kind for Spring {
    const NAME: &'static str = "Spring lock";
    const RULE: &'static str = rule_file!("../../lua/spring.lua");
    const REENTRANCY: Reentrancy = Reentrancy::Counted;

    fn args(&self) -> String {
        self.channel.clone()
    }
}

impl Exclusive for Spring {}
