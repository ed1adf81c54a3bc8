//! A history check: processes take locks while they are killed and stopped and everything between
//! them and Redis breaks, and write down what they got. What they wrote must make sense: never two
//! valid holds at once, tokens that rise, counts that are not lost, waits that have a reason.
//!
//! Questions to a lock: its holders and its waiters; and the way to take it from its holder.

mod checker;
mod checker_tests;
mod control;
mod counter;
pub mod export;
mod faults;
mod fixture;
pub mod holds;
pub mod log;
mod peers;
mod plan;
mod processes;
pub mod pulse;
mod report;
pub mod role;
pub mod rounds;
mod run;
pub mod times;
mod worker;

use std::time::Duration;

use redis_concurrent_testkit::is_role;

#[test]
#[ignore = "a role, played by a child process"]
fn role_worker() {
    if is_role(worker::ROLE) {
        worker::play();
    }
}

/// How long a run takes, without its beginning and end.
fn length(otherwise: u64) -> Duration {
    let seconds = std::env::var("SECONDS").ok().and_then(|it| it.parse().ok());
    Duration::from_secs(seconds.unwrap_or(otherwise))
}

#[test]
fn history_of_seed_1() {
    run::run(1, length(20));
}

#[test]
fn history_of_seed_2() {
    run::run(2, length(20));
}

#[test]
fn history_of_seed_3() {
    run::run(3, length(20));
}

/// For `make history`.
#[test]
#[ignore = "takes a minute: make history"]
fn history_of_the_given_seed() {
    let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok());
    run::run(seed.unwrap_or_else(crate::support::clock), length(60));
}
