//! A worker: a process of four threads that take locks, count under them and write down what they
//! got. It is a child of the test, and may be killed or stopped at any moment.

use std::path::Path;
use std::thread;
use std::time::Duration;

use redis_concurrent::kinds::Exclusive;
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::{Child, eventually, released_all};

use crate::failover::worker::Worker as Others;
use crate::history::counter::Counter;
use crate::history::peers;
use crate::history::plan::{COMMAND, LEASE, LOCKS, THREADS, WAITER_TIMEOUT};
use crate::history::role::{self, Role};
use crate::history::rounds::{Style, Worker};
use crate::support::{LONG, Random, builder, env};

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
    /// By which library, if it is not what [`ROLE`] does.
    pub library: Option<&'static str>,
}

impl Orders {
    /// Starts a worker that writes its log into this folder.
    pub fn spawn(&self, folder: &Path) -> std::io::Result<Child> {
        let kinds: String = self.reentrant.iter().map(|it| if *it { 'r' } else { 's' }).collect();
        let orders = [
            ("URL", &*self.url),
            ("COUNTER", &self.counter),
            ("SEED", &self.seed.to_string()),
            ("KINDS", &kinds),
            ("GUARDED", if self.guarded { "1" } else { "0" }),
            ("STYLE", self.style.name()),
            ("LIBRARY", self.library.unwrap_or_default()),
        ];
        let role = if self.library.is_some() { peers::ROLE } else { ROLE };
        role::spawn(role, self.process, folder, &orders)
    }
}

/// The role itself.
pub fn play() {
    let mut random = Random::new(ROLE);
    let role = Role::new();
    let reentrant: Vec<bool> = env("KINDS").chars().map(|it| it == 'r').collect();
    let style = Style::named(&env("STYLE"));
    let client = connect(&role);
    role.play(THREADS, |who| {
        let counter = Counter::connect(&env("COUNTER"), env("GUARDED") == "1").unwrap();
        let (random, work) = (random.fork(), Duration::ZERO);
        let mut worker = Worker { random, journal: &role.journal, counter, who, style, work };
        let (client, reentrant) = (&client, &reentrant);
        let (random, journal) = (worker.random.fork(), &*role.journal);
        let mut others =
            Others { random, journal, who, client, replicas: 0, held: HELD, most_held: MOST_HELD };
        move || {
            if style == Style::Mixed && worker.one_in(OTHERS) {
                others.who = worker.who;
                others.other();
                worker.who = others.who;
                return;
            }
            let lock = worker.choose();
            if reentrant[lock] {
                worker.round(&handle(client.reentrant_lock(LOCKS[lock]), who.thread));
            } else {
                worker.round(&handle(client.simple_lock(LOCKS[lock]), who.thread));
            }
        }
    });
    // What lingers and is not given back in the time that closing has ends with its lease.
    released_all(&client.close());
}

/// One of so many rounds is about something other than the three locks: `checker/` checks those.
const OTHERS: u64 = 4;
/// How long most holds last there at most, so that others come meanwhile; and the longest, longer than a lease.
const HELD: Duration = Duration::from_millis(30);
const MOST_HELD: Duration = Duration::from_millis(1500);

/// Longer than most holds are apart.
const LINGER: Duration = Duration::from_secs(2);

/// The threads of odd numbers use handles by which their process keeps the lock.
fn handle<K: Exclusive>(lock: RedisLock<K>, thread: u64) -> RedisLock<K> {
    if thread % 2 == 1 { lock.linger(LINGER) } else { lock }
}

pub fn connect(role: &Role) -> Client {
    // It may have been started while the server is down.
    eventually(LONG, || {
        let made = builder(&env("URL"))
            .lease(LEASE)
            .waiter_timeout(WAITER_TIMEOUT)
            .command_timeout(COMMAND)
            .connect_timeout(COMMAND)
            .client_name(&role.process.to_string())
            .observer(role.losses())
            .connect();
        if made.is_err() {
            thread::sleep(Duration::from_millis(20));
        }
        made.ok()
    })
}
