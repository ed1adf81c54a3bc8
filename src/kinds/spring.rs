//! Spring Integration's locks, in its own format.

use crate::kind::{Exclusive, Kind, Reentrancy, Sharing};

const RULE: &str = rule_file!("../../lua/spring.lua");

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
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Exclusive;
    const REENTRANCY: Reentrancy = Reentrancy::Counted;

    fn args(&self) -> String {
        self.channel.clone()
    }
}

impl Exclusive for Spring {}
