//! Looks whether the machine and the server have time for us: that they have none explains a wait as
//! a fault does, and is nothing that a lock can mend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis_concurrent::testing::RedisServer;

use crate::stage::{RECOVERY, Stage};
use crate::support::{clock, ms};

const BEAT: Duration = ms(20);

/// What is noticed.
const STALL: Duration = ms(150);

/// Until it is over: notes when a thread that only sleeps is woken late.
pub fn of_machine(stage: &Stage, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let from = clock();
        thread::sleep(BEAT);
        let until = clock();
        if Duration::from_micros(until - from) > BEAT + STALL {
            stage.shadow((from, until), "slow machine".into());
        }
    }
}

/// Until it is over: notes when a write, which waits for the disk, takes long.
pub fn of_server(stage: &Stage, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let from = clock();
        // It may also be down, or break the connection.
        let _ = write(&stage.locks);
        let until = clock();
        if Duration::from_micros(until - from) > STALL {
            stage.shadow((from, until + RECOVERY.as_micros() as u64), "slow server".into());
        }
        thread::sleep(BEAT);
    }
}

/// In a database of its own, out of the way of the locks.
fn write(server: &RedisServer) -> redis::RedisResult<()> {
    let mut connection = server.connection()?;
    redis::cmd("SELECT").arg(1).exec(&mut connection)?;
    redis::cmd("SET").arg("pulse").arg(1).arg("PX").arg(1000).exec(&mut connection)
}
