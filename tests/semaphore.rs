//! The semaphore, by its client: how it counts, who comes in when, what is refused, what comes back.

#[path = "invariants/support.rs"]
mod support;

#[path = "semaphore/chance.rs"]
mod chance;
#[path = "semaphore/counting.rs"]
mod counting;
#[path = "semaphore/refusing.rs"]
mod refusing;
#[path = "semaphore/waiting.rs"]
mod waiting;
