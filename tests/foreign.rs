//! A simple lock at a key of the users' own, which programs of others lock by `SET key owner NX PX lease`.

#[path = "invariants/support.rs"]
mod support;

#[path = "foreign/stage.rs"]
mod stage;

#[path = "foreign/contention.rs"]
mod contention;
#[path = "foreign/keys.rs"]
mod keys;
#[path = "foreign/ours.rs"]
mod ours;
#[path = "foreign/redis_py.rs"]
mod redis_py;
#[path = "foreign/strangers.rs"]
mod strangers;
