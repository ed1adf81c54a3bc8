//! A custom kind for which each caller asks by itself: a gate, at which threads of any process wait until it
//! is opened.
//!
//! Its rule is `own_gate.lua`; the engine does the rest. `cargo run --example own_gate` shows what it does.

use std::thread;
use std::time::Duration;

use redis_concurrent::kinds::{Kind, Queueing, Reentrancy, Sharing};
use redis_concurrent::{Client, Error, RedisLock, rule_file};
use redis_concurrent_testkit::RedisServer;

#[derive(Clone, Debug)]
struct Gate;

impl Kind for Gate {
    const NAME: &'static str = "gate";
    const RULE: &'static str = rule_file!("own_gate.lua");
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start()?;
    let client = Client::connect(&server.url())?;
    let gate: RedisLock<Gate> = client.lock_with_kind("doors", Gate);

    assert!(gate.try_lock()?.is_none(), "it is closed");
    thread::scope(|scope| -> Result<(), Error> {
        let visitors: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.lock().map(drop))).collect();
        while gate.queue_length()? < visitors.len() {
            thread::sleep(Duration::from_millis(20));
        }
        println!("{} wait at the gate, each in a queue position of its own", gate.queue_length()?);
        gate.update_state::<()>(&["open"])?;
        visitors.into_iter().flat_map(thread::ScopedJoinHandle::join).collect()
    })?;
    println!("it was opened: all have passed");
    assert!(gate.try_lock()?.is_some(), "and a caller that comes now passes at once");
    Ok(())
}
