//! A computation in phases by several processes: no process begins a phase before all have finished the one
//! before it, and between two phases one process takes stock. In the end one process is killed, and the
//! others get an error.
//!
//! `cargo run --example phases`, on the server that `REDIS_URL` names or on a private one.

use std::env;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent, wait_until};

type Failure = Box<dyn std::error::Error>;

const PROCESSES: usize = 3;
const PHASES: usize = 3;
/// How soon a death is noticed.
const WAITER_TIMEOUT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failure> {
    if is_role("member") { compute() } else { show() }
}

fn compute() -> Result<(), Failure> {
    let client = Client::builder().url(&env::var("PHASES_URL")?).waiter_timeout(WAITER_TIMEOUT).connect()?;
    let barrier = client.cyclic_barrier(&env::var("PHASES_NAME")?, PROCESSES);
    for phase in 1..=PHASES {
        let mut stock = String::new();
        let index = barrier.wait_then_with(LIMIT, || stock = " and took stock".to_owned())?;
        tell_parent(&format!("phase {phase} is over, {index} came later{stock}"))?;
    }
    if hear_parent()?.as_deref() == Some("wait") {
        match barrier.wait() {
            Err(error) if error.kind() == ErrorKind::Broken => tell_parent(&error.to_string())?,
            other => tell_parent(&format!("not broken: {other:?}"))?,
        }
    }
    client.close()?;
    Ok(())
}

fn show() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("phases-{}", std::process::id());
    let variables = [("PHASES_URL", &*url), ("PHASES_NAME", &name)];
    let mut members: Vec<_> =
        (0..PROCESSES).map(|_| Child::spawn("member", &variables)).collect::<Result<_, _>>()?;
    for _ in 0..PHASES {
        for member in &members {
            println!("process {}: {}", member.pid(), member.read_line_within(LIMIT)?);
        }
    }

    let client = Client::connect(&url)?;
    let barrier = client.cyclic_barrier(&name, PROCESSES);
    for member in &mut members[1..] {
        member.say("wait")?;
    }
    wait_until(LIMIT, "two wait", || barrier.number_waiting().is_ok_and(|n| n == 2));
    let began = Instant::now();
    members[1].kill9()?;
    println!("process {} is killed", members[1].pid());
    println!("process {}: {}", members[2].pid(), members[2].read_line_within(LIMIT)?);
    println!("after {:.1?}, with a waiter timeout of {WAITER_TIMEOUT:?}", began.elapsed());
    assert!(barrier.is_broken()?);
    barrier.reset()?;
    client.close()?;
    Ok(())
}
