//! Servers that were started a moment ago may have forgotten what they granted; one that took the address of
//! another never knew it.

use std::slice;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind, RedLockClient};
use redis_concurrent_testkit::{Proxy, RedisServer, released_all, wait_until};

use crate::red_lock::fixture::{Fixture, LONG, NAME, PATIENT, ms};
use crate::support::connected;

/// So short that a server is older soon: whole seconds are counted.
const LEASE: Duration = Duration::from_millis(1500);

/// A quarter of the lease.
const NODE_TIMEOUT: Duration = Duration::from_millis(375);

const DAY: Duration = Duration::from_secs(24 * 3600);

fn red(fixture: &Fixture) -> RedLockClient {
    RedLockClient::new(fixture.clients(|b| b.lease(LEASE))).unwrap().with_node_timeout(NODE_TIMEOUT)
}

/// Nothing is held by a majority until the servers are as old as the lease.
#[track_caller]
fn until_old(red: &RedLockClient) {
    wait_until(LONG, "they are old enough", || match red.lock("aging").try_lock() {
        Ok(guard) => guard.is_some_and(|guard| guard.servers() == 5),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            false
        }
    });
}

#[test]
fn they_do_not_count_until_they_are_as_old_as_the_lease() {
    let began = Instant::now();
    let fixture = Fixture::five();
    let red = red(&fixture);
    // None of them grows so old here.
    let patient = RedLockClient::new(fixture.clients(|b| b.lease(DAY))).unwrap().with_node_timeout(PATIENT);
    let lock = patient.lock(NAME);
    let error = lock.try_lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, NAME));
    for text in ["0 of 5 servers can vote", "recently", &fixture.servers[4].port().to_string()] {
        assert!(error.to_string().contains(text), "{error}");
    }
    fixture.nothing_stays();
    let before = fixture.request_count();
    // Known to be too young, they are not even asked.
    assert!(lock.try_lock().is_err());
    assert_eq!(fixture.request_count(), before);
    until_old(&red);
    assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
    // A first start is another thing.
    fixture.servers[0].restart().unwrap();
    let trusting = red.skip_startup_delay().lock(NAME);
    wait_until(LONG, "it counts", || trusting.lock().is_ok_and(|guard| guard.servers() == 5));
}

/// They say of themselves that they have been up for longer than the lease. (What they say is in whole seconds, of
/// which the first does not count.)
fn until_they_say_so(servers: &[RedisServer]) {
    let says_so = |server: &RedisServer| {
        let info: String = redis::cmd("INFO").arg("server").query(&mut server.connection().unwrap()).unwrap();
        let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.unwrap().parse::<u64>().unwrap() > LEASE.as_secs() + 2
    };
    wait_until(LONG, "they have been up for long", || servers.iter().all(says_so));
}

/// How one of the servers loses what it granted.
#[derive(Clone, Copy, PartialEq)]
enum Forgets {
    /// It dies, and comes back empty.
    Restarted,
    /// Its address leads to a server that has been up for as long.
    Replaced,
}

/// A holds the lock on three servers, of which one forgets it; the other two were away when A came. Returns
/// what B gets by these three.
fn by_a_server_that_forgot(how: Forgets, trusts: bool) -> bool {
    let spare = RedisServer::start().unwrap();
    let fixture = Fixture::five();
    let front = Proxy::start(fixture.servers[2].port()).unwrap();
    let clients = |third: String| -> Vec<Client> {
        let mut urls: Vec<_> = fixture.servers.iter().map(RedisServer::url).collect();
        urls[2] = third;
        urls.iter().map(|url| connected(|| Client::builder().url(url).lease(LEASE))).collect()
    };
    let red = |clients: &[Client]| {
        let red = RedLockClient::new(clients).unwrap().with_node_timeout(NODE_TIMEOUT);
        if trusts { red.skip_startup_delay() } else { red }
    };
    let clients_of_a = clients(fixture.servers[2].url());
    let (a, b) = (red(&clients_of_a), red(&clients(front.url())));
    until_old(&a);
    until_old(&b);
    until_they_say_so(slice::from_ref(&spare));
    for away in &fixture.servers[3..] {
        away.stop().unwrap();
    }
    // What A asks of them before it knows, they grant as soon as they are back. Three requests alone do not
    // show that it knows: it may be waiting for connections to the others, for at most the node timeout.
    let away_since = Instant::now();
    wait_until(LONG, "A leaves two servers out", || {
        let requests = || clients_of_a.iter().map(Client::request_count).sum::<u64>();
        let before = requests();
        // All three that run have to answer: where one is late, it is unlocked in the background.
        let _ = released_all(&a.lock("aside").lock().unwrap().unlock());
        requests() - before == 6 && away_since.elapsed() > 2 * NODE_TIMEOUT
    });
    let guard = a.lock(NAME).lock_owned().unwrap();
    assert_eq!(guard.servers(), 3);
    match how {
        Forgets::Restarted => {
            fixture.servers[2].kill().unwrap();
            fixture.servers[2].restart().unwrap();
        }
        Forgets::Replaced => {
            // A's connections stay, as they do where a name changes.
            front.set_target(spare.port());
            front.cut_all();
        }
    }
    for away in &fixture.servers[3..] {
        away.cont().unwrap();
    }
    let lock = b.lock(NAME);
    let began = Instant::now();
    let mut both = false;
    // Well before its third of the lease A does not hear of it.
    while began.elapsed() < LEASE / 4 {
        let got = lock.try_lock();
        both |= matches!(got, Ok(Some(_))) && !guard.is_lost();
    }
    both
}

#[test]
fn a_server_that_forgot_gives_nobody_a_majority() {
    assert!(!by_a_server_that_forgot(Forgets::Restarted, false));
}

#[test]
fn a_server_at_the_address_of_another_gives_nobody_a_majority() {
    assert!(!by_a_server_that_forgot(Forgets::Replaced, false));
}

/// The control: this is what the rule is for.
#[test]
fn where_young_servers_are_trusted_it_may() {
    // On a busy machine A may hear of it first.
    assert!((0..30).any(|_| by_a_server_that_forgot(Forgets::Restarted, true)));
}

/// It counts once a lease has passed since it was found there, however long it was up before.
#[test]
fn a_server_at_the_address_of_another_counts_a_lease_later() {
    let spares: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
    let fixture = Fixture::of(3);
    let fronts: Vec<_> = fixture.servers.iter().map(|s| Proxy::start(s.port()).unwrap()).collect();
    let clients: Vec<_> =
        fronts.iter().map(|front| connected(|| Client::builder().url(&front.url()).lease(LEASE))).collect();
    let red = RedLockClient::new(clients).unwrap().with_node_timeout(NODE_TIMEOUT);
    let counts = || red.lock(NAME).try_lock().is_ok_and(|guard| guard.is_some());
    wait_until(LONG, "they are old enough", counts);
    until_they_say_so(&spares);
    let replaced = Instant::now();
    for (front, spare) in fronts.iter().zip(&spares) {
        front.set_target(spare.port());
        front.cut_all();
    }
    wait_until(LONG, "they count", counts);
    assert!(replaced.elapsed() >= LEASE, "they count {:?} after they came", replaced.elapsed());
}

#[test]
fn a_restart_is_noticed_on_whichever_connection() {
    // A busy machine is to restart three servers and to use all of them in less.
    const LEASE: Duration = Duration::from_secs(3);
    let fixture = Fixture::five();
    let clients = fixture.clients(|b| b.lease(LEASE));
    let red = RedLockClient::new(&clients).unwrap().with_node_timeout(PATIENT.min(LEASE / 4));
    // Again where the machine is so slow that they are old before they are looked at.
    wait_until(2 * LONG, "they are looked at while they are young", || {
        until_old(&red);
        let began = Instant::now();
        for server in &fixture.servers[..3] {
            server.kill().unwrap();
            server.restart().unwrap();
        }
        // Ordinary locks of the same clients make new connections first.
        for client in &clients {
            client.simple_lock("other").try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
        }
        let mut young = false;
        while began.elapsed() < LEASE {
            let got = red.lock(NAME).try_lock_for(ms(20)).map(drop);
            if began.elapsed() < LEASE {
                assert!(got.is_err(), "three servers were started just now");
                young = true;
            }
        }
        young
    });
    until_old(&red);
}

#[test]
fn how_old_they_must_be_is_each_lock_s_own() {
    let fixture = Fixture::five();
    let red = red(&fixture);
    let day = red.lock("daily").with_lease(DAY);
    assert_eq!(day.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    until_old(&red);
    // What was not given back in time is in the background.
    fixture.nothing_stays();
    let before = fixture.request_count();
    assert_eq!(day.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fixture.request_count(), before);
    assert!(red.lock(NAME).try_lock_for(LONG).unwrap().is_some());
}
