//! Many processes on one limiter, some of which are killed at work.
//!
//! `DECISIONS=100000 cargo test --test rate_limiter processes` makes as many.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent_testkit::{Child, is_role, wait_until};

use crate::names::server;
use crate::rate_limiter::{HOUR, used};
use crate::support::patiently;

const PROCESSES: usize = 16;
const NAME: &str = "processes";
const ROLE: &str = "rate_limiter::processes::role_caller";
/// For all of them together, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
#[ignore = "a role, played by a child process"]
fn role_caller() {
    if !is_role(ROLE) {
        return;
    }
    let env = |name: &str| std::env::var(name).unwrap();
    let (url, log, share): (String, _, usize) =
        (env("CALLER_URL"), env("CALLER_LOG"), env("CALLER_SHARE").parse().unwrap());
    let client = patiently(&url);
    let limiter = client.rate_limiter(NAME, rate(env("CALLER_LIMIT").parse().unwrap()));
    // One byte for each answer, right after it, and straight to the file: it outlives us.
    let mut log = OpenOptions::new().append(true).open(log).unwrap();
    while (log.metadata().unwrap().len() as usize) < share {
        let allowed = limiter.try_acquire(1).unwrap().allowed;
        log.write_all(if allowed { b"y" } else { b"n" }).unwrap();
    }
}

fn rate(limit: u32) -> Rate {
    Rate::fixed_window(limit, HOUR)
}

/// What one process after the other does of its share, and what they saw.
struct Seat {
    log: PathBuf,
    share: usize,
    limit: u32,
    child: Child,
}

impl Seat {
    /// A process that is to be killed goes on until then.
    fn new(folder: &Path, i: usize, share: usize, limit: u32, is_killed: bool) -> Seat {
        let log = folder.join(i.to_string());
        File::create(&log).unwrap();
        let child = Seat::spawn(&log, if is_killed { usize::MAX } else { share }, limit);
        Seat { log, share, limit, child }
    }

    fn spawn(log: &Path, share: usize, limit: u32) -> Child {
        let (share, limit) = (share.to_string(), limit.to_string());
        let (url, log) = (server().url(), log.to_str().unwrap());
        let env =
            [("CALLER_URL", &*url), ("CALLER_LOG", log), ("CALLER_SHARE", &share), ("CALLER_LIMIT", &limit)];
        Child::spawn(ROLE, &env).unwrap()
    }

    fn done(&self) -> usize {
        fs::metadata(&self.log).unwrap().len() as usize
    }

    /// Kills the process once it has done so many, and lets another one go on from there.
    fn kill_after(&mut self, done: usize) {
        wait_until(LIMIT, "it is at work", || self.done() >= done);
        self.child.kill9().unwrap();
        self.child = Seat::spawn(&self.log, self.share, self.limit);
    }

    fn allowed(&self) -> usize {
        fs::read(&self.log).unwrap().iter().filter(|byte| **byte == b'y').count()
    }
}

#[test]
fn what_redis_counts_is_what_the_processes_saw() {
    let decisions: usize = std::env::var("DECISIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(16_000);
    let share = decisions / PROCESSES;
    // Not all of them come in.
    let limit = (share * PROCESSES * 3 / 4) as u32;
    let folder = tempfile::tempdir().unwrap();
    let kills = PROCESSES / 2;
    let seat = |i| Seat::new(folder.path(), i, share, limit, i < kills);
    let mut seats: Vec<_> = (0..PROCESSES).map(seat).collect();
    for (i, seat) in seats.iter_mut().take(kills).enumerate() {
        seat.kill_after(share * (i + 1) / (2 * kills));
    }
    for seat in &mut seats {
        assert!(seat.child.wait_within(LIMIT).unwrap().success());
        assert!(seat.done() >= share);
    }
    let made: usize = seats.iter().map(Seat::done).sum();
    let seen: usize = seats.iter().map(Seat::allowed).sum();
    let counted = used(NAME).unwrap() as usize;
    println!("{made} decisions, {kills} kills: Redis counted {counted}, they saw {seen}");
    // Each process had one call under way when it was killed.
    assert!((seen..=seen + kills).contains(&counted), "{counted} counted, {seen} seen");
    assert_eq!(counted, limit as usize);
}
