//! What is no lock, or more than one: semaphore, latch, barrier, inventory, rate limiter, updates without a lock.

#[path = "../support/names.rs"]
mod names;
#[path = "../support/shared.rs"]
mod shared;
#[path = "../support/mod.rs"]
mod support;

mod barrier;
mod election;
mod fenced;
mod inventory;
mod latch;
mod once;
mod optimistic;
mod rate_limiter;
mod semaphore;
