//! Locks on the server: whether this user has all the rights that they need, and whether the existing ones
//! look healthy.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, Error};

use super::Finding;
use crate::bench::in_ms;
use crate::connect::Servers;
use crate::exit::Failure;
use crate::shown;

/// A lock that is held for longer than this deserves a look.
const OLD: Duration = Duration::from_secs(3600);
/// The timeout for a hand-off between two clients of our own.
const HEARD: Duration = Duration::from_secs(5);

pub fn check(servers: &Servers) -> Vec<Finding> {
    let clients = [connect_one(servers), connect_one(servers)];
    let [one, other] = match clients {
        [Ok(one), Ok(other)] => [one, other],
        [Err(failure), _] | [_, Err(failure)] => {
            return vec![Finding::fail(
                "rights",
                failure.to_string(),
                "give the rights of the page on operations",
            )];
        }
    };
    let mut findings = vec![match hand_off(&one, &other) {
        Ok(Some(took)) => {
            Finding::ok("locks", format!("acquired, waited for, handed off in {}, released", in_ms(took)))
        }
        Ok(None) => Finding::fail(
            "locks",
            "a waiting client was not told of its grant",
            "allow the channels of the namespace, and PUBSUB",
        ),
        Err(error) => {
            Finding::fail("locks", format!("{error:#}"), "give the rights of the page on operations")
        }
    }];
    findings.extend(match names(&one) {
        Ok(findings) => findings,
        Err(error) => vec![Finding::warn("names", format!("{error:#}"), "the right to SCAN is missing")],
    });
    findings
}

fn connect_one(servers: &Servers) -> Result<Client, Failure> {
    servers.connected(servers.builder().client_name("redis-concurrent doctor"))
}

/// Hands a lock over from one client to the other, which uses all that locks need. Returns how long that
/// took, if the message came.
fn hand_off(one: &Client, other: &Client) -> Result<Option<Duration>, Error> {
    let name = format!("doctor:{}", std::process::id());
    let first = one.reentrant_lock(&name);
    let guard = first.lock()?;
    let lock = other.reentrant_lock(&name);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock.try_lock_for(HEARD)?;
            let at = Instant::now();
            guard.map(|guard| guard.unlock().map(|()| at)).transpose()
        });
        let end = Instant::now() + HEARD;
        while one.look(&name)?.is_some_and(|it| it.waiters.is_empty())
            && Instant::now() < end
            && !waits.is_finished()
        {
            thread::park_timeout(Duration::from_millis(5));
        }
        let released = Instant::now();
        guard.unlock()?;
        let came = waits.join().unwrap_or(Ok(None))?;
        // Without the message, the waiter asks at its next heartbeat, at most a second later.
        Ok(came
            .map(|at| at.saturating_duration_since(released))
            .filter(|took| *took < Duration::from_millis(600)))
    })
}

fn names(client: &Client) -> Result<Vec<Finding>, Error> {
    let (mut held, mut old, mut endless) = (0, Vec::new(), Vec::new());
    for look in client.list() {
        let look = look?;
        held += look.holders.len();
        let named = |all: &mut Vec<String>| all.push(shown::plain(&look.name));
        if look.holders.iter().any(|it| !it.stays && shown::age(it.since).is_some_and(|age| age > OLD)) {
            named(&mut old);
        }
        if look.holders.iter().any(|it| it.remaining.is_none()) {
            named(&mut endless);
        }
    }
    let some = |all: &[String]| match all {
        [] => "none".to_owned(),
        _ => format!("{}: {}", all.len(), all.iter().take(5).cloned().collect::<Vec<_>>().join(", ")),
    };
    let judge = |name, all: &[String], to_do| match all {
        [] => Finding::ok(name, "none"),
        _ => Finding::warn(name, some(all), to_do),
    };
    Ok(vec![
        Finding::ok("held", format!("{held} holders")),
        judge("held for an hour", &old, "look at them: redis-concurrent show NAME"),
        judge("without an end", &endless, "nobody's death frees them: redis-concurrent break NAME --whoever"),
    ])
}
