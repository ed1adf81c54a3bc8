//! A worker: a process of four threads that take locks, count under them and write down what they
//! got. It is a child of the test, and may be killed or stopped at any moment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis_concurrent::{Client, Exclusive, LockInfo, LossReason, Observer, RedisLock};
use redis_concurrent_testkit::{Child, eventually, hear_parent, tell_parent};

use crate::history::counter::Counter;
use crate::history::log::{Event, Journal, Who};
use crate::history::plan::{COMMAND, LEASE, LOCKS, THREADS, WINDOW};
use crate::history::pulse;
use crate::history::rounds::{Style, Worker};
use crate::support::{LONG, Random, builder, clock, env};

pub const ROLE: &str = "history::role_worker";

/// What a worker is told when it is started.
#[derive(Clone, Debug)]
pub struct Orders {
    /// Where the locks are.
    pub url: String,
    /// Where the counters are.
    pub counter: String,
    pub seed: u64,
    /// Its number in the run.
    pub process: u64,
    pub reentrant: [bool; 3],
    pub guarded: bool,
    pub style: Style,
}

impl Orders {
    /// Starts a worker that writes its log into this folder.
    pub fn spawn(&self, folder: &Path) -> std::io::Result<Child> {
        let log = folder.join(format!("{}.holds", self.process));
        let kinds: String = self.reentrant.iter().map(|it| if *it { 'r' } else { 's' }).collect();
        Child::spawn(
            ROLE,
            &[
                ("URL", &self.url),
                ("COUNTER", &self.counter),
                ("SEED", &self.seed.to_string()),
                ("PROCESS", &self.process.to_string()),
                ("KINDS", &kinds),
                ("GUARDED", if self.guarded { "1" } else { "0" }),
                ("STYLE", self.style.name()),
                ("LOG", log.to_str().unwrap()),
            ],
        )
    }
}

/// Writes down what was lost.
struct Losses(Arc<Journal>, u64);

impl Observer for Losses {
    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        let who = Who { process: self.1, thread: 0, round: 0 };
        self.0.note(clock(), who, Event::Lost { lock: lock.name.into(), why: format!("{why:?}") });
    }
}

/// The role itself: works until the parent says so, or is gone.
pub fn play() {
    let mut random = Random::new(ROLE);
    let process = env("PROCESS").parse().unwrap();
    let journal = Arc::new(Journal::open(env("LOG")).unwrap());
    let reentrant: Vec<bool> = env("KINDS").chars().map(|it| it == 'r').collect();
    let style = Style::named(&env("STYLE"));
    let client = connect(&journal, process);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let counter = Counter::connect(&env("COUNTER"), env("GUARDED") == "1").unwrap();
            let who = Who { process, thread, round: 0 };
            let (random, work) = (random.fork(), Duration::ZERO);
            let mut worker = Worker { random, journal: &journal, counter, who, style, work };
            let (client, stop, reentrant) = (&client, &stop, &reentrant);
            let work = move || {
                while !stop.load(Ordering::Relaxed) {
                    let lock = worker.choose();
                    if reentrant[lock] {
                        worker.round(&handle(client.reentrant_lock(LOCKS[lock]), thread));
                    } else {
                        worker.round(&handle(client.simple_lock(LOCKS[lock]), thread));
                    }
                }
            };
            thread::Builder::new().name(format!("worker {thread}")).spawn_scoped(scope, work).unwrap();
        }
        let pulse = || {
            let who = Who { process, thread: 0, round: 0 };
            pulse::of_process(&stop, |(from, until)| journal.note(until, who, Event::Stalled { from }));
        };
        thread::Builder::new().name("pulse".into()).spawn_scoped(scope, pulse).unwrap();
        tell_parent("ready").unwrap();
        let _ = hear_parent();
        stop.store(true, Ordering::Relaxed);
    });
    client.close().unwrap();
}

/// Longer than most holds are apart.
const LINGER: Duration = Duration::from_secs(2);

/// The threads of odd numbers use handles by which their process keeps the lock.
fn handle<K: Exclusive>(lock: RedisLock<K>, thread: u64) -> RedisLock<K> {
    if thread % 2 == 1 { lock.linger(LINGER) } else { lock }
}

fn connect(journal: &Arc<Journal>, process: u64) -> Client {
    // It may have been started while the server is down.
    eventually(LONG, || {
        let made = builder(&env("URL"))
            .lease(LEASE)
            .waiter_timeout(WINDOW)
            .command_timeout(COMMAND)
            .connect_timeout(COMMAND)
            .client_name(&format!("{process}"))
            .observer(Losses(journal.clone(), process))
            .connect();
        if made.is_err() {
            thread::sleep(Duration::from_millis(20));
        }
        made.ok()
    })
}
