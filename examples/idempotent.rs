//! A queue delivers each message more than once, and its consumers may be killed at work, yet each order is
//! charged once. Two consumers get all messages; the first is killed in the middle of one.
//!
//! `cargo run --example idempotent`, on the server that `REDIS_URL` names or on a private one.

use std::env;
use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent::once::Begun;
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent};

type Failure = Box<dyn std::error::Error>;

const MESSAGES: usize = 5;
/// The message at which the first consumer is killed.
const FATAL: usize = 2;
/// How long a dead consumer blocks a message.
const LEASE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failure> {
    if is_role("consumer") { consume() } else { show() }
}

fn consume() -> Result<(), Failure> {
    let client = Client::builder().url(&env::var("ONCE_URL")?).lease(LEASE).connect()?;
    let dies = env::var("ONCE_DIES").is_ok();
    for message in 0..MESSAGES {
        // Kept for longer than the queue may redeliver the message.
        let once = client
            .once(&format!("{}:{message}", env::var("ONCE_NAME")?))
            .expire_after(Duration::from_secs(3600));
        match once.begin()? {
            Begun::Yours(attempt) if dies && message == FATAL => {
                tell_parent(&format!("message {message}: at work"))?;
                hear_parent()?;
                drop(attempt);
            }
            Begun::Yours(attempt) => {
                // The charge itself, at a service that checks the token, or the message's id, and rejects the
                // older one.
                let receipt = format!("receipt {message}");
                attempt.done(&receipt)?;
                tell_parent(&format!("message {message}: charged"))?;
            }
            Begun::Done(receipt) => {
                tell_parent(&format!("message {message}: was charged before, {receipt}"))?
            }
            other => tell_parent(&format!("message {message}: {other:?}"))?,
        }
    }
    client.close()?;
    Ok(())
}

fn show() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("once-{}", std::process::id());
    let variables = [("ONCE_URL", &*url), ("ONCE_NAME", &name)];
    let mut first = Child::spawn("consumer", &[&variables[..], &[("ONCE_DIES", "1")]].concat())?;
    for _ in 0..=FATAL {
        println!("first consumer, {}", first.read_line_within(LIMIT)?);
    }
    let second = Child::spawn("consumer", &variables)?;
    for _ in 0..FATAL {
        println!("second consumer, {}", second.read_line_within(LIMIT)?);
    }
    first.kill9()?;
    println!("the first consumer is killed");
    let began = Instant::now();
    for message in FATAL..MESSAGES {
        let line = second.read_line_within(LIMIT)?;
        println!("second consumer, {line}{}", if message == FATAL { ", under a higher token" } else { "" });
    }
    println!("all done {:.1?} after that", began.elapsed());
    let client = Client::connect(&url)?;
    for message in 0..MESSAGES {
        assert!(client.once(&format!("{name}:{message}")).forget()?);
    }
    client.close()?;
    Ok(())
}
