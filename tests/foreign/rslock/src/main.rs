//! A worker of tests/faults/history/peers.rs: tasks that take locks by rslock and write down what they got.

use std::env::args;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use redis::Client;
use rslock::{LockError, LockManager};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_millis(900);

fn main() {
    let [port, log, process, seed] = [1, 2, 3, 4].map(|n| args().nth(n).expect("four arguments"));
    let seed: u64 = seed.parse().expect("a seed");
    let journal = Arc::new(OpenOptions::new().create(true).append(true).open(log).expect("a journal"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
    let mut manager = LockManager::from_clients(vec![client]);
    // Its own delay, up to 200 ms and drawn by chance: so this is 2 s on average. A timeout around it would leave locks.
    manager.set_retry(20, Duration::from_millis(200));
    let stopped = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (1..=4)
        .map(|task| {
            let (manager, journal, stopped) = (manager.clone(), journal.clone(), stopped.clone());
            let process = process.clone();
            runtime.spawn(async move {
                let mut dice = Rng::with_seed(seed.wrapping_add(task));
                let mut number = 0;
                while !stopped.load(Ordering::Relaxed) {
                    number += 1;
                    play(&manager, &journal, &format!("{process}.{task}.{number}"), &mut dice).await;
                }
            })
        })
        .collect();
    let _ = stdin().read(&mut [0]);
    stopped.store(true, Ordering::Relaxed);
    for task in tasks {
        runtime.block_on(task).expect("a task that ends");
    }
}

async fn play(manager: &LockManager, journal: &File, who: &str, dice: &mut Rng) {
    let name = ["a", "a", "b", "c"][dice.usize(..4)];
    note(journal, who, &format!("called {name} TryLockFor"));
    let lock = match manager.lock(name, LEASE).await {
        Ok(lock) => lock,
        Err(LockError::Unavailable) => return note(journal, who, "ended none"),
        Err(_) => {
            note(journal, who, "ended LockError");
            return sleep(Duration::from_millis(20)).await;
        }
    };
    note(journal, who, "held 0 0");
    sleep(work(dice)).await;
    note(journal, who, "release 0");
    // It says nothing of what came of it.
    manager.unlock(&lock).await;
    note(journal, who, "released ok");
    sleep(micros(dice, 2000)).await;
}

fn work(dice: &mut Rng) -> Duration {
    match dice.u32(..1000) {
        0..3 => LEASE + micros(dice, 450_000),
        3..700 => micros(dice, 1000),
        700..850 => micros(dice, 10_000),
        _ => micros(dice, 100_000),
    }
}

fn micros(dice: &mut Rng, below: u64) -> Duration {
    Duration::from_micros(dice.u64(..below))
}

/// One line by one write. The clock is the one that all processes of a machine share.
fn note(mut journal: &File, who: &str, what: &str) {
    let now = clock_gettime(ClockId::Monotonic);
    let line = format!("{} {who} {what}\n", now.tv_sec * 1_000_000 + now.tv_nsec / 1000);
    journal.write_all(line.as_bytes()).expect("a line");
}
