//! A custom kind: a bulkhead, which admits a limited number of threads of all processes.
//!
//! Its rule is `own_kind.lua`; the engine does the rest. `cargo run --example own_kind` shows what it does,
//! on the server that `REDIS_URL` names or on a private one; it exits with 1 if that fails.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::{env, thread, time::Duration, time::Instant};

use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
use redis_concurrent::{Client, Error, RedisLock, rule_file};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent};

/// At most `self.0` holders at a time.
#[derive(Clone, Debug)]
struct Bulkhead(u32);

impl Kind for Bulkhead {
    const NAME: &'static str = "bulkhead";
    const RULE: &'static str = rule_file!("own_kind.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;

    fn args(&self) -> String {
        self.0.to_string()
    }
}

const LEASE: Duration = Duration::from_secs(2);
type Failure = Box<dyn std::error::Error>;

fn bulkhead(url: &str, name: &str) -> Result<RedisLock<Bulkhead>, Failure> {
    Ok(Client::builder().url(url).lease(LEASE).connect()?.lock_with_kind(name, Bulkhead(3)))
}

fn main() -> Result<(), Failure> {
    if is_role("holder") { hold_until_killed() } else { show() }
}

fn hold_until_killed() -> Result<(), Failure> {
    let _guard = bulkhead(&env::var("OWN_KIND_URL")?, &env::var("OWN_KIND_NAME")?)?.lock_owned()?;
    tell_parent("inside")?;
    thread::sleep(Duration::MAX);
    Ok(())
}

fn show() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("legacy-backend-{}", std::process::id());
    let bulkhead = bulkhead(&url, &name)?;
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let visit = || -> Result<(), Error> {
        let _guard = bulkhead.lock()?;
        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::sleep(Duration::from_millis(150));
        inside.fetch_sub(1, SeqCst);
        Ok(())
    };
    thread::scope(|scope| {
        let visits = [(); 9].map(|()| scope.spawn(visit));
        visits.into_iter().try_for_each(|it| it.join().expect("a visit does not panic"))
    })?;
    check(most.into_inner() == 3, "9 threads came, 3 were inside at a time, never 4")?;

    let guards = [bulkhead.lock_owned()?, bulkhead.lock_owned()?];
    let mut holder = Child::spawn("holder", &[("OWN_KIND_URL", &url), ("OWN_KIND_NAME", &name)])?;
    holder.read_line_within(Duration::from_secs(30))?;
    check(
        bulkhead.try_lock_for(LEASE + LEASE / 4)?.is_none(),
        "with one of 3 in another process, a 4th waits",
    )?;
    let killed = Instant::now();
    holder.kill9()?;
    check(bulkhead.try_lock_for(10 * LEASE)?.is_some(), "that one killed, its place went to the 4th")?;
    println!("     after {:.1?}, with a lease of {LEASE:?}", killed.elapsed());
    drop(guards);
    check(!bulkhead.is_locked()?, "in the end nobody is inside")
}

fn check(is_so: bool, what: &str) -> Result<(), Failure> {
    println!("{} {what}", if is_so { "yes:" } else { "NO: " });
    if is_so { Ok(()) } else { Err("the bulkhead broke a promise".into()) }
}
