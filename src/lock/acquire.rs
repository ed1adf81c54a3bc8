//! The ways to acquire a lock: a module of its own, declared first, so that they open the type's page.

use crate::forms::forms;
use crate::kind::Kind;
use crate::lock::RedisLock;

impl<K: Kind> RedisLock<K> {
    forms!(K);
}
