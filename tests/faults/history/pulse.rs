//! Looks whether the machine and the server have time for us: that they have none explains a wait as
//! a fault does, and is nothing that a lock can mend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis_concurrent_testkit::RedisServer;

use crate::history::fixture::Fixture;
use crate::history::times::Span;
use crate::support::{clock, ms};

const BEAT: Duration = ms(20);

/// How much longer than it should something takes when it is noticed.
const STALL: Duration = ms(150);

/// Sleeps, and says if it was woken much too late.
pub fn nap(time: Duration) -> Option<Span> {
    timed(time, || thread::sleep(time))
}

/// Until it is over: hands on when a thread that only sleeps was woken late.
pub fn of_process(over: &AtomicBool, note: impl Fn(Span)) {
    while !over.load(Ordering::Relaxed) {
        nap(BEAT).into_iter().for_each(&note);
    }
}

/// Until it is over: notes when a write, which waits for the disk, takes long.
pub fn of_server(fixture: &Fixture, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        // It may also be down, or break the connection.
        let slow = timed(Duration::ZERO, || drop(write(&fixture.locks)));
        slow.into_iter().for_each(|span| fixture.stall(span, "slow server"));
        thread::sleep(BEAT);
    }
}

fn timed(most: Duration, act: impl FnOnce()) -> Option<Span> {
    let from = clock();
    act();
    let until = clock();
    (Duration::from_micros(until - from) > most + STALL).then_some((from, until))
}

/// In a database of its own, out of the way of the locks.
fn write(server: &RedisServer) -> redis::RedisResult<()> {
    let mut connection = server.connection()?;
    redis::cmd("SELECT").arg(1).exec(&mut connection)?;
    redis::cmd("SET").arg("pulse").arg(1).arg("PX").arg(1000).exec(&mut connection)
}
