//! Servers that were started a moment ago may have forgotten what they granted.

use std::time::{Duration, Instant};

use redis_concurrent::{ErrorKind, RedLock};
use redis_concurrent_testkit::{released_all, wait_until};

use crate::red_lock::stage::{LONG, NAME, PATIENT, Stage, ms};

/// So short that a server is older soon: whole seconds are counted.
const LEASE: Duration = Duration::from_millis(1500);

/// A quarter of the lease.
const NODE_TIMEOUT: Duration = Duration::from_millis(375);

const DAY: Duration = Duration::from_secs(24 * 3600);

fn red(stage: &Stage) -> RedLock {
    RedLock::new(stage.clients(|b| b.lease(LEASE))).unwrap().with_node_timeout(NODE_TIMEOUT)
}

/// Nothing is held by a majority until the servers are as old as the lease.
#[track_caller]
fn until_old(red: &RedLock) {
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
    let stage = Stage::five();
    let red = red(&stage);
    // None of them grows so old here.
    let patient = RedLock::new(stage.clients(|b| b.lease(DAY))).unwrap().with_node_timeout(PATIENT);
    let lock = patient.lock(NAME);
    let error = lock.try_lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, NAME));
    for text in ["0 of 5 servers can vote", "recently", &stage.servers[4].port().to_string()] {
        assert!(error.to_string().contains(text), "{error}");
    }
    stage.nothing_stays();
    let before = stage.request_count();
    // Known to be too young, they are not even asked.
    assert!(lock.try_lock().is_err());
    assert_eq!(stage.request_count(), before);
    until_old(&red);
    assert!(began.elapsed() >= LEASE, "{:?}", began.elapsed());
    // A first start is another thing.
    stage.servers[0].restart().unwrap();
    let trusting = red.skip_startup_delay().lock(NAME);
    wait_until(LONG, "it counts", || trusting.lock().is_ok_and(|guard| guard.servers() == 5));
}

/// A holds the lock on three servers, of which one dies and comes back empty; the other two were away when A
/// came. Returns what B gets by these three.
fn by_a_server_that_forgot(trusts: bool) -> bool {
    let stage = Stage::five();
    let clients = stage.clients(|b| b.lease(LEASE));
    let a = RedLock::new(clients.clone()).unwrap().with_node_timeout(NODE_TIMEOUT);
    let (a, b) =
        if trusts { (a.skip_startup_delay(), red(&stage).skip_startup_delay()) } else { (a, red(&stage)) };
    until_old(&a);
    until_old(&b);
    for away in &stage.servers[3..] {
        away.stop().unwrap();
    }
    // What A asks of them before it knows, they grant as soon as they are back. Three requests alone do not
    // show that it knows: it may be waiting for connections to the others, for at most the node timeout.
    let away_since = Instant::now();
    wait_until(LONG, "A leaves two servers out", || {
        let requests = || clients.iter().map(|client| client.request_count()).sum::<u64>();
        let before = requests();
        // All three that run have to answer: where one is late, it is unlocked in the background.
        let _ = released_all(&a.lock("aside").lock().unwrap().unlock());
        requests() - before == 6 && away_since.elapsed() > 2 * NODE_TIMEOUT
    });
    let guard = a.lock(NAME).lock_owned().unwrap();
    assert_eq!(guard.servers(), 3);
    stage.servers[2].kill().unwrap();
    stage.servers[2].restart().unwrap();
    for away in &stage.servers[3..] {
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
    assert!(!by_a_server_that_forgot(false));
}

/// The control: this is what the rule is for.
#[test]
fn where_young_servers_are_trusted_it_may() {
    // On a busy machine A may hear of it first.
    assert!((0..30).any(|_| by_a_server_that_forgot(true)));
}

#[test]
fn a_restart_is_noticed_on_whichever_connection() {
    // A busy machine is to restart three servers and to use all of them in less.
    const LEASE: Duration = Duration::from_secs(3);
    let stage = Stage::five();
    let clients = stage.clients(|b| b.lease(LEASE));
    let red = RedLock::new(&clients).unwrap().with_node_timeout(PATIENT.min(LEASE / 4));
    // Again where the machine is so slow that they are old before they are looked at.
    wait_until(2 * LONG, "they are looked at while they are young", || {
        until_old(&red);
        let began = Instant::now();
        for server in &stage.servers[..3] {
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
    let stage = Stage::five();
    let red = red(&stage);
    let day = red.lock("daily").with_lease(DAY);
    assert_eq!(day.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    until_old(&red);
    let before = stage.request_count();
    assert_eq!(day.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(stage.request_count(), before);
    assert!(red.lock(NAME).try_lock().unwrap().is_some());
}
