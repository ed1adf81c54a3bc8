//! Members: who is alive, who comes and goes.

use std::time::Duration;

use redis_concurrent::redis::{self, cmd};
use redis_concurrent::{CancellationToken, Client, ErrorKind};
use redis_concurrent_partitions::{Change, Changes, Member, Members};
use redis_concurrent_testkit::{Child, Proxy, RedisCluster, RedisServer, is_role, tell_parent, wait_until};

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);
/// The lease of members that are to die.
const LEASE: Duration = Duration::from_secs(3);

fn client(url: &str, lease: Duration) -> Client {
    Client::builder().url(url).client_name("test").lease(lease).renew_every(LEASE / 6).connect().unwrap()
}

fn values(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| member.value.as_str()).collect()
}

fn next(changes: &mut Changes) -> Change {
    changes.next_with(LONG).unwrap().expect("there is a change")
}

#[test]
fn each_change_is_told_once_and_a_gap_is_told() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (client(&server.url(), LONG), client(&server.url(), LONG));
    let (members, elsewhere) = (Members::new(&client, "workers"), Members::new(&other, "workers"));
    let mut changes = elsewhere.changes();
    let first = next(&mut changes);
    assert!(first.joined.is_empty() && first.left.is_empty() && !first.missed, "{first:?}");
    assert!(changes.next_with(Duration::from_millis(10)).unwrap().is_none());

    let a = members.join("a").unwrap();
    let change = next(&mut changes);
    assert_eq!((values(&change.joined), change.left.len(), change.missed), (vec!["a"], 0, false));
    let it = &elsewhere.list().unwrap()[0];
    assert!(it.number == a.number() && it.process.starts_with(&format!("test {}@", std::process::id())));
    assert!(it.remaining <= LONG && !it.remaining.is_zero());

    // Two changes before it looks: both are told at once.
    let b = elsewhere.join("b").unwrap();
    a.leave().unwrap();
    let change = next(&mut changes);
    assert_eq!((values(&change.joined), values(&change.left), change.missed), (vec!["b"], vec!["a"], false));

    // One that came and went is not told, but that something was missed is.
    let c = members.join("a").unwrap();
    c.leave().unwrap();
    let change = next(&mut changes);
    assert!(change.joined.is_empty() && change.left.is_empty() && change.missed, "{change:?}");

    // Nobody is left; the next one who comes is a change as any other.
    drop(b);
    let change = next(&mut changes);
    assert_eq!((values(&change.left), change.missed), (vec!["b"], false));
    let d = members.join("d").unwrap();
    let change = next(&mut changes);
    assert_eq!((values(&change.joined), change.missed), (vec!["d"], false));
    assert_eq!(changes.next_with(Duration::from_millis(10)).unwrap(), None);
    d.leave().unwrap();

    let stop = CancellationToken::new();
    stop.cancel();
    next(&mut changes);
    assert_eq!(changes.next_with(&stop).unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn many_observers_learn_of_a_change_at_once() {
    let server = RedisServer::start().unwrap();
    // Their heartbeats come once in 20 s.
    let patient = || {
        let builder = Client::builder().url(&server.url()).waiter_timeout(Duration::from_secs(60));
        builder.command_timeout(LONG).connect().unwrap()
    };
    let clients = [(); 4].map(|()| patient());
    std::thread::scope(|scope| {
        let observers: Vec<_> = (0..40)
            .map(|i| {
                let mut changes = Members::new(&clients[i % 4], "workers").changes();
                scope.spawn(move || {
                    assert!(next(&mut changes).joined.is_empty());
                    next(&mut changes)
                })
            })
            .collect();
        let queue = Members::new(&clients[0], "workers");
        let mut redis = server.connection().unwrap();
        wait_until(LONG, "all of them wait", || {
            cmd("ZCARD").arg("rc:{workers}:queue").query::<usize>(&mut redis).unwrap() == observers.len()
        });
        let began = std::time::Instant::now();
        let _member = queue.join("a").unwrap();
        for observer in observers {
            assert_eq!(values(&observer.join().unwrap().joined), ["a"]);
        }
        assert!(began.elapsed() < Duration::from_secs(15), "told, not found by a heartbeat");
    });
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_member() {
    if is_role("role_member") {
        let client = client(&std::env::var("URL").unwrap(), LEASE);
        let _member = Members::new(&client, "workers").join("child").unwrap();
        tell_parent("joined").unwrap();
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_member_that_was_killed_or_stopped_is_gone_after_its_lease_and_knows_it() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let members = Members::new(&client(&url, LONG), "workers");
    let mut changes = members.changes();
    next(&mut changes);
    let mut child = Child::spawn("role_member", &[("URL", &url)]).unwrap();
    child.read_line_within(LONG).unwrap();
    assert_eq!(values(&next(&mut changes).joined), ["child"]);
    child.kill9().unwrap();
    let change = next(&mut changes);
    assert_eq!((values(&change.left), change.missed), (vec!["child"], false));
    assert!(members.list().unwrap().is_empty());

    // One that cannot reach Redis learns by itself that others may not see it any more.
    let proxy = Proxy::start(server.port()).unwrap();
    let cut_off = Members::new(&client(&proxy.url(), LEASE), "workers").join("cut off").unwrap();
    assert_eq!(values(&next(&mut changes).joined), ["cut off"]);
    proxy.black_hole(true);
    assert!(cut_off.lost().wait_timeout(LONG));
    assert_eq!(values(&next(&mut changes).left), ["cut off"]);
    drop(cut_off);
}

#[test]
fn when_redis_loses_its_data_memberships_are_lost_and_a_gap_is_told() {
    let server = RedisServer::start().unwrap();
    let client = client(&server.url(), LONG);
    let members = Members::new(&client, "workers");
    let mut changes = members.changes();
    let a = members.join("a").unwrap();
    assert_eq!(values(&next(&mut changes).joined), ["a"]);
    cmd("FLUSHALL").exec(&mut server.connection().unwrap()).unwrap();
    let change = next(&mut changes);
    assert!(change.missed && values(&change.left) == ["a"], "{change:?}");
    assert!(a.lost().wait_timeout(LONG));
    assert_eq!(a.leave().unwrap_err().kind(), ErrorKind::LeaseLost);

    // Any one of its keys is enough.
    for key in ["rc:{workers}", "rc:{workers}:conditions"] {
        let b = members.join("b").unwrap();
        cmd("DEL").arg(key).exec(&mut server.connection().unwrap()).unwrap();
        wait_until(LONG, "it is no member", || members.list().unwrap().is_empty());
        assert!(b.lost().wait_timeout(LONG));
        members.join("c").unwrap().leave().unwrap();
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let server = RedisServer::start().unwrap();
    let client = client(&server.url(), LONG);
    let members = Members::new(&client, "workers");
    let error = members.join(&"v".repeat(1025)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("1024") && error.to_string().contains("1025"), "{error}");
    for name in ["", &"n".repeat(1025)] {
        let members = Members::new(&client, name);
        assert_eq!(members.join("a").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(members.list().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(members.changes().next_with(LONG).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let held = client.reentrant_lock("taken").lock_owned().unwrap();
    assert_eq!(Members::new(&client, "taken").join("a").unwrap_err().kind(), ErrorKind::WrongType);
    drop(held);

    // Any text is a value, and 512 members are enough.
    let odd = ["", "a|b", "%41 {x}\n\t", "ü"].map(|value| members.join(value).unwrap());
    assert_eq!(values(&members.list().unwrap()), ["", "a|b", "%41 {x}\n\t", "ü"]);
    let more: Vec<_> = (odd.len()..512).map(|_| members.join("x").unwrap()).collect();
    assert_eq!(members.list().unwrap().len(), 512);
    let error = members.join("y").unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("512 members"), "{error}");
    drop((odd, more));
    assert!(members.list().unwrap().is_empty());
    wait_until(LONG, "every key expires", || {
        let mut redis = server.connection().unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis).unwrap();
        keys.iter().all(|key| redis::cmd("PTTL").arg(key).query::<i64>(&mut redis).unwrap() != -1)
    });
}

#[test]
fn in_a_cluster() {
    let cluster = RedisCluster::start(3).unwrap();
    let (client, other) = (client(&cluster.url(), LONG), client(&cluster.url(), LONG));
    let mut changes = Members::new(&other, "workers").changes();
    next(&mut changes);
    let member = Members::new(&client, "workers").join("a").unwrap();
    assert_eq!(values(&next(&mut changes).joined), ["a"]);
    member.leave().unwrap();
    assert_eq!(values(&next(&mut changes).left), ["a"]);
}
