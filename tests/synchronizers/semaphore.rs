//! The semaphore, by its client: how it counts, which callers it admits when, what is refused, what comes back.

mod chance;
mod counting;
mod refusing;
mod waiting;
