//! What one thread of a run does with the locks, and what it notes of it; `recipes.rs` has what is not a lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{self, WHOLE, always, sometimes};
use super::faults::{Plan, Weather};
use super::net::Net;
use super::signals::Role;
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::random::Rng;
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, Held, Ownership};
use crate::kinds::Reentrant;
use crate::lock::holder::HeldBy;
use crate::multi_lock::MultiLock;
use crate::red_lock::RedLockClient;
use crate::sync::{Condvar, Mutex, time};
use crate::wait::Wait;

/// How long after its deadline a call may return.
const LATE: Duration = Duration::from_millis(250);

/// The lease of a hold that is released at once: shorter than a waiter timeout, and than the time after which a hold that
/// was waited for is renewed.
const BRIEF: Duration = Duration::from_millis(400);

/// How much earlier than something goes wrong threads take part at most.
const BEFORE: Duration = Duration::from_millis(200);

/// How many may wait for the lock that few may wait for.
pub(super) const WAITERS: usize = 1;

/// How many servers a lock of several has.
pub(super) const SERVERS: usize = 3;

/// What a thread may take part in.
pub(super) const KINDS: &[&str] = &[
    "barrier",
    "condition",
    "election",
    "inventory",
    "latch",
    "limited",
    "limiter",
    "multi-lock",
    "once",
    "read/write",
    "receipt",
    "reentrant",
    "revocation",
    "semaphore",
    "simple",
    "urgent",
];

/// Those in whose queues threads wait for each other.
pub(super) const QUEUES: &[&str] = &[
    "condition",
    "condition",
    "condition",
    "condition",
    "limited",
    "read/write",
    "read/write",
    "receipt",
    "reentrant",
    "reentrant",
    "revocation",
    "semaphore",
    "simple",
    "urgent",
];

/// Those that have holders.
pub(super) const LOCKS: [&str; 9] =
    ["reentrant", "simple", "left", "right", "exchange", "files", "election", "limited", "urgent"];

/// The threads of each process that play.
pub(super) struct Playing {
    threads: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Playing {
    pub(super) fn new(processes: usize, threads: usize) -> Playing {
        Playing { threads: Mutex::new(vec![threads; processes]), changed: Condvar::new() }
    }

    /// A thread goes from one process to another, or ends.
    fn moves(&self, from: usize, to: Option<usize>) {
        let mut threads = self.threads.lock();
        threads[from] -= 1;
        if let Some(to) = to {
            threads[to] += 1;
            time::belongs_to(to + 1);
        }
        drop(threads);
        self.changed.notify_all();
    }

    /// Waits for the threads of all processes that have not died by then.
    pub(super) fn wait(&self, plan: &Plan) {
        let mut threads = self.threads.lock();
        loop {
            let now = time::elapsed();
            let alive = |process: usize| plan.death(process).filter(|at| *at < now).is_none();
            if threads.iter().enumerate().all(|(process, n)| *n == 0 || !alive(process)) {
                return;
            }
            let deaths = (0..threads.len()).filter_map(|process| plan.death(process));
            match deaths.filter(|at| *at >= now).min() {
                None => self.changed.wait(&mut threads),
                Some(next) => {
                    let limit = next - now + Duration::from_millis(1);
                    self.changed.wait_for(&mut threads, limit);
                }
            }
        }
    }
}

/// One thread.
pub(super) struct Part {
    pub(super) client: Client,
    /// Of another process, if there is one.
    pub(super) other: (usize, Client),
    pub(super) process: usize,
    pub(super) weather: Weather,
    /// How long it pauses at most, in ms.
    pub(super) pace: usize,
    pub(super) rng: Rng,
    /// How long a process may keep a lock after its release.
    pub(super) linger: Duration,
    /// The first process signals the others.
    pub(super) signals: bool,
    pub(super) role: Role,
    /// Its threads take part when something goes wrong.
    pub(super) meets: bool,
    /// When that is.
    pub(super) faults: Vec<Duration>,
    /// Where there are several servers.
    pub(super) red: Option<RedLockClient>,
    /// When for a lease nothing has gone wrong.
    pub(super) settled: Duration,
    pub(super) playing: Arc<Playing>,
    pub(super) net: Arc<Net>,
}

impl Part {
    pub(super) fn play(mut self, kinds: &[&str], rounds: usize) {
        for _ in 0..rounds {
            self.pause(self.pace);
            if let Some(next) = self.next_fault().filter(|_| self.meets && self.rng.below(2) == 0) {
                time::sleep(next.saturating_sub(BEFORE));
                self.pause(1_000);
            }
            if checks::is_over() {
                return;
            }
            match kinds[self.rng.below(kinds.len())] {
                "barrier" => self.meet(),
                "condition" => self.signal_or_wait(),
                "election" => self.lead(),
                "inventory" => self.sell(),
                "latch" => self.count_down(),
                "limited" => self.limited(),
                "limiter" => self.acquire(),
                "multi-lock" => self.both(),
                "once" => self.work(),
                "read/write" => self.read_or_write(),
                "receipt" => self.pass_on(),
                "RedLock" => self.red(),
                "reentrant" => self.reentrant(),
                "revocation" => self.revoke(),
                "semaphore" => self.permits(),
                "urgent" => self.urgent(),
                _ => self.simple(),
            }
        }
        self.playing.moves(self.process, None);
    }

    /// How long it is until something goes wrong.
    pub(super) fn next_fault(&self) -> Option<Duration> {
        let now = time::elapsed();
        self.faults.iter().filter(|at| now < **at).min().map(|at| *at - now)
    }

    fn reentrant(&mut self) {
        let lock = self.client.reentrant_lock("reentrant");
        let lock = if self.rng.below(2) == 0 { lock.linger(self.linger) } else { lock };
        let wait = self.wait();
        self.visit("reentrant", (WHOLE, WHOLE), wait, || lock.lock_with(wait), |guard| Some(guard.token()));
    }

    fn simple(&mut self) {
        let name = ["simple", "simple", "right"][self.rng.below(3)];
        let (lock, wait) = (self.client.simple_lock(name), self.wait());
        if self.rng.below(4) > 0 {
            self.visit(name, (WHOLE, WHOLE), wait, || lock.lock_with(wait), |guard| Some(guard.token()));
            return;
        }
        // One that is over at once, and whose lease is shorter than what a waiter behind it is told.
        let (lock, asked, _about) =
            (lock.with_lease(BRIEF), time::elapsed(), checks::about(name, self.process));
        let Some(got) = self.in_time(wait, lock.lock_with(wait)) else { return };
        let takes = (WHOLE, WHOLE);
        let Some(guard) = got else { return checks::in_vain(name, self.process, takes, asked) };
        let hold = checks::held(name, self.process, takes, Some(guard.token()), asked);
        self.releases(hold, guard);
    }

    /// A lock for which few may wait.
    fn limited(&mut self) {
        let lock = self.client.simple_lock("limited").max_waiters(WAITERS);
        let wait = self.wait();
        let acquire = || match lock.lock_with(wait) {
            Err(e) if e.kind() == ErrorKind::QueueFull => {
                sometimes("a queue is full");
                Err(None)
            }
            got => got.map_err(Some),
        };
        self.visit_if("limited", (WHOLE, WHOLE), wait, acquire, |guard| Some(guard.token()));
    }

    /// A lock for which some wait more urgently than others.
    fn urgent(&mut self) {
        let priority = self.rng.below(3) as i8 - 1;
        let lock = self.client.simple_lock("urgent").priority(priority);
        let wait = self.wait();
        let hold =
            self.visit("urgent", (WHOLE, WHOLE), wait, || lock.lock_with(wait), |guard| Some(guard.token()));
        if let Some(hold) = hold {
            checks::is_urgent(hold, priority);
        }
    }

    /// Takes a lock from its holder, for whom it is kept until it has noticed.
    fn revoke(&mut self) {
        if self.weather == Weather::Calm || self.rng.below(4) > 0 {
            return self.reentrant();
        }
        let lock = self.client.reentrant_lock("reentrant");
        let told = lock.force_unlock_if(&HeldBy::Anyone, "so that it is", true);
        if self.expects(told).is_some() {
            sometimes("a hold is revoked");
        }
    }

    fn read_or_write(&mut self) {
        let lock = self.client.read_write_lock("files");
        let wait = self.wait();
        if self.rng.below(3) == 0 {
            self.visit("files", (WHOLE, WHOLE), wait, || lock.write_lock().lock_with(wait), |_| None);
        } else {
            self.visit("files", (1, WHOLE), wait, || lock.read_lock().lock_with(wait), |_| None);
        }
    }

    fn permits(&mut self) {
        let semaphore = self.client.semaphore("semaphore");
        self.expects(semaphore.try_set_permits(2));
        let n = 1 + self.rng.below(2) as u32;
        let wait = self.wait();
        self.visit("semaphore", (n, 2), wait, || semaphore.acquire_with(n, wait), |_| None);
    }

    pub(super) fn pause(&mut self, most: usize) {
        time::sleep(Duration::from_millis(self.rng.below(most) as u64));
    }

    pub(super) fn wait(&mut self) -> Wait<'static> {
        match self.rng.below(3) {
            0 => {
                // As long as its calls take, so that it is often up just when they would go on.
                let most = [6_000, self.pace * 3 / 2][self.rng.below(2)];
                Wait::timeout(Duration::from_millis(self.rng.below(most) as u64))
            }
            1 if self.rng.below(3) == 0 => Wait::once(),
            _ => Wait::forever(),
        }
    }

    /// Returns the result unless it is one of the errors that a fault may cause.
    pub(super) fn expects<T>(&self, result: Result<T, Error>) -> Option<T> {
        if checks::is_over() {
            return None;
        }
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::OutcomeUnknown => sometimes("a call is told that its outcome is unknown"),
            ErrorKind::Unavailable => sometimes("a call is told that Redis is unavailable"),
            // A semaphore whose permits could not be set, or were forgotten.
            ErrorKind::Refused => {}
            ErrorKind::LeaseLost | ErrorKind::NotOwner => {}
            // A count that was forgotten.
            ErrorKind::Broken if self.weather == Weather::Lossy => {}
            _ => panic!("no promised error: {error:?}"),
        }
        assert!(self.weather != Weather::Calm, "nothing went wrong, and yet: {error:?}");
        None
    }

    /// The same for a call that should be over.
    pub(super) fn in_time<T>(&self, wait: Wait<'_>, result: Result<T, Error>) -> Option<T> {
        is_in_time(wait);
        self.expects(result)
    }

    /// Acquires, stays for a while, and releases. Returns the hold's number.
    fn visit<L: Held, O: Ownership>(
        &mut self,
        name: &str,
        takes: (u32, u32),
        wait: Wait<'_>,
        acquire: impl FnOnce() -> Result<Option<Guard<L, O>>, Error>,
        token: impl Fn(&Guard<L, O>) -> Option<u64>,
    ) -> Option<usize> {
        self.visit_if(name, takes, wait, || acquire().map_err(Some), token)
    }

    /// The same, where a call may be turned away without an error.
    fn visit_if<L: Held, O: Ownership>(
        &mut self,
        name: &str,
        takes: (u32, u32),
        wait: Wait<'_>,
        acquire: impl FnOnce() -> Result<Option<Guard<L, O>>, Option<Error>>,
        token: impl Fn(&Guard<L, O>) -> Option<u64>,
    ) -> Option<usize> {
        let (asked, _about) = (time::elapsed(), checks::about(name, self.process));
        let got = match acquire() {
            Err(None) => return None,
            Err(Some(e)) => self.in_time(wait, Err(e))?,
            Ok(got) => self.in_time(wait, Ok(got))?,
        };
        let Some(guard) = got else {
            checks::in_vain(name, self.process, takes, asked);
            return None;
        };
        let hold = checks::held(name, self.process, takes, token(&guard), asked);
        self.stay(hold, &guard);
        self.releases(hold, guard);
        Some(hold)
    }

    /// Releases a hold, sometimes without waiting for the reply.
    pub(super) fn releases<L: Held, O: Ownership>(&mut self, hold: usize, guard: Guard<L, O>) {
        checks::ends(hold);
        if self.rng.below(4) == 0 {
            drop(guard);
            return checks::released(hold, false);
        }
        let released = guard.unlock();
        checks::released(hold, self.expects(released).is_some());
    }

    /// Holds a lock, and passes the hold on to another process by a receipt.
    fn pass_on(&mut self) {
        let asked = time::elapsed();
        let about = [self.process, self.other.0].map(|process| checks::about("reentrant", process));
        let lock = self.client.reentrant_lock("reentrant");
        let wait = self.wait();
        let Some(got) = self.in_time(wait, lock.lock_owned_with(wait)) else { return };
        let Some(guard) = got else {
            return checks::in_vain("reentrant", self.process, (WHOLE, WHOLE), asked);
        };
        let hold = checks::held("reentrant", self.process, (WHOLE, WHOLE), Some(guard.token()), asked);
        self.stay(hold, &guard);
        let now = time::elapsed();
        let Some(receipt) = self.expects(guard.into_receipt()) else { return };
        checks::valid(hold, now);
        self.pause(1_500);
        // From here on this is a thread of the other process.
        let (other, client) = self.other.clone();
        self.playing.moves(self.process, Some(other));
        checks::goes(hold, other);
        if let Some(guard) = self.expects(client.adopt::<Reentrant>(&receipt)) {
            sometimes("a hold is passed on by a receipt");
            self.stay(hold, &guard);
            self.releases(hold, guard);
        } else {
            // A receipt that nobody takes keeps its lock for a lease.
            about.into_iter().for_each(std::mem::forget);
        }
        self.playing.moves(other, Some(self.process));
    }

    /// Holds a lock of several servers.
    fn red(&mut self) {
        let lock = self.red.as_ref().expect("several servers").lock("red");
        let wait = self.wait();
        self.visit(
            "red",
            (WHOLE, WHOLE),
            wait,
            || lock.lock_with(wait),
            |guard| {
                let all = guard.servers() == SERVERS;
                sometimes(if all {
                    "several servers are held"
                } else {
                    "several servers are held by a majority"
                });
                None
            },
        );
    }

    /// Holds two locks at once.
    fn both(&mut self) {
        let asked = time::elapsed();
        let _about = ["left", "right"].map(|name| checks::about(name, self.process));
        let (one, other) = (self.client.reentrant_lock("left"), self.client.simple_lock("right"));
        let wait = self.wait();
        let Some(got) = self.in_time(wait, MultiLock::new(&[&one, &other]).lock_with(wait)) else { return };
        let Some(guard) = got else { return sometimes("a wait ends by its timeout") };
        let tokens = guard.tokens();
        let names = ["left", "right"].into_iter().zip(tokens);
        let holds: Vec<_> = names
            .map(|(name, token)| checks::held(name, self.process, (WHOLE, WHOLE), token, asked))
            .collect();
        for _ in 0..self.rng.below(5) {
            self.pause(self.pace / 4);
            let now = time::elapsed();
            if guard.is_lost() {
                break;
            }
            holds.iter().for_each(|hold| checks::valid(*hold, now));
        }
        sometimes("two locks are held at once");
        holds.iter().for_each(|hold| checks::ends(*hold));
        let released = guard.unlock();
        let well = self.expects(released).is_some();
        holds.iter().for_each(|hold| checks::released(*hold, well));
    }

    /// Holds it for a while, and notes until when it is valid.
    pub(super) fn stay<L: Held, O: Ownership>(&mut self, hold: usize, guard: &Guard<L, O>) {
        let steps = 1 + [self.rng.below(3), self.rng.below(30)][self.rng.below(2)];
        for _ in 0..steps {
            self.pause(self.pace / 4);
            // It may have to wait for its turn to say so.
            let (now, left) = (time::elapsed(), guard.remaining());
            if left.is_zero() {
                if time::went_on() > Moment::default() {
                    sometimes("a process goes on whose lease ran out");
                }
                return sometimes("a hold is lost");
            }
            checks::valid(hold, now);
            self.is_held(hold, left);
        }
    }

    /// held-while-valid: as long as what a process holds is valid by its clock, Redis keeps it; where writes are lost,
    /// from a lease after the last of that on.
    fn is_held(&self, hold: usize, left: Duration) {
        if self.red.is_some() || self.weather == Weather::Lossy && time::elapsed() < self.settled {
            return;
        }
        let (lock, process) = checks::of(hold);
        let client = if process == self.process { &self.client } else { &self.other.1 };
        let lasts = self.net.lasts(&lock, &client.0.uuid);
        // By clocks that differ by less than this; Redis counts in milliseconds.
        let fits = lasts.is_some_and(|lasts| left.mul_f64(0.99) <= lasts + Duration::from_millis(1));
        always("held-while-valid", fits || lock.starts_with("order"), || {
            format!("{lock} for {left:?} in {process}, and in Redis for {lasts:?}")
        });
    }
}

/// everybody-gets-in: where nothing goes wrong any more, a process acquires each of these, within `limit`.
pub(super) fn gets_in(client: &Client, process: usize, kinds: &[&str], limit: Duration) {
    fn one<L: Held, O: Ownership>(what: &str, got: Result<Option<Guard<L, O>>, Error>) {
        // Permits that were never set, or forgotten.
        let got = match got {
            Err(e) if what == "semaphore" && e.kind() == ErrorKind::Refused => return,
            got => got.map(|guard| guard.map(Guard::unlock)),
        };
        let fine = matches!(got, Ok(Some(Ok(()))));
        always("everybody-gets-in", fine, || format!("not to {what}: {got:?}"));
    }
    let wait = Wait::timeout(limit);
    let _about = LOCKS.map(|lock| checks::about(lock, process));
    for kind in kinds.iter().collect::<BTreeSet<_>>() {
        match *kind {
            "read/write" => {
                one("files", client.read_write_lock("files").write_lock().lock_with(wait));
                one("files", client.read_write_lock("files").read_lock().lock_with(wait));
            }
            "reentrant" | "receipt" | "revocation" => {
                one("reentrant", client.reentrant_lock("reentrant").lock_with(wait));
            }
            "condition" => one("exchange", client.reentrant_lock("exchange").lock_with(wait)),
            "semaphore" => one("semaphore", client.semaphore("semaphore").acquire_with(2, wait)),
            "simple" => one("simple", client.simple_lock("simple").lock_with(wait)),
            "limited" | "urgent" => one(kind, client.simple_lock(kind).lock_with(wait)),
            "multi-lock" => {
                one("left", client.reentrant_lock("left").lock_with(wait));
                one("right", client.simple_lock("right").lock_with(wait));
            }
            _ => {}
        }
    }
}

/// one-deadline: a call returns by its deadline, or a little later.
pub(super) fn is_in_time(wait: Wait<'_>) {
    // A process that has stopped has its time from then.
    let late = Moment::now().since(wait.deadline.max(time::went_on()));
    always("one-deadline", late <= LATE, || format!("{late:?} after it"));
}
