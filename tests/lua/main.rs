//! The scripts, straight against a server, below the client.

#[path = "../support/rig.rs"]
mod rig;
#[path = "../support/shared.rs"]
mod shared;
#[path = "../support/mod.rs"]
mod support;

mod all;
mod barrier;
mod bounded;
mod condition;
mod fenced;
mod full;
mod inventory;
mod latch;
mod linger;
mod missing;
mod occupied;
mod operations;
mod rate_limiter;
mod read_write;
mod semaphore;
mod sharded;
