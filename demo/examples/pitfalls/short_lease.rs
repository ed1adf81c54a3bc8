//! A lease that is shorter than the work, and not renewed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::Client;
use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent_testkit::wait_until;

use super::bare::take;
use super::fixture::{Fixture, LONG, SURELY};
use super::holders::Holders;
use super::table::counted;
use super::{Failure, Finding};

/// The length of each lease; the work takes longer.
pub const LEASE: Duration = Duration::from_secs(3);

/// The holders of the lock during work that is longer than its lease, and how often the lease was renewed.
#[derive(Debug)]
pub struct Work {
    pub took: Duration,
    pub holders: Holders,
    pub renewals: u64,
}

impl Finding for Work {
    fn is_kept(&self) -> bool {
        self.holders.is_kept()
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, renewals) = (self.took.as_secs_f64(), counted(self.renewals as usize, "renewal"));
        write!(f, "{} after {took:.1} s, {renewals}", self.holders)
    }
}

/// The work continues until the lease expires, and then another process acquires the lock.
pub fn wrong(fixture: &Fixture) -> Result<Work, Failure> {
    let [mut first, mut second] = fixture.processes()?;
    let mut holders = usize::from(take(&mut first, "lock", "first", LEASE)?);
    let began = Instant::now();
    wait_until(SURELY, "the end of the lease", || !first.exists("lock").unwrap_or(true));
    holders += usize::from(take(&mut second, "lock", "second", LONG)?);
    Ok(Work { took: began.elapsed(), holders: Holders::new(holders), renewals: 0 })
}

/// Counts the renewals of a client.
#[derive(Clone, Default)]
struct Renewals(Arc<AtomicU64>);

impl Observer for Renewals {
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The client renews the lease as long as the guard lives.
pub fn right(fixture: &Fixture) -> Result<Work, Failure> {
    let renewals = Renewals::default();
    let first = Client::builder()
        .url(&fixture.server.url())
        .lease(LEASE)
        // Often, so that the lease survives a machine that stalls for a while.
        .renew_every(LEASE / 10)
        .observer(renewals.clone())
        .connect()?;
    let [second] = fixture.clients()?;
    let held = first.simple_lock("lock").lock_owned()?;
    let began = Instant::now();
    thread::sleep(LEASE + LEASE / 10);
    let others = second.simple_lock("lock").try_lock_owned()?;
    let took = began.elapsed();
    let error = held.unlock().err().map(|why| why.kind());
    let holders = Holders { at_once: 1 + usize::from(others.is_some()), error };
    Ok(Work { took, holders, renewals: renewals.0.load(SeqCst) })
}
