//! Servers of which one replaces another: each command through sentinels, and in a cluster.

use std::path::Path;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisCluster, SentinelFleet, wait_until};
use serde_json::Value;

use crate::fixture::{Done, LONG, Started, done, line_of, program};

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn names(it: &Done) -> Vec<String> {
    json(&it.out).iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs each command on two free locks, and returns what they printed.
fn each_command(url: &str, [one, other]: [&str; 2], folder: &Path) -> Vec<Done> {
    let client = Client::builder().url(url).client_name("billing").connect().unwrap();
    let (first, second) = (client.reentrant_lock(one), client.reentrant_lock(other));
    let guards = [first.lock_owned().unwrap(), second.lock_owned().unwrap()];
    let mut all = vec![done(url, &["ls", "--json"]).ends(0)];
    let listed = names(&all[0]);
    assert!(
        listed.len() == 2 && [one, other].iter().all(|name| listed.iter().any(|it| it == name)),
        "{listed:?}"
    );
    all.push(done(url, &["run", "-n", "--lease", "4s", "--and", other, one, "true"]).ends(75));
    for (name, guard) in [one, other].into_iter().zip(guards) {
        let shown = done(url, &["show", "--json", name]).ends(0);
        assert_eq!(json(&shown.out)[0]["holders"][0]["label"], "billing");
        let token = format!("{:019}", guard.token());
        all.extend([shown, done(url, &["break", "--yes", name, "--now", "--token", &token]).ends(0)]);
        assert!(guard.unlock().unwrap_err().is_lease_lost());
    }
    let both = ["run", "--lease", "4s", "--and", other, one, "sh", "-c", "echo $REDIS_CONCURRENT_TOKEN_1"];
    let ran = done(url, &both).ends(0);
    assert_eq!(ran.out.trim().len(), 19, "{ran:?}");

    let file = folder.join("watched");
    let mut watch = program(url, &["watch", "--every", "50ms", "--json"]);
    let mut watch = watch.stdout(std::fs::File::create(&file).unwrap()).spawn().unwrap();
    wait_until(LONG, "a grant is told", || {
        // One cannot see from outside whether the first look has been made, so there is more than one change.
        let guard = second.lock_owned().unwrap();
        std::thread::park_timeout(Duration::from_millis(150));
        guard.unlock().unwrap();
        std::fs::read_to_string(&file).unwrap().contains(r#""to":"billing "#)
    });
    watch.kill().unwrap();
    watch.wait().unwrap();

    let bench = done(url, &["bench", "--json", "--seconds", "400ms"]).ends(0);
    assert_eq!(json(&bench.out).len(), 4);
    let doctor = done(url, &["doctor", "--json"]);
    assert!(doctor.code.unwrap() < 2, "{doctor:?}");
    all.extend([ran, bench, doctor]);
    all
}

/// Returns what a check of `doctor --json` found for each server: whether it is healthy.
fn found<'a>(all: &'a [Done], check: &str) -> Vec<(&'a Done, String)> {
    let doctor = all.iter().find(|it| it.out.starts_with('{') && it.out.contains(r#""check":"#)).unwrap();
    let lines = json(&doctor.out).into_iter().filter(|line| line["check"] == check);
    lines
        .map(|line| (doctor, format!("{} {}", line["server"].as_str().unwrap_or("-"), line["state"])))
        .collect()
}

#[test]
fn in_a_cluster() {
    let cluster = RedisCluster::builder().primaries(2).replicas(1).start().unwrap();
    let (url, folder) = (cluster.url(), tempfile::tempdir().unwrap());
    // One lock on each primary.
    let half = |name: &str| cluster.slot_of(&format!("rc:{{{name}}}")).unwrap() / 8192;
    let of = |n: u16| (0..).map(|i| format!("job:{i}")).find(|name| half(name) == n).unwrap();
    let (one, other) = (of(0), of(1));
    let all = each_command(&url, [&one, &other], folder.path());
    for check in ["reach", "role", "mode"] {
        let of_each = found(&all, check);
        assert!(of_each.len() == 2 && of_each.iter().all(|(_, it)| it.ends_with("\"ok\"")), "{of_each:?}");
    }
    let primary = cluster.primary_of("theirs").unwrap().unwrap();
    redis::cmd("SET").arg("theirs").arg("another").exec(&mut primary.connection().unwrap()).unwrap();
    assert_eq!(names(&done(&url, &["ls", "--json", "--at", "their*"]).ends(0)), ["theirs"]);
    done(&url, &["run", "-n", "--lease", "4s", "--at", "theirs", "true"]).ends(75);
    for node in cluster.primaries().unwrap() {
        let mut connection = node.connection().unwrap();
        let left: Vec<String> = redis::cmd("KEYS").arg("rc:bench*").query(&mut connection).unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
    // A replica that takes over may not know of a holder: the first command waits, the next one does not.
    let older = Client::connect(&url).unwrap();
    let primary = cluster.primary_of(&format!("rc:{{{one}}}")).unwrap().unwrap();
    cluster.fail_over_to(&cluster.replicas_of(&primary).unwrap()[0]).unwrap();
    let held = older.reentrant_lock(&other).lock_owned().unwrap();
    let listed = || older.list().map(|it| it.unwrap().name).collect::<Vec<_>>();
    let run = || done(&url, &["run", "--lease", "3s", "--bear", "30s", &one, "true"]).ends(0);
    assert!(run().says("promoted a moment ago").err.contains("waiting"));
    assert_eq!(run().err, "");
    // An older client finds the locks where they are now, with this look or the next one.
    let again = Client::connect(&url).unwrap().reentrant_lock(&one).lock_owned().unwrap();
    assert_eq!(older.inspect(&one).unwrap().unwrap().holders.len(), 1);
    wait_until(LONG, "both are listed", || listed().len() == 2);
    drop((held, again));
}

#[test]
fn by_sentinels() {
    let fleet = SentinelFleet::builder().password("hush-1").sentinel_password("hush-2").behind_proxies();
    // A busy machine must not begin a failover of its own.
    let fleet = fleet.down_after(Duration::from_secs(4)).start().unwrap();
    let (url, folder) = (fleet.url(), tempfile::tempdir().unwrap());
    let mut all = each_command(&url, ["one", "other"], folder.path());
    let sentinels = found(&all, "sentinel");
    assert!(sentinels.len() == 3 && sentinels.iter().all(|(_, it)| it.ends_with("\"ok\"")), "{sentinels:?}");
    assert_eq!(found(&all, "primary").len(), 1);
    let elsewhere = url.replace("mymaster", "another");
    all.push(done(&elsewhere, &["ls"]));
    all.push(done(&elsewhere, &["doctor"]).ends(2));
    all.push(done(&url.replace("hush-2", "wrong-2"), &["run", "-n", "one", "true"]));
    assert!(all.iter().rev().take(3).all(|it| it.code != Some(0)), "{all:?}");

    // After a failover that loses a grant, its command is dead before the next one starts.
    fleet.isolate(0);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (lock, log) = (path("lock"), path("log"));
    let script =
        format!("exec 9>>{lock}; flock -n 9 || echo two at once >> {log}; echo ran >> {log}; exec sleep $0");
    let start = |length: &str| {
        // A failover may take a busy machine longer than an absence is tolerated by default.
        let args = ["run", "-w", "60s", "--bear", "60s", "--lease", "4s", "failing-over", "--", "sh", "-c"];
        Started::new(program(&url, &[&args[..], &[&script, length]].concat()))
    };
    let mut holder = start("60");
    line_of(&folder.path().join("log"));
    let waiter = start("0.1");
    fleet.primary_after(0);
    // If the machine is too slow, the new primary has made the grant, and it is not lost.
    let client = Client::connect(&url).unwrap();
    let waits = || client.inspect("failing-over").is_ok_and(|it| it.is_some_and(|it| !it.waiters.is_empty()));
    wait_until(LONG, "it is over, or waited for", || holder.has_ended() || waits());
    holder.signal_if_running("TERM");
    let (waiter, holder) = (waiter.done(), holder.done());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log, "ran\n".repeat(2), "{holder:?}, {waiter:?}");
    assert!(holder.err.contains("promoted") || waiter.err.contains("promoted"), "{holder:?}, {waiter:?}");
    assert_eq!(waiter.code, Some(0), "{waiter:?}");
    all.extend([holder, waiter]);
    for it in &all {
        let text = format!("{it:?}");
        assert!(!["hush", "wrong-2"].iter().any(|secret| text.contains(secret)), "{text}");
    }
}
