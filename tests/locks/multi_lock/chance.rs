//! Any wait, any lease, any contention: a call takes no longer than its wait, and no key lives longer than
//! the lease, whichever of the two is the longer one.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind, MultiLock};

use crate::multi_lock::fixture::{Fixture, locks};
use crate::support::{Random, SOON, ms, pttl};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// On a machine on which hardly a call comes in, there are up to ten times as many.
const ROUNDS: u64 = 60;
const ENOUGH: u64 = ROUNDS / 4;
/// What a loaded machine may add.
const LATE: Duration = SOON;

#[test]
fn pain_26_no_call_takes_longer_than_its_wait_and_no_key_lives_longer_than_the_lease() {
    let fixture = Fixture::new();
    let (here, elsewhere, there) = (fixture.client(), fixture.client(), fixture.client());
    let mut random = Random::new("wait, lease, contention");
    let (mut got, mut missed) = (0, 0);
    while got + missed < ROUNDS || got <= ENOUGH && got + missed < 10 * ROUNDS {
        // Of every order of magnitude, in milliseconds.
        let mut any = |shortest: u32, longest: u32| {
            let below = 10u64.pow(shortest + random.below((longest - shortest + 1).into()) as u32);
            random.micros(2 * below)
        };
        // Not so short that a loaded machine loses it before all are there.
        let (lease, wait, hold) = (ms(1000) + any(3, 11), any(1, 5), any(1, 5));
        let busy = NAMES.get(random.below(4) as usize).map(|name| (*name, hold));
        let second = [&here, &elsewhere][random.below(2) as usize];
        let came_in = play(&fixture, [&here, second, &there], lease, wait, busy);
        if came_in { got += 1 } else { missed += 1 }
    }
    println!("{got} came in, {missed} did not");
    assert!(got > ENOUGH, "the play is no play");
    fixture.end(&[&here, &elsewhere, &there]);
}

/// One call, while somebody else holds one of the locks for a while. Whether it came in.
fn play(
    fixture: &Fixture,
    [first, second, other]: [&Client; 3],
    lease: Duration,
    wait: Duration,
    busy: Option<(&str, Duration)>,
) -> bool {
    let what = format!("lease {lease:?}, wait {wait:?}, busy {busy:?}");
    let mut locks = locks(first, &NAMES);
    locks[1] = second.reentrant_lock("b");
    let it = MultiLock::new(&[&locks[0], &locks[1], &locks[2]]).with_lease(lease);
    let in_the_way = busy.map(|(name, hold)| (other.reentrant_lock(name).lock_owned().unwrap(), hold));
    thread::scope(|scope| {
        if let Some((guard, hold)) = in_the_way {
            scope.spawn(move || {
                thread::sleep(hold);
                guard.unlock().unwrap();
            });
        }
        let began = Instant::now();
        let outcome = it.try_lock_for(wait);
        let elapsed = began.elapsed();
        assert!(elapsed <= wait + LATE, "{what}: {elapsed:?}");
        let guard = match outcome {
            // A few microseconds may be too few for an answer.
            Err(error) if error.kind() == ErrorKind::Unavailable => return false,
            outcome => outcome.unwrap(),
        };
        if let Some(guard) = &guard {
            assert!(guard.remaining() <= lease, "{what}");
            for name in NAMES {
                let left = pttl(&fixture.server, &format!("rc:{{{name}}}"));
                assert!(u128::try_from(left).unwrap_or(0) <= lease.as_millis(), "{what}: {name} {left}");
            }
        } else {
            assert!(elapsed >= wait && busy.is_some(), "{what}: {elapsed:?}");
        }
        guard.is_some()
    })
}
