//! What a server, a network or a process can do to a lock; from `tests/failover`, what holds when another server takes
//! over; from `tests/foreign`, locks that programs of others take, too; from `tests/conformance`, what the suites of other
//! libraries check.

#[path = "../support/both.rs"]
mod both;
#[path = "../support/contenders.rs"]
mod contenders;
#[allow(dead_code)] // Only a part of it.
#[path = "../support/flock.rs"]
mod flock;
#[path = "../support/one_server.rs"]
mod one_server;
#[path = "../support/server_days.rs"]
mod server_days;
#[path = "../support/mod.rs"]
mod support;

mod bad_days_network;
mod bad_days_process;
mod bad_days_server;
mod clock_steps;
mod history;
mod refusals;
mod renewals;
mod stall;
mod threads;
mod transports;

#[path = "../failover/cluster/mod.rs"]
mod cluster;
#[path = "../failover/dns/mod.rs"]
mod dns;
#[path = "../failover/mod.rs"]
mod failover;
#[path = "../failover/sentinel/mod.rs"]
mod sentinel;

#[path = "../foreign/mod.rs"]
mod foreign;
#[path = "../foreign/redisson/mod.rs"]
mod redisson;

#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../conformance/pains/mod.rs"]
mod pains;
