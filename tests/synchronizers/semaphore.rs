//! The semaphore, by its client: how it counts, who comes in when, what is refused, what comes back.

mod chance;
mod counting;
mod refusing;
mod waiting;
