//! The well-known wrong ways of locking with Redis, each with a right one. Shared by the program, which
//! prints their outcomes, and by `tests/tools/pitfalls.rs`, which checks them.
//!
//! No wrong way fails by chance: its steps run one by one, in an order that real processes may take them in,
//! each process on a connection of its own.

#[path = "../../src/table.rs"]
pub mod table;

pub mod bare;
pub mod exists_then_set;
pub mod failover;
pub mod fixture;
pub mod getset_timestamp;
pub mod half_a_script;
pub mod holders;
pub mod no_lock;
pub mod one_mark;
pub mod pair;
pub mod reader_count;
pub mod reentry;
pub mod report;
pub mod setnx_then_expire;
pub mod short_lease;
pub mod spinning;
pub mod unlock;
pub mod watch;

use std::fmt;

use fixture::Fixture;

/// An error that ends a half before it has an outcome.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a half, which displays its figures.
pub trait Finding: fmt::Display + fmt::Debug {
    /// Whether what the lock is for was preserved.
    fn is_kept(&self) -> bool;
}

/// Runs a half on a server of its own.
type Run = Box<dyn Fn() -> Result<Box<dyn Finding>, Failure>>;

/// One way of doing it.
pub struct AcquiredVia {
    pub name: &'static str,
    run: Run,
}

impl AcquiredVia {
    fn new<F: Finding + 'static>(
        name: &'static str,
        half: fn(&Fixture) -> Result<F, Failure>,
    ) -> AcquiredVia {
        let run = move || Ok(Box::new(half(&Fixture::open()?)?) as Box<dyn Finding>);
        AcquiredVia { name, run: Box::new(run) }
    }

    /// Runs it on a server of its own, and returns the outcome.
    pub fn run(&self) -> Result<Box<dyn Finding>, Failure> {
        (self.run)()
    }
}

/// One row of the table.
pub struct Pitfall {
    pub name: &'static str,
    pub wrong: AcquiredVia,
    pub right: Vec<AcquiredVia>,
}

impl Pitfall {
    fn new<F: Finding + 'static>(name: &'static str, wrong: fn(&Fixture) -> Result<F, Failure>) -> Pitfall {
        Pitfall { name, wrong: AcquiredVia::new(name, wrong), right: Vec::new() }
    }

    fn but<F: Finding + 'static>(
        mut self,
        name: &'static str,
        right: fn(&Fixture) -> Result<F, Failure>,
    ) -> Self {
        self.right.push(AcquiredVia::new(name, right));
        self
    }
}

/// Every pitfall, in the order of the table.
pub fn all() -> Vec<Pitfall> {
    vec![
        Pitfall::new("no lock", no_lock::wrong).but("ReentrantLock", no_lock::right),
        Pitfall::new("EXISTS, then SET", exists_then_set::wrong).but("SimpleLock", exists_then_set::right),
        Pitfall::new("SETNX, then EXPIRE", setnx_then_expire::wrong)
            .but("SimpleLock", setnx_then_expire::right),
        Pitfall::new("GETSET of a timestamp", getset_timestamp::wrong)
            .but("SimpleLock", getset_timestamp::right),
        Pitfall::new("unlock by DEL", unlock::wrong_by_del).but("SimpleLock", unlock::right_unlooked),
        Pitfall::new("unlock by GET, then DEL", unlock::wrong_by_get_then_del)
            .but("SimpleLock", unlock::right_looked),
        Pitfall::new("locked twice by one thread", reentry::wrong)
            .but("ReentrantLock", reentry::right)
            .but("SimpleLock", reentry::right_refused),
        Pitfall::new("a lease shorter than the work", short_lease::wrong).but("renewal", short_lease::right),
        Pitfall::new("a script that errs half-way", half_a_script::wrong)
            .but("check, then write", half_a_script::right)
            .but("ReentrantLock", half_a_script::right_by_the_lock),
        Pitfall::new("readers counted by INCR", reader_count::wrong)
            .but("ReadWriteLock", reader_count::right),
        Pitfall::new("one write-wait mark for all", one_mark::wrong).but("ReadWriteLock", one_mark::right),
        Pitfall::new("spinning", spinning::wrong).but("ReentrantLock", spinning::right),
        Pitfall::new("failover to a late replica", failover::wrong)
            .but("with_replicas", failover::right_by_replicas)
            .but("MultiLock", failover::right_by_multi_lock)
            .but("RedLock", failover::right_by_red_lock)
            .but("Fenced", failover::right_by_token),
        Pitfall::new("WATCH without a limit", watch::wrong)
            .but("ReentrantLock", watch::right)
            .but("Optimistic", watch::right_with_a_limit)
            .but("Optimistic, beaten", watch::right_when_beaten),
    ]
}
