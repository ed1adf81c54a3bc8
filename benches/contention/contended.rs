//! Contention for one lock, or for updates of one key: how often each thread succeeds, and how long that
//! takes.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::Child;
use serde::{Deserialize, Serialize};

use super::args::{Args, LocalHandoff, Lock, Workload};
use super::children::{hear, job, order, spawn, tell};
use super::clock::{cpu, now, pass, sleep_until};
use super::row::Row;
use super::server::Watched;
use super::stats::{Spread, jain};
use super::updates;

const ROLE: &str = "contender";
/// How long the threads contend before a round is measured.
const WARM_UP: u64 = 300_000_000;

/// The command timeout. A server that gets no CPU for a while, on a core that many share, shows in the
/// longest wait, and should not end the run.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child is to do.
#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    threads: usize,
    hold_us: u64,
    local_handoff_us: Option<u64>,
    fair: bool,
    lock: Lock,
}

/// The part of a round that is measured, on the machine's clock.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Span {
    begin: u64,
    end: u64,
}

/// What a child measured in a round.
#[derive(Serialize, Deserialize)]
struct Got {
    counts: Vec<u64>,
    waits: Spread,
    requests: u64,
    cpu: u64,
}

/// The processes of one configuration, ready to be run round by round.
pub(crate) struct Crowd {
    server: Watched,
    children: Vec<Child>,
    seconds: f64,
}

impl Crowd {
    pub(crate) fn gather(
        args: &Args,
        processes: usize,
        threads: usize,
        local_handoff: LocalHandoff,
    ) -> Result<Crowd, Box<dyn Error>> {
        let server = Watched::start()?;
        let job = Job {
            url: server.url(),
            threads,
            hold_us: args.hold_us(Workload::Contended),
            local_handoff_us: if let LocalHandoff::Us(us) = local_handoff { Some(us) } else { None },
            fair: local_handoff == LocalHandoff::Fair,
            lock: args.lock,
        };
        let children = (0..processes).map(|_| spawn(ROLE, &job)).collect::<Result<Vec<_>, _>>()?;
        for child in &children {
            let _: bool = hear(child, 0.0)?;
        }
        Ok(Crowd { server, children, seconds: args.seconds })
    }

    pub(crate) fn round(&mut self) -> Result<Row, Box<dyn Error>> {
        let begin = now() + WARM_UP;
        let span = Span { begin, end: begin + (self.seconds * 1e9) as u64 };
        for child in &mut self.children {
            child.say(&serde_json::to_string(&span)?)?;
        }
        sleep_until(span.begin);
        self.server.reset_stats()?;
        let before = self.server.cpu_us()?;
        sleep_until(span.end);
        let server_cpu = self.server.cpu_us()? - before;
        let inside = self.server.script_us()?;
        let got: Vec<Got> =
            self.children.iter().map(|child| hear(child, self.seconds)).collect::<Result<_, _>>()?;
        let processes: Vec<u64> = got.iter().map(|g| g.counts.iter().sum()).collect();
        let threads: Vec<u64> = got.iter().flat_map(|g| g.counts.iter().copied()).collect();
        let all: u64 = processes.iter().sum();
        let mut waits = Spread::default();
        for got in &got {
            waits.join(&got.waits);
        }
        let each = |sum: u64| Some(sum as f64 / all as f64);
        Ok(Row {
            acquisitions_per_s: Some(all as f64 / self.seconds),
            commands_per_acquisition: each(got.iter().map(|g| g.requests).sum()),
            jain_processes: jain(&processes),
            jain_threads: jain(&threads),
            wait_us_p50: waits.quantile(0.5).map(|ns| ns / 1e3),
            wait_us_p99: waits.quantile(0.99).map(|ns| ns / 1e3),
            wait_us_max: waits.max().map(|ns| ns / 1e3),
            client_cpu_us: each(got.iter().map(|g| g.cpu).sum()).map(|ns| ns / 1e3),
            server_cpu_us: Some(server_cpu / all as f64),
            inside_redis_us: Some(inside / all as f64),
            ..Row::default()
        })
    }
}

/// In a child: contends, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    let mut builder = Client::builder().url(&job.url).command_timeout(PATIENCE);
    if let Some(us) = job.local_handoff_us {
        builder = builder.local_handoff(Duration::from_micros(us));
    }
    let client = builder.connect()?;
    let name = "bench:one";
    match job.lock {
        Lock::Simple => contend_for(&job, &client, &client.simple_lock(name))?,
        Lock::Reentrant => contend_for(&job, &client, &client.reentrant_lock(name))?,
        Lock::Read => contend_for(&job, &client, client.read_write_lock(name).read_lock())?,
        Lock::Write => contend_for(&job, &client, client.read_write_lock(name).write_lock())?,
        Lock::Semaphore => {
            client.semaphore(name).try_set_permits(10)?;
            contend_for(&job, &client, &client.lock_with_kind(name, Permits::default()))?;
        }
        Lock::Optimistic => contend(&job, &client, || updates::optimistic(&client, job.hold_us))?,
        Lock::Locked => {
            let lock = client.simple_lock(name);
            let lock = if job.fair { lock.fair() } else { lock };
            contend(&job, &client, || updates::locked(&lock, &job.url, job.hold_us))?;
        }
    }
    client.close()?;
    Ok(true)
}

fn contend_for<K: Kind>(job: &Job, client: &Client, lock: &RedisLock<K>) -> Result<(), Box<dyn Error>> {
    let lock = &if job.fair { lock.fair() } else { lock.clone() };
    let turn = move || {
        let guard = lock.lock().map_err(|e| e.to_string())?;
        let got = now();
        pass(job.hold_us);
        guard.unlock().map_err(|e| e.to_string())?;
        Ok(got)
    };
    contend(job, client, || Ok(Box::new(turn)))
}

/// A thread's turn. Returns the time at which it had what it waited for.
pub(super) type Turn<'a> = Box<dyn FnMut() -> Result<u64, String> + 'a>;

/// Runs the rounds; each thread takes its turns by a `Turn` of its own.
fn contend<'a>(
    job: &Job,
    client: &Client,
    turn: impl Fn() -> Result<Turn<'a>, String> + Sync,
) -> Result<(), Box<dyn Error>> {
    tell(&true)?;
    while let Some(span) = order::<Span>()? {
        let got = thread::scope(|scope| {
            let running: Vec<_> =
                (0..job.threads).map(|_| scope.spawn(|| take_turns(turn()?, span))).collect();
            sleep_until(span.begin);
            let before = (client.request_count(), cpu());
            sleep_until(span.end);
            let after = (client.request_count(), cpu());
            let mut got = Got {
                counts: Vec::new(),
                waits: Spread::default(),
                requests: after.0 - before.0,
                cpu: after.1 - before.1,
            };
            for thread in running {
                let (count, waits) = thread.join().map_err(|_| "a contending thread panicked")??;
                got.counts.push(count);
                got.waits.join(&waits);
            }
            Ok::<_, Box<dyn Error>>(got)
        })?;
        tell(&got)?;
    }
    Ok(())
}

/// Takes turns until the round ends. Returns how many succeeded in the measured part, and how long they
/// waited.
fn take_turns(mut turn: Turn<'_>, span: Span) -> Result<(u64, Spread), String> {
    let (mut count, mut waits) = (0, Spread::default());
    loop {
        let called = now();
        if called >= span.end {
            return Ok((count, waits));
        }
        let got = turn()?;
        if (span.begin..span.end).contains(&got) {
            count += 1;
            waits.add(got - called);
        }
    }
}
