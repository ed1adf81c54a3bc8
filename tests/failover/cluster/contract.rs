//! The contract of all locks, on a cluster. For all kinds: `make contract ON=cluster`.

use redis_concurrent_testkit::contract;

#[test]
fn reentrant() {
    contract::run_on_cluster(|client, name| client.reentrant_lock(name));
}

#[test]
#[ignore = "takes as long as on one server"]
fn simple_at_a_key_fair() {
    contract::run_on_cluster(|client, key| client.simple_lock_at(key).fair());
}
