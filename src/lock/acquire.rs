//! The ways to acquire a lock. In a module of their own, and declared first, so that the type's page begins with them.

use crate::forms::forms;
use crate::kind::Kind;
use crate::lock::RedisLock;

impl<K: Kind> RedisLock<K> {
    forms!(K);
}
