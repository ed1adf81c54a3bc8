//! Of readers that keep writers out, and of a downgrade that nobody hears of.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::*;

use crate::support::*;

/// Readers that wait while somebody writes sleep on when it only reads from then on.
#[test]
fn pain_19_a_downgrade_wakes_waiting_readers() {
    let server = RedisServer::start().unwrap();
    let writes = connect(&server).read_write_lock("x");
    // Their heartbeats come too late for this test: only a message can wake them.
    let clients: Vec<_> = (0..3)
        .map(|_| connected(|| builder(&server.url()).lease(ms(600_000)).waiter_timeout(ms(600_000))))
        .collect();
    let write = writes.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter()
            .map(|client| {
                let lock = client.read_write_lock("x");
                scope.spawn(move || {
                    let guard = lock.read_lock().lock().unwrap();
                    let at = Instant::now();
                    guard.unlock().unwrap();
                    at
                })
            })
            .collect();
        wait_until(LONG, "all wait", || writes.read_lock().queue_length().unwrap() == readers.len());
        let began = Instant::now();
        let read = writes.downgrade(write).unwrap();
        for reader in readers {
            let took = reader.join().unwrap().saturating_duration_since(began);
            assert!(took < LONG, "{took:?}");
        }
        read.unlock().unwrap();
    });
    nothing_left(&server);
}

/// Readers that overlap each other without end keep a writer out forever.
#[test]
fn pain_19_a_writer_waits_for_present_readers_and_not_for_later_ones() {
    const READERS: usize = 20;
    const WRITES: usize = 10;
    const READ: Duration = ms(20);
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    let writer = connect(&server).read_write_lock("x");
    let reads: Vec<_> = (0..READERS).map(|_| AtomicUsize::new(0)).collect();
    let (stop, inside) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut worst, mut seen) = (0, 0);
    thread::scope(|scope| {
        for (i, reads) in reads.iter().enumerate() {
            let (lock, stop, inside) = (clients[i % 4].read_write_lock("x"), &stop, &inside);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.read_lock().lock().unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(READ);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        // What its queue positions begin with.
        let client = {
            let _guard = writer.write_lock().lock().unwrap();
            let owner = writer.write_lock().holder().unwrap().unwrap().owner;
            owner.rsplit_once(':').unwrap().0.to_owned()
        };
        let mut connection = server.connection().unwrap();
        let mut has_position = || {
            let mut range = redis::cmd("ZRANGE");
            range.arg("rc:{x}:queue").arg(0).arg(-1);
            let owners: Vec<String> = range.query(&mut connection).unwrap();
            owners.iter().any(|owner| owner.starts_with(&client))
        };
        let count = || reads.iter().map(|it| it.load(Ordering::SeqCst)).collect::<Vec<_>>();
        for _ in 0..WRITES {
            wait_until(LONG, "many read", || inside.load(Ordering::SeqCst) > READERS / 2);
            let (lock, inside) = (writer.write_lock(), &inside);
            thread::scope(|scope| {
                let writes = scope.spawn(move || {
                    let guard = lock.try_lock_for(LONG).unwrap().expect("it writes in time");
                    let now = count();
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                    guard.unlock().unwrap();
                    now
                });
                // Not from when it began to ask: its thread may have stood still before it had its position.
                let mut is_there = false;
                wait_until(2 * LONG, "it waits", || {
                    is_there = has_position();
                    is_there || writes.is_finished()
                });
                let before = is_there.then(count);
                let now = writes.join().unwrap();
                if let Some(before) = before {
                    let came = now.iter().zip(&before).map(|(now, then)| now.saturating_sub(*then)).max();
                    (worst, seen) = (worst.max(came.unwrap_or(0)), seen + 1);
                }
            });
        }
    });
    println!("at most {worst} reads of one thread while the writer waited, seen to wait {seen} times");
    assert!(seen > 0, "the writer was never seen to wait");
    // One that began before the writer had its queue position, on an idle machine; hundreds, were they let in.
    assert!(worst <= 30, "{worst} reads of one thread passed the writer");
    nothing_left(&server);
}
