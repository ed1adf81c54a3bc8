//! What the suites of other libraries check of locks, also over several servers, conditions, semaphores,
//! latches, barriers and rate limiters, row by row, on each that this crate has. `docs/design/conformance.md` has the
//! table: which row is which test, and where this crate does something else.

pub mod fixture;
mod rows;
mod table;

mod asking;
mod barrier;
mod condition;
mod election;
mod ending;
mod faults;
mod giving_up;
mod latch;
mod leases;
mod many;
mod multi_lock;
mod optimistic;
mod order;
mod processes;
mod rate_limiter;
mod read_write;
mod read_write_ends;
mod read_write_many;
mod read_write_waiting;
mod red_lock;
mod semaphore;
mod semaphore_many;
mod taking;
