//! Spinning: a caller that does not get the lock asks again at once.

use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use redis_concurrent::Client;
use redis_concurrent_testkit::wait_until;

use super::bare::{give_back, take};
use super::fixture::{Fixture, LONG, SURELY};
use super::table::grouped;
use super::{Failure, Finding};

const PROCESSES: usize = 8;
/// How often each process acquires the lock.
const TURNS: usize = 10;
/// How long a process holds it.
const WORK: Duration = Duration::from_millis(5);
/// The holder keeps the lock until the others, if there are any, were refused this often: on a machine that
/// stalls they would not have had the time.
const REFUSALS: usize = 20;
/// An acquisition takes two requests, to acquire and to release; and a waiter that waits long sends a
/// heartbeat now and then.
const ENOUGH: f64 = 4.0;

/// What an acquisition cost.
#[derive(Debug)]
pub struct Cost {
    pub requests: f64,
    /// CPU time of Redis.
    pub cpu: Duration,
}

impl Finding for Cost {
    fn is_kept(&self) -> bool {
        self.requests <= ENOUGH
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = grouped(self.cpu.as_micros() as u64);
        write!(f, "{:.1} requests, {cpu} µs of Redis each", self.requests)
    }
}

/// A process that polls by itself.
struct Spinner {
    redis: Connection,
    owner: String,
}

/// Each process asks again as soon as it was refused.
pub fn wrong(fixture: &Fixture) -> Result<Cost, Failure> {
    let spinners = fixture.processes::<PROCESSES>()?.into_iter().enumerate();
    let spinners = spinners.map(|(i, redis)| Spinner { redis, owner: i.to_string() }).collect();
    let (refused, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
    measure(fixture, spinners, |Spinner { redis, owner }| {
        let mut requests = 2;
        waiting.fetch_add(1, SeqCst);
        while !take(redis, "lock", owner, LONG)? {
            refused.fetch_add(1, SeqCst);
            requests += 1;
        }
        waiting.fetch_sub(1, SeqCst);
        let (began, before) = (Instant::now(), refused.load(SeqCst));
        wait_until(SURELY, "the end of the work", || {
            let retried = waiting.load(SeqCst) == 0 || refused.load(SeqCst) - before >= REFUSALS;
            began.elapsed() >= WORK && retried
        });
        give_back(redis, "lock", owner)?;
        Ok(requests)
    })
}

/// Each process sleeps until it is notified that it has the lock.
pub fn right(fixture: &Fixture) -> Result<Cost, Failure> {
    let clients = fixture.clients::<PROCESSES>()?.into();
    measure(fixture, clients, |client: &mut Client| {
        let before = client.request_count();
        let lock = client.reentrant_lock("lock");
        let guard = lock.lock()?;
        thread::sleep(WORK);
        guard.unlock()?;
        Ok(client.request_count() - before)
    })
}

/// Lets all processes take their turns at once. A turn returns how many requests it took.
fn measure<P: Send>(
    fixture: &Fixture,
    processes: Vec<P>,
    turn: impl Fn(&mut P) -> Result<u64, Failure> + Sync,
) -> Result<Cost, Failure> {
    let acquisitions = (processes.len() * TURNS) as u32;
    let (turn, start) = (&turn, &Barrier::new(processes.len()));
    let before = cpu(fixture)?;
    let requests: u64 = thread::scope(|scope| {
        let threads = processes.into_iter().map(|mut process| {
            scope.spawn(move || {
                start.wait();
                (0..TURNS).map(|_| turn(&mut process)).sum::<Result<u64, Failure>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|it| it.join().expect("a process does not panic")).sum::<Result<u64, _>>()
    })?;
    let cpu = (cpu(fixture)? - before) / acquisitions;
    Ok(Cost { requests: requests as f64 / f64::from(acquisitions), cpu })
}

/// Returns the CPU time that Redis has used so far.
fn cpu(fixture: &Fixture) -> Result<Duration, Failure> {
    let info: String = cmd("INFO").arg("cpu").query(&mut fixture.server.connection()?)?;
    let seconds = |field: &str| -> Result<f64, Failure> {
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.ok_or_else(|| format!("no {field} in INFO"))?.trim().parse()?)
    };
    Ok(Duration::from_secs_f64(seconds("used_cpu_user")? + seconds("used_cpu_sys")?))
}
