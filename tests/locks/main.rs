//! Locks: their ways in and out, their terms, their conditions, and the engine's invariants.

#[path = "../support/both.rs"]
mod both;
#[path = "../support/bulkhead.rs"]
mod bulkhead;
#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/contenders.rs"]
mod contenders;
#[path = "../support/flock.rs"]
mod flock;
#[path = "../support/one_server.rs"]
mod one_server;
#[path = "../support/server_days.rs"]
mod server_days;
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod busy;
mod close;
mod condition;
mod contract;
mod deadlocks;
mod dropping;
mod forced;
mod grants;
mod inspect;
mod invariants;
mod kinds;
mod linger;
mod manners;
mod multi_lock;
mod read_write;
mod receipts;
mod red_lock;
mod replicas;
mod safety_rules;
mod shared_connection;
mod terms;
mod unlocking;
