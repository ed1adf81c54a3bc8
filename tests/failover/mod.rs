//! Histories through failovers: processes hold and wait while one primary after the other is killed, frozen, cut off,
//! replaced or restarted, and slots and nodes of a cluster come and go, and write down what they got. Two may hold at
//! once only where replication was behind, and both must see it; no waiter is forgotten.
//!
//! `make failover KIND=sentinel|cluster SEED=7 SECONDS=60`, and `REPLICAS=1` for holds that a replica has acknowledged, whose
//! primaries are only killed; `STRIKE=minority` for one kind of failover only (`topology.rs` lists them). It prints what it
//! counted as a line of JSON.

pub mod check;
mod check_tests;
mod run;
mod topology;
pub mod worker;

use std::time::Duration;

use redis_concurrent_testkit::is_role;

#[test]
#[ignore = "a role, played by a child process"]
fn role_worker() {
    if is_role(worker::ROLE) {
        worker::play();
    }
}

/// For `make failover`.
#[test]
#[ignore = "takes a minute: make failover"]
fn failover_of_the_given_seed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let kind = std::env::var("KIND").unwrap_or_else(|_| "sentinel".into());
    let seed = number("SEED").unwrap_or_else(crate::support::clock);
    let length = Duration::from_secs(number("SECONDS").unwrap_or(60));
    run::run(&kind, seed, length, number("REPLICAS").unwrap_or(0));
}
