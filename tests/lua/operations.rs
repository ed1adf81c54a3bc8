//! Each Lua operation straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

mod acquiring;
mod foreign_keys;
mod granting;

mod leaving;
mod numbers;
mod positions;
mod renewing;
mod restrictions;
mod rules;
mod silence;
mod straight;

use std::time::Duration;

use redis_concurrent::kinds::{Kind, Reentrant, Simple};
use redis_concurrent_testkit::RedisServer;

use crate::rig::{Ask, Rig, USUAL, server};

const LONG: Duration = Duration::from_secs(20);
const BULKHEAD: &str = include_str!("../../examples/own_kind.lua");

/// The three kinds that come along, each as a rig for `name`.
fn rigs(name: &str) -> Vec<Rig> {
    rigs_on(server(), name)
}

/// As a reader asks.
const READS: Ask<'_> = Ask { args: "read", ..USUAL };

fn read_write(name: &str) -> Rig {
    Rig::of(server(), "read-write lock", include_str!("../../lua/read_write.lua"), name)
}

fn rigs_on(server: &RedisServer, name: &str) -> Vec<Rig> {
    [("simple", Simple::RULE), ("reentrant", Reentrant::RULE), ("bulkhead", BULKHEAD)]
        .map(|(kind, rule)| Rig::of(server, kind, rule, name))
        .into()
}
