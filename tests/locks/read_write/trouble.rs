//! Readers and writers that die, and messages that are lost.

use std::thread;
use std::time::Instant;

use redis_concurrent_testkit::{Child, Proxy, wait_until};

use crate::read_write::{Fixture, HALF, URL};
use crate::support::{Event, LONG, Recorder, SOON, builder, connected, in_brief, ms, nothing_left};

fn dying(fixture: &Fixture, half: &str) -> Child {
    Child::spawn("read_write::dies", &[(URL, &fixture.server.url()), (HALF, half)]).unwrap()
}

#[test]
fn a_dead_reader_lets_the_writer_in_when_its_own_lease_is_over_also_beside_other_readers() {
    // (Again where the machine stood still for that lease.)
    assert!((0..5).any(|_| counts_until_its_lease_is_over()), "it is counted while its lease lasts");
}

/// Whether the dead reader was seen to count until then.
fn counts_until_its_lease_is_over() -> bool {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let living = other.read_lock().lock().unwrap();
    let mut child = dying(&fixture, "read");
    assert_eq!(child.read_line_within(LONG).unwrap(), "in");
    child.kill9().unwrap();
    let died = Instant::now();
    let counts = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let guard = lock.write_lock().lock().unwrap();
            drop(guard);
            died.elapsed()
        });
        fixture.await_queued(1);
        let counts = lock.read_count().unwrap() == 2;
        wait_until(LONG, "the dead one's lease is over", || lock.read_count().unwrap() == 1);
        assert!(!writer.is_finished(), "the living one reads");
        drop(living);
        let waited = writer.join().unwrap();
        assert!(waited < ms(1500) + SOON, "{waited:?}");
        counts
    });
    nothing_left(&fixture.server);
    counts
}

#[test]
fn a_writer_that_dies_waiting_keeps_readers_out_for_its_window() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let read = lock.read_lock().lock().unwrap();
    let mut child = dying(&fixture, "write");
    fixture.await_queued(1);
    child.kill9().unwrap();
    let died = Instant::now();
    let guard = other.read_lock().try_lock_for(LONG).unwrap().expect("nobody writes");
    let waited = died.elapsed();
    assert!(waited < ms(1500) + SOON, "{waited:?}");
    drop((read, guard));
    nothing_left(&fixture.server);
}

#[test]
fn a_writer_that_dies_writing_lets_others_in_when_its_lease_is_over() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let mut child = dying(&fixture, "write");
    assert_eq!(child.read_line_within(LONG).unwrap(), "in");
    child.kill9().unwrap();
    drop(lock.read_lock().try_lock_for(LONG).unwrap().expect("a lease later"));
    nothing_left(&fixture.server);
}

#[test]
fn a_renewed_reader_outlives_its_lease() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let client = fixture.client_with(|b| b.lease(LONG).renew_every(ms(300)).observer(recorder.clone()));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    let read = lock.read_lock().lock().unwrap();
    // Beside a writer that waits.
    assert!(in_brief(other.write_lock().try_lock_for(ms(1000))).is_none());
    wait_until(LONG, "it is renewed several times", || recorder.count(Event::Renewed) > 4);
    assert!(other.write_lock().try_lock().unwrap().is_none());
    read.unlock().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn lost_answers_leave_nobody_inside() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(SOON));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    for _ in 0..3 {
        proxy.swallow_next_reply_and_reset();
        drop(lock.read_lock().try_lock_for(SOON).unwrap().expect("asked again"));
        let write = other.write_lock().try_lock_for(SOON).unwrap().expect("nobody reads");
        drop(write);
        proxy.swallow_next_reply_and_reset();
        let write = lock.write_lock().try_lock_for(SOON).unwrap().expect("asked again");
        let read = lock.downgrade(write).unwrap();
        assert!(other.read_lock().try_lock().unwrap().is_some());
        drop(read);
    }
    proxy.heal().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn a_downgrade_whose_answer_is_lost_is_asked_for_again() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(SOON));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    let write = lock.write_lock().lock().unwrap();
    proxy.swallow_next_reply_and_reset();
    let read = lock.downgrade(write).unwrap();
    assert!(!read.is_lost());
    assert!(other.read_lock().try_lock().unwrap().is_some());
    assert!(other.write_lock().try_lock().unwrap().is_none());
    read.unlock().unwrap();
    assert!(other.write_lock().try_lock().unwrap().is_some());
    nothing_left(&fixture.server);
}
