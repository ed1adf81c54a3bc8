//! A server whose clock is stepped back and forth by an hour while everybody waits: nobody hangs for the hour.

mod apart;
mod clock;
mod several;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, Error, ErrorKind, MultiLock};
use redis_concurrent_testkit::wait_until;

use crate::support::*;
use clock::{HOUR, SteppedServer};

/// Each client stands for a process.
const CLIENTS: usize = 3;
/// A waiter timeout, a heartbeat and a lease, and what a loaded machine may add.
const BOUND: Duration = Duration::from_secs(30);

/// What one thread of each client does again and again; a loss is no failure of it.
type Work = fn(&Client) -> Result<(), Error>;

const ALL: [(&str, Work); 10] = [
    ("simple lock", |c| held(c.simple_lock("simple").lock()?).unlock()),
    ("reentrant lock", |c| held(c.reentrant_lock("reentrant").lock()?).unlock()),
    ("fair lock with a fixed lease", |c| {
        held(c.reentrant_lock("f").fair().with_lease(ms(2000)).lock()?).unlock()
    }),
    ("write lock", |c| held(c.read_write_lock("read-write").write_lock().lock()?).unlock()),
    // Writers that never rest would keep other readers out for good.
    ("read lock", |c| held(c.read_write_lock("read-write").arrival_order().read_lock().lock()?).unlock()),
    ("semaphore", |c| held(c.semaphore("semaphore").acquire(1)?).release()),
    ("inventory lock", |c| held(c.inventory("gate").inventory_lock("sku", 1).lock()?).unlock()),
    ("multi-lock", |c| {
        held(MultiLock::new(&[&c.simple_lock("one"), &c.simple_lock("two")]).lock()?).unlock()
    }),
    ("condition", wait_or_signal),
    ("barrier", meet),
];

/// Most of the time there is a holder, and the others wait: they are who must not hang. Threads that came and went as
/// fast as they can would take all of the machine, and meet nobody.
fn held<T>(hold: T) -> T {
    thread::sleep(ms(10));
    hold
}

/// When a clock is set forward, all waiters look silent for a moment, which may break a barrier.
fn meet(client: &Client) -> Result<(), Error> {
    let barrier = client.cyclic_barrier("barrier", CLIENTS);
    loop {
        match barrier.wait_with(BOUND) {
            Err(error) if error.kind() == ErrorKind::Broken => barrier.reset()?,
            met => return held(met).map(drop),
        }
    }
}

/// Each caller signals the waiting one, then waits for a signal itself.
fn wait_or_signal(client: &Client) -> Result<(), Error> {
    let lock = client.reentrant_lock("conditional");
    let mut guard = lock.lock()?;
    let turn = lock.condition("turn");
    turn.signal(&guard)?;
    turn.wait_with(&mut guard, ms(300))?;
    held(guard).unlock()
}

struct Worker {
    name: String,
    turns: AtomicU64,
}

fn work(client: &Client, worker: &Worker, work: Work, over: &AtomicBool) {
    while !over.load(SeqCst) {
        match work(client) {
            Ok(()) => {}
            // A clock that is set forward ends leases.
            Err(error) if error.is_lease_lost() || error.kind() == ErrorKind::OutcomeUnknown => {}
            Err(_) if over.load(SeqCst) => break,
            // On a loaded machine no connection may be free for a command's timeout: that is no turn.
            Err(error) if error.is_unavailable() => continue,
            Err(error) => panic!("{}: {error}", worker.name),
        }
        worker.turns.fetch_add(1, SeqCst);
    }
}

#[test]
fn nobody_hangs_while_the_clock_is_stepped_back_and_forth() {
    let server = SteppedServer::start();
    let clients: Vec<_> = (0..CLIENTS).map(|_| connect(&server)).collect();
    clients[0].semaphore("semaphore").set_permits(1).unwrap();
    clients[0].inventory("gate").add_stock("sku", 1).unwrap();
    let worker = |i: usize, name: &str| Worker { name: format!("{name} of client {i}"), turns: 0.into() };
    let workers: Vec<Vec<Worker>> =
        (0..CLIENTS).map(|i| ALL.iter().map(|(name, _)| worker(i, name)).collect()).collect();
    let over = AtomicBool::new(false);
    let everybody = || workers.iter().flatten();
    thread::scope(|scope| {
        for (client, workers) in clients.iter().zip(&workers) {
            for (worker, (_, it)) in workers.iter().zip(ALL) {
                let over = &over;
                scope.spawn(move || work(client, worker, it, over));
            }
        }
        let hangs = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for hours in [1, 0, -1, 0, 1, -1, 2, -2, 0] {
                server.set_clock(hours * HOUR);
                let stepped = Instant::now();
                let before: Vec<u64> = everybody().map(|w| w.turns.load(SeqCst)).collect();
                let mut last = Duration::ZERO;
                for (worker, before) in everybody().zip(before) {
                    let what = format!("{} gets in after a step to {hours} h", worker.name);
                    // One turn may have been all but over when the clock was stepped.
                    wait_until(BOUND, &what, || worker.turns.load(SeqCst) > before + 1);
                    if stepped.elapsed() > last + SOON {
                        println!("{what}: {:?}", stepped.elapsed());
                    }
                    last = stepped.elapsed();
                }
            }
        }));
        over.store(true, SeqCst);
        // A thread that waits for others that come no more, or that hangs, ends with its client.
        clients.iter().for_each(|client| drop(client.close()));
        if let Err(why) = hangs {
            std::panic::resume_unwind(why);
        }
    });
}

/// What is held stays held for as much longer, if it is not given back; giving it back lets others in.
#[test]
fn a_lease_lasts_longer_by_what_the_clock_is_set_back() {
    let server = SteppedServer::start();
    let (holder, other) = (connect(&server), connect(&server));
    let mut connection = server.connection().unwrap();
    let ended = holder.simple_lock("ended").with_lease(ms(1000)).lock_owned().unwrap();
    let alive = holder.simple_lock("alive").lock_owned().unwrap();
    // Of a process that died: nobody gives it back. It must not end before the clock is set.
    let _: () = redis::cmd("SET")
        .arg("rc:{dead}")
        .arg("somebody")
        .arg("PX")
        .arg(3000)
        .query(&mut connection)
        .unwrap();
    let began = Instant::now();
    server.set_clock(-5);
    alive.unlock().unwrap();
    for name in ["alive", "ended", "dead"] {
        let lock = other.simple_lock(name);
        let guard = lock.try_lock_for(LONG).unwrap().expect(name);
        // A live process gives back what has ended by its own clock.
        assert!(name != "dead" || began.elapsed() > ms(4500), "{:?}", began.elapsed());
        guard.unlock().unwrap();
    }
    assert!(ended.is_lost());
}
