//! What a server, a network or a process can do to a lock, and what other suites check.

#[path = "../support/both.rs"]
mod both;
#[path = "../support/contenders.rs"]
mod contenders;
#[allow(dead_code)] // Only a part of it.
#[path = "../support/flock.rs"]
mod flock;
#[path = "../support/server_days.rs"]
mod server_days;
#[path = "../support/mod.rs"]
mod support;

mod bad_days_network;
mod bad_days_process;
mod bad_days_server;
mod clock_steps;
mod cluster;
mod conformance;
mod dns;
mod failover;
mod foreign;
mod history;
mod pains;
mod redisson;
mod refusals;
mod renewals;
mod sentinel;
mod stall;
mod threads;
mod transports;
