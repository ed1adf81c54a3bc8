//! One round of a worker's thread: asks for a lock in some way, counts under it, gives it back.

use std::thread;
use std::time::Duration;

use redis_concurrent::guard::Ownership;
use redis_concurrent::kinds::{Exclusive, Reentrancy};
use redis_concurrent::{CancellationToken, Error, Guard, OwnedGuard, RedisLock, Wait};

use crate::history::counter::Counter;
use crate::history::log::{Event, Journal, Who};
use crate::history::plan::LEASE;
use crate::history::pulse::nap;
use crate::support::{Random, clock, ms};

/// What rounds are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Every form and every term, mostly short.
    Mixed,
    /// Only `lock()` on the first lock, and a long time between reading and writing.
    Slow,
}

impl Style {
    pub fn name(self) -> &'static str {
        if self == Style::Slow { "slow" } else { "mixed" }
    }

    pub fn named(name: &str) -> Self {
        if name == "slow" { Style::Slow } else { Style::Mixed }
    }
}

/// The ways in.
#[derive(Clone, Copy, Debug)]
enum Form {
    Lock,
    TryLock,
    TryLockFor,
    LockInterruptibly,
    TryLockForInterruptibly,
    LockOwned,
    TryLockOwnedFor,
    LockOwnedInterruptibly,
}

/// As often as they stand here.
const FORMS: [Form; 16] = [
    Form::Lock,
    Form::Lock,
    Form::Lock,
    Form::Lock,
    Form::TryLock,
    Form::TryLock,
    Form::TryLockFor,
    Form::TryLockFor,
    Form::LockInterruptibly,
    Form::LockInterruptibly,
    Form::TryLockForInterruptibly,
    Form::LockOwned,
    Form::LockOwned,
    Form::TryLockOwnedFor,
    Form::LockOwnedInterruptibly,
    Form::LockOwnedInterruptibly,
];

/// One thread of a worker.
pub struct Worker<'a> {
    pub random: Random,
    pub journal: &'a Journal,
    pub counter: Counter,
    pub who: Who,
    pub style: Style,
    /// How long it takes to count once, in this round.
    pub work: Duration,
}

impl Worker<'_> {
    /// Which lock the next round is about: half of the time the first, so that threads of one process
    /// meet there.
    pub fn choose(&mut self) -> usize {
        if self.style == Style::Slow { 0 } else { [0, 0, 1, 2][self.random.below(4) as usize] }
    }

    /// One round.
    pub fn round<K: Exclusive>(&mut self, lock: &RedisLock<K>) {
        self.who.round += 1;
        let mut lock = lock.clone();
        let (mut form, mut terms, mut lease) = (Form::Lock, String::new(), LEASE);
        if self.style == Style::Mixed {
            form = FORMS[self.random.below(FORMS.len() as u64) as usize];
            if self.one_in(4) {
                lock = lock.fair();
                terms += " fair";
            }
            if self.one_in(5) {
                lease = ms(300) + self.random.micros(600_000);
                lock = lock.with_lease(lease);
                terms += " fixed";
            }
        }
        self.work = self.work(lease);
        let limit = if self.one_in(5) { ms(2000) } else { self.random.micros(60_000) };
        self.note(clock(), Event::Called { lock: lock.name().into(), form: format!("{form:?}{terms}") });
        match form {
            Form::Lock => self.guarded(&lock, lock.lock().map(Some)),
            Form::TryLock => self.guarded(&lock, lock.try_lock()),
            Form::TryLockFor => self.guarded(&lock, lock.try_lock_for(limit)),
            Form::LockInterruptibly => {
                let got = self.interrupted(|cancel| lock.lock_interruptibly(cancel));
                self.guarded(&lock, got.map(Some));
            }
            Form::TryLockForInterruptibly => {
                let got =
                    self.interrupted(|cancel| lock.lock_with(Wait::timeout(limit).cancelled_by(cancel)));
                self.guarded(&lock, got);
            }
            Form::LockOwned => self.owned(lock.lock_owned().map(Some)),
            Form::TryLockOwnedFor => self.owned(lock.lock_owned_with(limit)),
            Form::LockOwnedInterruptibly => {
                let got = self.interrupted(|cancel| lock.lock_owned_with(cancel));
                self.owned(got);
            }
        }
        if self.style == Style::Mixed {
            let time = self.random.micros(2000);
            self.nap(time);
        }
    }

    /// Calls `ask` with a token that is cancelled after some time, if it waits for so long.
    fn interrupted<T>(&mut self, ask: impl FnOnce(&CancellationToken) -> T) -> T {
        let after = self.random.micros(40_000);
        let (cancel, done) = (CancellationToken::new(), CancellationToken::new());
        thread::scope(|scope| {
            let interrupt = || {
                if !done.wait_timeout(after) {
                    cancel.cancel();
                }
            };
            thread::Builder::new().name("interrupter".into()).spawn_scoped(scope, interrupt).unwrap();
            let got = ask(&cancel);
            done.cancel();
            got
        })
    }

    fn guarded<K: Exclusive>(&mut self, lock: &RedisLock<K>, got: Result<Option<Guard<K>>, Error>) {
        let Some(guard) = self.got(got) else { return };
        self.held(&guard);
        self.count(&guard);
        if K::REENTRANCY == Reentrancy::Counted && self.one_in(4) {
            self.re_enter(lock, &guard);
        }
        self.release(&guard);
        self.released(guard.unlock());
    }

    /// The guard goes to another thread at times, and ends there.
    fn owned<K: Exclusive>(&mut self, got: Result<Option<OwnedGuard<K>>, Error>) {
        let Some(guard) = self.got(got) else { return };
        self.held(&guard);
        let work = |me: &mut Self| {
            me.count(&guard);
            me.release(&guard);
            me.released(guard.unlock());
        };
        if self.one_in(2) {
            thread::scope(|scope| {
                thread::Builder::new().name("carrier".into()).spawn_scoped(scope, || work(self)).unwrap();
            });
        } else {
            work(self);
        }
    }

    fn got<G>(&mut self, got: Result<Option<G>, Error>) -> Option<G> {
        let how = match got {
            Ok(Some(guard)) => return Some(guard),
            Ok(None) => "none".to_owned(),
            Err(error) => format!("{:?} {error}", error.kind()),
        };
        self.note(clock(), Event::Ended { how });
        None
    }

    /// Comes in again, on the same thread, and counts there too.
    fn re_enter<K: Exclusive>(&mut self, lock: &RedisLock<K>, outer: &Guard<K>) {
        let again = |event| Event::Again(Box::new(event));
        self.note(clock(), again(Event::Called { lock: lock.name().into(), form: "Lock".into() }));
        match lock.lock() {
            Ok(inner) => {
                let at = clock();
                self.note(at, again(Event::Held { token: inner.token(), left: left(&inner) }));
                if inner.token() != outer.token() {
                    self.odd(format!("re-entry into {} gave {}", outer.token(), inner.token()));
                }
                self.count(&inner);
                let at = clock();
                self.note(at, again(Event::Release { left: left(&inner) }));
                let outcome = inner.unlock();
                self.note(clock(), again(Event::Released { how: how(&outcome) }));
                if let Err(error) = outcome
                    && !error.is_lease_lost()
                {
                    self.odd(format!("the inner guard's unlock said {error}"));
                }
            }
            Err(error) => {
                self.note(clock(), again(Event::Ended { how: format!("{:?} {error}", error.kind()) }));
                if !error.is_lease_lost() || !outer.is_lost() {
                    self.odd(format!("re-entry said {error}"));
                }
            }
        }
    }

    /// Reads, takes its time, writes, and never asks whether the hold is lost: that is the token's
    /// business.
    fn count<K: Exclusive, O: Ownership>(&mut self, hold: &Guard<K, O>) {
        let Some(read) = self.counter.read(hold.name(), hold.token()) else {
            return self.refused(hold);
        };
        self.nap(self.work);
        if self.counter.write(hold.name(), hold.token(), read) {
            self.note(clock(), Event::Wrote { read });
        } else {
            self.refused(hold);
        }
    }

    /// How long counting once takes: mostly not long, at times longer than the lease.
    fn work(&mut self, lease: Duration) -> Duration {
        if self.style == Style::Slow {
            return ms(30) + self.random.micros(30_000);
        }
        // Nobody renews a fixed lease: those are overrun more often.
        let overrun = if lease < LEASE { 40 } else { 3 };
        match self.random.below(1000) {
            n if n < overrun => lease + self.random.micros(lease.as_micros() as u64 / 2),
            0..700 => self.random.micros(1000),
            700..970 => self.random.micros(10_000),
            _ => self.random.micros(100_000),
        }
    }

    fn nap(&self, time: Duration) {
        if let Some((from, until)) = nap(time) {
            self.note(until, Event::Stalled { from });
        }
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    // ---- the log. Times are taken before `remaining()` is asked, so that none says too much ------

    fn held<K: Exclusive, O: Ownership>(&self, hold: &Guard<K, O>) {
        let at = clock();
        self.note(at, Event::Held { token: hold.token(), left: left(hold) });
    }

    fn release<K: Exclusive, O: Ownership>(&self, hold: &Guard<K, O>) {
        let at = clock();
        self.note(at, Event::Release { left: left(hold) });
    }

    fn refused<K: Exclusive, O: Ownership>(&self, hold: &Guard<K, O>) {
        let at = clock();
        self.note(at, Event::Refused { left: left(hold) });
    }

    fn released(&self, outcome: Result<(), Error>) {
        self.note(clock(), Event::Released { how: how(&outcome) });
    }

    fn odd(&self, what: String) {
        self.note(clock(), Event::Odd { what });
    }

    fn note(&self, at: u64, event: Event) {
        self.journal.note(at, self.who, event);
    }
}

fn left<K: Exclusive, O: Ownership>(hold: &Guard<K, O>) -> u64 {
    hold.remaining().as_micros() as u64
}

/// What is written down of an outcome: `ok`, or the kind of an error and its words.
pub fn how<T>(outcome: &Result<T, Error>) -> String {
    outcome.as_ref().map_or_else(|error| format!("{:?} {error}", error.kind()), |_| "ok".into())
}
