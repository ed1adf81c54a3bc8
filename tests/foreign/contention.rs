//! Contenders for the key: our processes, and programs that know nothing of us.

use std::thread;
use std::time::Instant;

use redis::{Commands, Connection};
use redis_concurrent::SimpleLock;

use crate::foreign::fixture::{Fixture, KEY, LEASE};
use crate::support::{Random, ms};

/// Counted up under the lock by a read and a write: a thread that is not alone there loses a count.
pub const COUNTER: &str = "counter";

/// The contenders that counted, one after the other.
pub const TURNS: &str = "turns";

/// What the lock's holders count.
pub fn count(redis: &mut Connection, who: &str) {
    let n: u64 = redis.get::<_, Option<u64>>(COUNTER).unwrap().unwrap_or(0);
    let () = redis.set(COUNTER, n + 1).unwrap();
    let () = redis.rpush(TURNS, who).unwrap();
}

/// Nobody was inside with another, and the lock went to and fro.
#[track_caller]
pub fn all_were_counted(fixture: &Fixture, all: usize) {
    let turns: Vec<String> = fixture.ask(&["LRANGE", TURNS, "0", "-1"]);
    let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    eprintln!("{} turns, {changes} times between ours and theirs", turns.len());
    assert_eq!((fixture.ask::<usize>(&["GET", COUNTER]), turns.len()), (all, all));
    assert!(changes > 4, "they took no turns");
}

/// Takes the lock so often, with pauses in which others may: long enough that now and then nobody of ours wants it.
pub fn take_turns(fixture: &Fixture, lock: &SimpleLock, rounds: usize, mut chance: Random) {
    let mut redis = fixture.server.connection().unwrap();
    for _ in 0..rounds {
        let guard = lock.lock().unwrap();
        let began = Instant::now();
        count(&mut redis, "ours");
        guard.unlock().unwrap();
        // The four of ours together have it for less than half of the time, however long a turn takes.
        thread::sleep(chance.micros(20_000) + 8 * began.elapsed());
    }
}

#[test]
fn programs_that_lock_by_set_nx_px_and_ours_are_never_inside_together() {
    const ROUNDS: usize = 250;
    let fixture = Fixture::new();
    let [one, other] = [(); 2].map(|()| fixture.client().simple_lock_at(KEY));
    let locks = [one.clone(), one, other.fair(), other];
    let mut chance = Random::new("contention");
    thread::scope(|scope| {
        for lock in &locks {
            let (fixture, chance) = (&fixture, chance.fork());
            scope.spawn(move || take_turns(fixture, lock, ROUNDS, chance));
        }
        for i in 0..2 {
            let (mut foreign, mut chance) = (fixture.foreign_holder(&format!("theirs {i}")), chance.fork());
            let mut redis = fixture.server.connection().unwrap();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    while !foreign.takes(LEASE) {
                        thread::sleep(ms(1));
                    }
                    count(&mut redis, "theirs");
                    assert!(foreign.frees(), "nobody else has freed it");
                    thread::sleep(chance.micros(20_000));
                }
            });
        }
    });
    all_were_counted(&fixture, 6 * ROUNDS);
}
