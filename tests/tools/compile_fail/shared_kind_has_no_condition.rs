//! A condition's waiter must have held the lock alone: a kind with several holders has no condition.

use redis_concurrent::RedisLock;
use redis_concurrent::kinds::{Kind, Reentrancy, Sharing, Simple};

struct Bulkhead;

impl Kind for Bulkhead {
    const NAME: &'static str = "bulkhead";
    const RULE: &'static str = "";
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
}

fn one_at_a_time(lock: &RedisLock<Simple>) {
    lock.condition("not_empty");
}

fn many(lock: &RedisLock<Bulkhead>) {
    lock.condition("not_empty"); //~ `Bulkhead: redis_concurrent::kinds::Exclusive`
}

fn main() {}
