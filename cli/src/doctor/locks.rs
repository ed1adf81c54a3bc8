//! Locks on the server: whether this user has all the rights that they need, and whether the existing ones
//! look healthy.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::admin::deadlocks;
use redis_concurrent::{Client, Error, redis};

use super::Finding;
use crate::bench::in_ms;
use crate::connect::{self, Servers};
use crate::exit::Failure;
use crate::shown;

/// A lock that is held for longer than this deserves a look.
const OLD: Duration = Duration::from_secs(3600);
/// The timeout for a hand-off between two clients of our own.
const HEARD: Duration = Duration::from_secs(5);

/// The rights of the page on operations; `{}` is the namespace.
const RIGHTS: &str = "\
    '~{}:{*' '&{}:inbox:*' +ping +info +evalsha +eval +subscribe +publish '+pubsub|numsub' +time \
    +wait +exists +del +unlink +pttl +pexpire +persist +get +set +hget +hmget +hset +hdel +hexists \
    +hincrby +hlen +hscan +zadd +zrem +zscore +zrank +zcard +zcount +zrange +zrangebylex +zrevrangebylex \
    +zremrangebyscore +zscan +watch +unwatch +multi +exec +discard";

pub fn check(servers: &Servers) -> Vec<Finding> {
    let clients = [connect_one(servers), connect_one(servers)];
    let [one, other] = match clients {
        [Ok(one), Ok(other)] => [one, other],
        [Err(failure), _] | [_, Err(failure)] => {
            let why = failure.to_string();
            return vec![Finding::fail("rights", &why, grant(servers, &[&why]))];
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
            let why = format!("{error:#}");
            let to_do = grant(servers, &[&why]);
            Finding::fail("locks", why, to_do)
        }
    }];
    let denied = denied_lists(servers);
    if !denied.is_empty() {
        let commands: Vec<_> = denied.iter().map(String::as_str).collect();
        let found = format!("ls, watch, show and break cannot be used: {}", denied.join("; "));
        findings.push(Finding::warn("lists", found, grant(servers, &commands)));
        return findings;
    }
    findings.extend(names(&one).unwrap_or_else(|error| {
        vec![Finding::warn("names", format!("{error:#}"), "the existing locks were not looked at")]
    }));
    findings
}

/// Returns what Redis says if this user lacks rights that only lists need.
fn denied_lists(servers: &Servers) -> Vec<String> {
    let key = format!("{}:{{doctor}}", servers.namespace());
    let infos = servers.primaries().unwrap_or_default();
    let mut denied: Vec<_> = infos
        .into_iter()
        .filter_map(|info| connect::to(info).ok())
        .flat_map(|mut connection| {
            let scan = redis::cmd("SCAN").arg(0).arg("COUNT").arg(1).exec(&mut connection);
            let type_of = redis::cmd("TYPE").arg(&key).exec(&mut connection);
            [scan, type_of]
        })
        .filter_map(|lookup| Some(lookup.err()?.to_string()).filter(|why| why.contains("permissions")))
        .collect();
    denied.sort();
    denied.dedup();
    denied
}

/// Returns the line that gives this user the rights that these errors of Redis are about.
fn grant(servers: &Servers, denied: &[&str]) -> String {
    // As in: this user has no permissions to run the 'scan' command
    let commands = denied.iter().filter_map(|why| {
        let (_, command) = why.split_once("permissions to run the '")?;
        Some(format!("+{}", command.split_once('\'')?.0))
    });
    let commands: Vec<_> = commands.collect();
    // Of a key, a channel, or within a script, Redis may not say what it denied.
    let rights = match commands.is_empty() {
        true => RIGHTS.replace("{}", servers.namespace()),
        false => commands.join(" "),
    };
    let infos = servers.primaries().unwrap_or_default();
    let user = infos.first().and_then(|info| info.redis_settings().username()).unwrap_or("default");
    format!("redis-cli ACL SETUSER {user} {rights}")
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
        while first.queue_length()? == 0 && Instant::now() < end && !waits.is_finished() {
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
    let (mut held, mut old, mut endless, mut waiters) = (0, Vec::new(), Vec::new(), Vec::new());
    for found in client.list() {
        let mut found = found?;
        waiters.append(&mut found.waiters);
        held += found.holders.len();
        let named = |all: &mut Vec<String>| all.push(found.name.clone());
        if found.holders.iter().any(|it| !it.stays && shown::age(it.since).is_some_and(|age| age > OLD)) {
            named(&mut old);
        }
        if found.holders.iter().any(|it| it.remaining.is_none()) {
            named(&mut endless);
        }
    }
    let circles: Vec<_> = deadlocks(&waiters).iter().map(ToString::to_string).collect();
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
        judge("deadlocks", &circles, "take locks in one order, or several at once by a MultiLock"),
        judge("without an end", &endless, "nobody's death frees them: redis-concurrent break NAME --whoever"),
    ])
}
