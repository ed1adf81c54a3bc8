//! A scheduler that runs in several processes, of which one does the work: the leader. Others find its
//! address. The leader resigns, and the next one leads at once. That one is killed, and the last one leads
//! when its lease expires.
//!
//! `cargo run --example leader`, on the server that `REDIS_URL` names or on a private one.

use std::env;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client};
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent, wait_until};

type Failure = Box<dyn std::error::Error>;

const PROCESSES: usize = 3;
/// How long a dead leader blocks the next one.
const LEASE: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failure> {
    if is_role("scheduler") { schedule() } else { show() }
}

fn schedule() -> Result<(), Failure> {
    let client = Client::builder().url(&env::var("LEADER_URL")?).lease(LEASE).connect()?;
    let election =
        client.election(&env::var("LEADER_NAME")?).value(&format!("process {}", std::process::id()));
    // Cancelled when this process should end, as a signal handler would do it.
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    std::thread::spawn(move || {
        let _ = hear_parent();
        stop.cancel();
    });
    let led = election.run_with(&shutdown, |term| {
        // Rounds of the work, for as long as this process certainly leads: its writes carry term.token().
        while !term.ending().wait_timeout(Duration::from_millis(100)) {}
    });
    tell_parent(&format!("led: {:?}", led.map(drop)))?;
    client.close()?;
    Ok(())
}

fn show() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("leader-{}", std::process::id());
    let client = Client::connect(&url)?;
    let election = client.election(&name);
    let variables = [("LEADER_URL", &*url), ("LEADER_NAME", &name)];
    let mut processes = Vec::new();
    for i in 0..PROCESSES {
        processes.push(Child::spawn("scheduler", &variables)?);
        // One by one, so that the example is the same each time.
        let ready = || {
            election.candidates().is_ok_and(|it| it.len() == i)
                && election.leader().is_ok_and(|it| it.is_some())
        };
        wait_until(LIMIT, "it leads or waits", ready);
    }
    let mut changes = election.observe();
    let mut leader = || -> Result<_, Failure> {
        loop {
            let change = changes.next_with(LIMIT)?.ok_or("no leader in time")?;
            if let Some(leader) = change.leader {
                return Ok(leader);
            }
        }
    };
    let first = leader()?;
    println!("{} leads, in term {}", first.value, first.term);

    processes[0].say("end")?;
    let began = Instant::now();
    let second = leader()?;
    println!("{} leads, {:.0?} after the first was told to end", second.value, began.elapsed());
    println!("process {}: {}", processes[0].pid(), processes[0].read_line_within(LIMIT)?);

    processes[1].kill9()?;
    let began = Instant::now();
    let third = leader()?;
    println!("{} leads, {:.1?} after the second was killed", third.value, began.elapsed());
    assert!(first.term < second.term && second.term < third.term);
    assert_eq!(third.value, format!("process {}", processes[2].pid()));

    processes[2].say("end")?;
    println!("process {}: {}", processes[2].pid(), processes[2].read_line_within(LIMIT)?);
    assert!(election.leader()?.is_none());
    client.close()?;
    Ok(())
}
