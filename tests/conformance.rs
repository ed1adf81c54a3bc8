//! What the suites of other libraries check of locks, also over several servers, conditions, semaphores,
//! latches, barriers and rate limiters, row by row, on each that this crate has. `docs/conformance.md` has the
//! table: which row is which test, and where this crate does something else.

#[path = "conformance/rows.rs"]
mod rows;
#[path = "conformance/stage.rs"]
mod stage;
#[path = "invariants/support.rs"]
mod support;
#[path = "conformance/table.rs"]
mod table;

#[path = "conformance/asking.rs"]
mod asking;
#[path = "conformance/barrier.rs"]
mod barrier;
#[path = "conformance/condition.rs"]
mod condition;
#[path = "conformance/ending.rs"]
mod ending;
#[path = "conformance/faults.rs"]
mod faults;
#[path = "conformance/giving_up.rs"]
mod giving_up;
#[path = "conformance/latch.rs"]
mod latch;
#[path = "conformance/leases.rs"]
mod leases;
#[path = "conformance/many.rs"]
mod many;
#[path = "conformance/multi_lock.rs"]
mod multi_lock;
#[path = "conformance/optimistic.rs"]
mod optimistic;
#[path = "conformance/order.rs"]
mod order;
#[path = "conformance/processes.rs"]
mod processes;
#[path = "conformance/rate_limiter.rs"]
mod rate_limiter;
#[path = "conformance/read_write.rs"]
mod read_write;
#[path = "conformance/read_write_ends.rs"]
mod read_write_ends;
#[path = "conformance/read_write_many.rs"]
mod read_write_many;
#[path = "conformance/red_lock.rs"]
mod red_lock;
#[path = "conformance/semaphore.rs"]
mod semaphore;
#[path = "conformance/semaphore_many.rs"]
mod semaphore_many;
#[path = "conformance/taking.rs"]
mod taking;
