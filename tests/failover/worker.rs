//! A worker: a process of four threads that hold and wait in all ways, and write down what they got.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::Kind;
use redis_concurrent::once::Begun;
use redis_concurrent::{Client, Error, Guard, RedisLock};
use redis_concurrent_testkit::{Child, eventually};

use crate::history::log::{Event, Journal, Who};
use crate::history::role::{self, Role};
use crate::history::rounds::how;
use crate::support::{LONG, Random, builder, clock, env, ms};

pub const ROLE: &str = "failover::role_worker";
pub const THREADS: u64 = 4;

/// The permits of the semaphore.
pub const PERMITS: u32 = 2;
/// The parties of the barrier, and how long one waits for the other.
pub const PARTIES: usize = 2;
const MEETS: Duration = ms(1000);
/// For how long, in microseconds, all do the same: else few would meet.
const TOGETHER: u64 = 300_000;
/// How long most holds last at most.
const HELD: Duration = ms(8);

/// What was held by a thread when the server in use died is lost to the others for so long.
pub const LEASE: Duration = ms(4000);
/// How long a request may take.
pub const COMMAND: Duration = ms(1000);
/// How long any wait may take: longer than a failover, with all that it costs.
pub const PATIENCE: Duration = ms(30_000);
/// How long a thread waits for a signal.
pub const AWAITS: Duration = ms(8000);
/// The thread whose holds are long, one of so many; else none would last over a failover.
const HOLDS_LONG: u64 = THREADS;
const LONG_ONES: u64 = 16;
const MOST_HELD: Duration = ms(4000);
/// How long a replica may take to acknowledge a hold.
const ACKNOWLEDGED: Duration = ms(3000);

/// Starts the worker with this number, which writes its log into this folder.
pub fn spawn(process: u64, url: &str, seed: u64, replicas: u64, folder: &Path) -> std::io::Result<Child> {
    let (seed, replicas) = (seed.to_string(), replicas.to_string());
    role::spawn(ROLE, process, folder, &[("URL", url), ("SEED", &seed), ("REPLICAS", &replicas)])
}

/// The role itself.
pub fn play() {
    let mut random = Random::new(ROLE);
    let role = Role::new();
    let replicas = env("REPLICAS").parse().unwrap();
    let client = connect(&role);
    role.play(THREADS, |who| {
        let random = random.fork();
        let (journal, client) = (&*role.journal, &client);
        let mut worker = Worker { random, journal, who, client, replicas, held: HELD, most_held: MOST_HELD };
        move || worker.round()
    });
    // It may be that a failover has just begun.
    let _ = client.close();
}

fn connect(role: &Role) -> Client {
    eventually(LONG, || {
        builder(&env("URL"))
            .lease(LEASE)
            .command_timeout(COMMAND)
            .unreachable_timeout(PATIENCE)
            .observer(role.losses())
            .connect()
            .ok()
    })
}

pub struct Worker<'a> {
    pub random: Random,
    pub journal: &'a Journal,
    pub who: Who,
    pub client: &'a Client,
    /// How many must acknowledge a hold.
    pub replicas: usize,
    /// How long most holds last at most, and the long ones.
    pub held: Duration,
    pub most_held: Duration,
}

impl Worker<'_> {
    fn round(&mut self) {
        let client = self.client;
        match self.random.below(10) {
            0..2 => self.lock("a", &client.reentrant_lock("a"), |it| it.token()),
            2..4 => self.lock("b", &client.simple_lock("b"), |it| it.token()),
            4 => self.writes(),
            5..7 => self.reads(),
            7 => self.permits(),
            _ => self.condition(),
        }
        thread::sleep(self.random.micros(3000));
    }

    /// A round with what is not an exclusive lock.
    pub fn other(&mut self) {
        match clock() / TOGETHER % 6 {
            0 => self.writes(),
            1..3 => self.reads(),
            3 => self.permits(),
            4 => self.meets(),
            _ => self.works(),
        }
    }

    fn writes(&mut self) {
        self.lock("rw/write", self.client.read_write_lock("rw").write_lock(), |it| it.token());
    }

    /// Shared holds have no tokens.
    fn reads(&mut self) {
        self.lock("rw/read", self.client.read_write_lock("rw").read_lock(), |_| 0);
    }

    fn acknowledged<K: Kind>(&self, lock: RedisLock<K>) -> RedisLock<K> {
        if self.replicas == 0 { lock } else { lock.with_replicas(self.replicas, ACKNOWLEDGED) }
    }

    fn asks(&mut self, lock: &str, form: &str) {
        self.who.round += 1;
        self.note(Event::Called { lock: lock.into(), form: form.into() });
    }

    fn lock<K: Kind + Clone>(&mut self, name: &str, lock: &RedisLock<K>, token: fn(&Guard<K>) -> u64) {
        self.asks(name, "lock");
        let lock = self.acknowledged(lock.clone());
        if let Some(guard) = self.got(lock.try_lock_for(PATIENCE)) {
            self.holds(token(&guard), || left(guard.is_lost(), guard.remaining()));
            self.releases(|| left(guard.is_lost(), guard.remaining()));
            self.released(guard.unlock());
        }
    }

    fn permits(&mut self) {
        self.asks("s", "permit");
        let mut permits = self.client.semaphore("s");
        if self.replicas > 0 {
            permits = permits.with_replicas(self.replicas, ACKNOWLEDGED);
        }
        if let Some(permit) = self.got(permits.acquire_with(1, PATIENCE)) {
            self.holds(0, || left(permit.is_lost(), permit.remaining()));
            self.releases(|| left(permit.is_lost(), permit.remaining()));
            self.released(permit.release());
        }
    }

    fn meets(&mut self) {
        let barrier = self.client.cyclic_barrier("meet", PARTIES);
        self.asks("meet", "waitFor");
        let met = barrier.wait_with(MEETS);
        self.note(Event::Ended { how: how(&met) });
        if met.is_err() && barrier.is_broken().unwrap_or(false) {
            // It may be that another has, or that the server is down: then somebody will.
            let _ = barrier.reset();
        }
    }

    fn works(&mut self) {
        let key = format!("once-{}", clock() / TOGETHER);
        let once = self.client.once(&key);
        self.asks(&key, "beginFor");
        let attempt = match once.begin_with(PATIENCE) {
            Ok(Begun::Yours(attempt)) => attempt,
            Ok(Begun::Done(answer)) => return self.note(Event::Ended { how: format!("answered {answer}") }),
            Ok(_) => return self.note(Event::Ended { how: "none".into() }),
            Err(error) => return self.note(Event::Ended { how: how(&Err::<(), _>(error)) }),
        };
        let left = || attempt.remaining().as_micros() as u64;
        self.holds(attempt.token(), left);
        self.releases(left);
        let answer = attempt.token().to_string();
        self.released(attempt.done(&answer));
    }

    /// Under one lock, half of the callers wait for a signal, and the others give one.
    fn condition(&mut self) {
        let lock = self.acknowledged(self.client.reentrant_lock("q"));
        let condition = lock.condition("some");
        self.asks("q", "lock");
        let Some(mut guard) = self.got(lock.try_lock_for(PATIENCE)) else { return };
        self.holds(guard.token(), || left(guard.is_lost(), guard.remaining()));
        if self.random.below(2) == 0 {
            self.releases(|| left(guard.is_lost(), guard.remaining()));
            let first = self.who;
            self.asks("q/some", "await");
            let waited = condition.wait_with(&mut guard, AWAITS);
            // It says as well what became of the hold that it gave back.
            self.journal.note(clock(), first, Event::Released { how: how(&waited) });
            let how = match waited {
                Ok(true) => "woken".into(),
                Ok(false) => "timeout".into(),
                Err(error) => format!("{:?} {error}", error.kind()),
            };
            self.note(Event::Ended { how });
            // It holds the lock again, unless that was lost meanwhile.
            self.asks("q", "back");
            self.holds(guard.token(), || left(guard.is_lost(), guard.remaining()));
        } else {
            let (round, how) = (self.who.round, how(&condition.signal_all(&guard)));
            self.asks("q/signal", "signal");
            self.note(Event::Ended { how });
            // The hold is that of its round.
            self.who.round = round;
            self.releases(|| left(guard.is_lost(), guard.remaining()));
            self.released(guard.unlock());
            self.who.round += 1;
            return;
        }
        self.releases(|| left(guard.is_lost(), guard.remaining()));
        self.released(guard.unlock());
    }

    fn got<G>(&mut self, got: Result<Option<G>, Error>) -> Option<G> {
        let how = match got {
            Ok(Some(guard)) => return Some(guard),
            Ok(None) => "none".to_owned(),
            Err(error) => {
                // What cannot be served now is not asked for without a rest.
                thread::sleep(ms(20));
                format!("{:?} {error}", error.kind())
            }
        };
        self.note(Event::Ended { how });
        None
    }

    /// Mostly for a moment; some last longer than a failover takes, or until they are lost. The time is taken before `left` is
    /// asked for, so that it does not say too much.
    fn holds(&mut self, token: u64, left: impl Fn() -> u64) {
        let at = clock();
        self.journal.note(at, self.who, Event::Held { token, left: left() });
        if self.who.thread != HOLDS_LONG || self.random.below(LONG_ONES) > 0 {
            return thread::sleep(self.random.micros(self.held.as_micros() as u64));
        }
        let until = Instant::now() + self.random.micros(self.most_held.as_micros() as u64);
        while Instant::now() < until && left() > 0 {
            thread::sleep(ms(5));
        }
    }

    fn releases(&self, left: impl Fn() -> u64) {
        let at = clock();
        self.journal.note(at, self.who, Event::Release { left: left() });
    }

    fn released(&self, outcome: Result<(), Error>) {
        self.note(Event::Released { how: how(&outcome) });
    }

    fn note(&self, event: Event) {
        self.journal.note(clock(), self.who, event);
    }
}

fn left(lost: bool, remaining: Duration) -> u64 {
    if lost { 0 } else { remaining.as_micros() as u64 }
}
