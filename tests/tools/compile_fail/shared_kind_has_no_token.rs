//! A token orders holds, of which there is one at a time: what many hold has none.

use redis_concurrent::Guard;
use redis_concurrent::kinds::{Kind, Reentrancy, Sharing, Simple};

struct Bulkhead;

impl Kind for Bulkhead {
    const NAME: &'static str = "bulkhead";
    const RULE: &'static str = "";
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
}

fn one_at_a_time(guard: &Guard<Simple>) -> u64 {
    guard.token()
}

fn many(guard: &Guard<Bulkhead>) -> u64 {
    guard.token() //~ `Bulkhead: redis_concurrent::kinds::Exclusive`
}

fn main() {}
