//! Other Java libraries whose lock is a plain string key: ShedLock, and Spring Integration's `RedisLockRegistry` in its
//! default mode.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::wait_until;

use crate::redisson::fixture::Fixture;
use crate::redisson::jvm::Jvm;
use crate::support::{LONG, ms};

const JOB: &str = "job-lock:prod:nightly";
const LOCK: &str = "orders:42";

#[test]
fn shedlock_and_spring_integration_share_a_simple_lock() {
    let fixture = Fixture::new();
    let (port, test) =
        (fixture.server.port().to_string(), "shedlock_and_spring_integration_share_a_simple_lock");
    let Some(mut java) = Jvm::start("Others", &[&port, "prod", "orders", "42", "43"], test) else { return };
    shedlock_keeps_its_job_for_its_least_time(&fixture, &mut java);
    our_job_stays_for_its_least_time(&fixture, &mut java);
    spring_and_ours_exclude_each_other(&fixture, &mut java);
}

fn shedlock_keeps_its_job_for_its_least_time(fixture: &Fixture, java: &mut Jvm) {
    let job = fixture.client().simple_lock_at(JOB);
    let began = Instant::now();
    assert_eq!(java.does(0, "job nightly 60000 1500"), "in");
    assert!(job.try_lock().unwrap().is_none());
    assert!(job.holder().unwrap().unwrap().owner.starts_with("ADDED:"));
    assert_eq!(java.does(0, "done"), "out");
    let guard = job.try_lock_for(LONG).unwrap().expect("when its least time is over");
    assert!(began.elapsed() >= ms(1_400), "{:?}", began.elapsed());
    guard.unlock().unwrap();
}

fn our_job_stays_for_its_least_time(fixture: &Fixture, java: &mut Jvm) {
    let job = fixture.client().simple_lock_at(JOB).min_hold(ms(1_500));
    let began = Instant::now();
    job.lock().unwrap().unlock().unwrap();
    let found = java.does(0, "job nightly 60000 0");
    // (It is free already where the machine stood still.)
    assert!(found == "busy" || began.elapsed() > ms(1_400), "{found} after {:?}", began.elapsed());
    if found == "busy" {
        wait_until(LONG, "ShedLock has the job", || {
            thread::sleep(ms(20));
            java.does(0, "job nightly 60000 0") == "in"
        });
    }
    assert!(began.elapsed() >= ms(1_400), "{:?}", began.elapsed());
    assert_eq!(java.does(0, "done"), "out");
}

fn spring_and_ours_exclude_each_other(fixture: &Fixture, java: &mut Jvm) {
    let lock = fixture.client().simple_lock_at(LOCK);
    let guard = lock.lock().unwrap();
    assert_eq!(java.does(0, "try 200"), "busy");
    java.say(0, &format!("try {}", Duration::as_millis(&LONG)));
    guard.unlock().unwrap();
    assert_eq!(java.receives(0), "in");
    assert!(lock.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.try_lock_for(LONG).unwrap().expect("in time").unlock().unwrap());
        assert_eq!(java.does(0, "unlock"), "out");
        waits.join().unwrap();
    });
}
