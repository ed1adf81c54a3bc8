//! Sentinels that are out of date, wrong, down, or none.

use std::time::Instant;

use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind, RedLockClient};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, eventually, wait_until};

use crate::sentinel::fake::{FakeSentinel, Says};
use crate::server_days::ask;
use crate::support::{LONG, SOON, ms};

fn named(sentinels: &[&FakeSentinel]) -> ClientBuilder {
    let addresses: Vec<_> = sentinels.iter().map(|it| &*it.address).collect();
    at(&addresses.join(",")).connect_timeout(LONG).command_timeout(ms(2000))
}

fn at(addresses: &str) -> ClientBuilder {
    Client::builder().url(&format!("redis+sentinel://{addresses}/main"))
}

/// A port where nobody listens.
fn nowhere() -> u16 {
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    server.port()
}

#[track_caller]
fn refused(error: &Error, kind: ErrorKind, why: &[&str]) {
    let text = format!("{error:#}");
    assert_eq!(error.kind(), kind, "{text}");
    assert!(why.iter().all(|it| text.contains(it)) && text.contains("\"main\""), "{text}");
}

#[test]
fn one_that_is_right_is_enough() {
    let (primary, replica) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    ask::<()>(&replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let right = FakeSentinel::start(Says::At(primary.port()));
    let wrong = [
        Says::At(replica.port()),
        Says::At(nowhere()),
        Says::Unknown,
        Says::Error("NOAUTH Authentication required."),
        Says::Nothing,
    ]
    .map(FakeSentinel::start);
    let mut all: Vec<_> = wrong.iter().collect();
    all.push(&right);
    // On a busy machine it may be late, and the next attempt finds it.
    let client = eventually(LONG, || named(&all).connect().ok());
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    assert!(ask::<bool>(&primary, &["EXISTS", "rc:{it}"]));
    guard.unlock().unwrap();
    // From then on it is asked first: the others cost nothing more.
    wait_until(LONG, "new connections ask it alone", || {
        let before = (wrong[0].requests(), right.requests());
        primary.kill_clients(ClientKind::Normal).unwrap();
        client.simple_lock("other").lock().unwrap().unlock().unwrap();
        right.requests() > before.1 && wrong[0].requests() == before.0
    });
}

/// As one on another continent, or on a busy machine. (On ours it may be too late even so, and is asked again.)
#[test]
fn one_that_takes_its_time_is_heard_out() {
    let primary = RedisServer::start().unwrap();
    let fake = FakeSentinel::start(Says::At(primary.port()));
    let far: u16 = fake.address.rsplit_once(':').unwrap().1.parse().unwrap();
    let far = Proxy::start(far).unwrap();
    far.delay(ms(400));
    let address = format!("127.0.0.1:{}", far.port());
    let client = || at(&address).connect_timeout(LONG).connect();
    let client = eventually(LONG, || client().ok());
    client.simple_lock("it").lock().unwrap().unlock().unwrap();
}

/// What is asked of a server that was named, after it was connected to, does not begin another timeout.
#[test]
fn connecting_takes_no_longer_than_its_timeout() {
    let primary = RedisServer::start().unwrap();
    let door = Proxy::start(primary.port()).unwrap();
    let fake = FakeSentinel::start(Says::At(door.port()));
    let timeout = ms(2000);
    door.delay(timeout * 3 / 4);
    let error = named(&[&fake]).connect_timeout(timeout).connect().unwrap_err();
    assert!(error.is_unavailable(), "{error:#}");
}

/// As at services that keep `ROLE` from their users: `INFO` is asked instead.
#[test]
fn a_replica_is_known_where_role_may_not_be_asked() {
    let server = || RedisServer::builder().arg("rename-command", "ROLE no-ROLE").start().unwrap();
    let (primary, replica) = (server(), server());
    ask::<()>(&replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let fake = FakeSentinel::start(Says::At(replica.port()));
    eventually(LONG, || {
        let error = named(&[&fake]).connect().unwrap_err();
        format!("{error:#}").contains("is a replica").then_some(())
    });
    fake.says(Says::At(primary.port()));
    let client = eventually(LONG, || named(&[&fake]).connect().ok());
    client.simple_lock("it").lock().unwrap().unlock().unwrap();
}

#[test]
fn what_is_wrong_is_told_with_the_name_of_the_primary() {
    let (primary, replica) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    ask::<()>(&replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let dead = nowhere();
    // On a busy machine an answer may be late, and is there the next time.
    let fails_with = |says: Says, kind: ErrorKind, why: &[&str]| {
        let fake = FakeSentinel::start(says);
        let error = || named(&[&fake]).connect().unwrap_err();
        let error = eventually(LONG, || Some(error()).filter(|it| format!("{it:#}").contains(why[0])));
        refused(&error, kind, &[why, &[&*fake.address]].concat());
    };
    let names = |port: u16, what: &str| format!("names 127.0.0.1:{port}, which {what}");
    let wrong = ErrorKind::InvalidInput;
    fails_with(Says::Unknown, wrong, &["does not know this name"]);
    fails_with(Says::Error("ERR unknown command 'SENTINEL'"), wrong, &["is no sentinel"]);
    let there = ErrorKind::Unavailable;
    fails_with(Says::At(replica.port()), there, &[&names(replica.port(), "is a replica")]);
    fails_with(Says::At(dead), there, &[&names(dead, "cannot be reached")]);
    fails_with(Says::Nothing, there, &["does not answer"]);
    fails_with(Says::Error("NOAUTH Authentication required."), there, &["rejects this client", "NOAUTH"]);
    let address = format!("127.0.0.1:{dead}");
    let error = at(&address).connect().unwrap_err();
    refused(&error, there, &[&address, "cannot be reached"]);
    // A server with data, given as a sentinel.
    let address = format!("127.0.0.1:{}", primary.port());
    let error = at(&address).connect().unwrap_err();
    refused(&error, wrong, &["is no sentinel"]);
    let error = at("").connect().unwrap_err();
    refused(&error, wrong, &["no sentinel was given"]);
}

/// Told without the passwords of the URL. A wait is no longer than one for a server that is down, as they may learn it.
#[test]
fn a_primary_that_no_sentinel_knows() {
    let fakes = [Says::Unknown, Says::Unknown].map(FakeSentinel::start);
    let [one, other] = fakes.each_ref().map(|it| &*it.address);
    let url =
        format!("redis+sentinel://app:hush@{one},{other}/main?sentinel_user=app&sentinel_password=hush");
    let named = || {
        let builder = Client::builder().url(&url).connect_timeout(LONG).command_timeout(LONG);
        builder.unreachable_timeout(ms(300))
    };
    let client = named().connect_later().unwrap();
    for error in [
        named().connect().map(drop).unwrap_err(),
        client.simple_lock("it").try_lock().map(drop).unwrap_err(),
        client.simple_lock("it").lock().map(drop).unwrap_err(),
    ] {
        let text = format!("{error:#}");
        let why = ["\"main\"", one, other, "does not know this name"];
        assert!(why.iter().all(|it| text.contains(it)), "{text}");
        assert!(!format!("{text} {error:?}").contains("hush"), "{error:?}");
    }
}

#[test]
fn a_red_lock_takes_no_server_that_fails_over() {
    let server = RedisServer::start().unwrap();
    let fake = FakeSentinel::start(Says::At(server.port()));
    let clients = [(); 3].map(|()| named(&[&fake]).connect_later().unwrap());
    let error = RedLockClient::new(clients).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("sentinels"), "{error}");
}

/// They do not keep a client from a server that they have named before.
#[test]
fn without_any_of_them_the_connections_go_on() {
    let primary = RedisServer::start().unwrap();
    let fake = FakeSentinel::start(Says::At(primary.port()));
    let (one, two) = (named(&[&fake]).connect().unwrap(), named(&[&fake]).connect().unwrap());
    let (held, waits) = (one.reentrant_lock("it"), two.reentrant_lock("it"));
    let take_turns = || {
        let guard = held.lock_owned().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.try_lock_for(LONG).unwrap().expect("its turn").unlock());
            wait_until(LONG, "it waits", || held.queue_length().unwrap() == 1);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    };
    take_turns();
    fake.says(Says::Nothing);
    take_turns();
    // A new client needs one of them, and says so within its time.
    let began = Instant::now();
    let error = named(&[&fake]).connect_timeout(ms(500)).connect().unwrap_err();
    refused(&error, ErrorKind::Unavailable, &["does not answer"]);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    fake.says(Says::At(primary.port()));
    take_turns();
}

/// A client that rests hears nothing on its connections, and may come back to a server that another has replaced.
#[test]
fn a_primary_that_was_replaced_is_not_believed_any_more() {
    let (former, now) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let fake = FakeSentinel::start(Says::At(former.port()));
    let client = named(&[&fake]).lease(4 * LONG).connect().unwrap();
    let other = named(&[&fake]).connect().unwrap();
    let guard = client.reentrant_lock("it").lock_owned().unwrap();
    wait_until(LONG, "both listen", || fake.listeners() == 2);
    // Both are primaries; the sentinels mean the second.
    fake.says(Says::At(now.port()));
    fake.hang_up();
    wait_until(LONG, "its loss is told before its renewal", || guard.is_lost());
    // On connections that are all fine; each client hears of it by itself.
    let theirs = eventually(LONG, || other.reentrant_lock("it").try_lock_owned().unwrap());
    assert!(ask::<bool>(&now, &["EXISTS", "rc:{it}"]) && theirs.token() > guard.token());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
}
