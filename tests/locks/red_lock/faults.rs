//! What it says when it cannot do what it was asked to: each failure is a kind of its own, and tells which
//! server said what.

use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, RedLock, RedLockClient};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, wait_until};

use crate::red_lock::fixture::{Fixture, LEASE, LONG, NAME, PATIENT, ms};
use crate::support::connected;

#[test]
fn pain_27_contention_is_none_and_no_error() {
    let fixture = Fixture::of(3);
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    let _guard = yours.lock().unwrap();
    // So little time may be too little for an answer, but not each time.
    let busy = |n: usize| {
        let until = Instant::now() + ms(20);
        let got = match n % 2 {
            0 => mine.try_lock_for(ms(20)).map(|guard| guard.is_some()),
            _ => mine.lock_owned_with(until).map(|guard| guard.is_some()),
        };
        assert!(!matches!(got, Ok(true)), "two have it");
        got.is_ok()
    };
    assert!(mine.try_lock().unwrap().is_none());
    wait_until(LONG, "try_lock_for", || busy(0));
    wait_until(LONG, "try_lock_owned_until", || busy(1));
    // With a server away it is busy still: those that are there say so.
    fixture.servers[0].stop().unwrap();
    wait_until(LONG, "with a server away", || busy(0));
    assert!(mine.try_lock().unwrap().is_none());
    fixture.servers[0].cont().unwrap();
}

#[test]
fn connections_that_were_closed_while_they_rested_cost_nothing() {
    let fixture = Fixture::of(3);
    let proxies: Vec<_> = fixture.servers.iter().map(|server| Proxy::start(server.port()).unwrap()).collect();
    let clients = proxies.iter().map(|proxy| connected(|| Client::builder().url(&proxy.url()).lease(LEASE)));
    let red = RedLockClient::new(clients.collect::<Vec<_>>())
        .unwrap()
        .skip_startup_delay()
        .with_node_timeout(PATIENT);
    let (lock, cut) = (red.lock(NAME), || proxies.iter().for_each(Proxy::cut_all));
    let guard = lock.lock().unwrap();
    cut();
    assert!(lock.is_locked().unwrap());
    cut();
    guard.renew_for(LEASE).unwrap();
    cut();
    guard.unlock().unwrap();
    fixture.await_held_on(0);
}

/// It replies to everything but scripts and writes, as during a planned failover.
#[test]
fn a_server_that_pauses_writes_costs_the_node_timeout_once() {
    const NODE_TIMEOUT: Duration = ms(1000);
    let fixture = Fixture::of(3);
    let lock = fixture.red().with_node_timeout(NODE_TIMEOUT).lock(NAME);
    let tell = |command: &[&str]| {
        let mut redis = fixture.servers[0].connection().unwrap();
        redis::cmd("CLIENT").arg(command).exec(&mut redis).unwrap();
    };
    drop(fixture.by_all(|| lock.lock().unwrap()));
    tell(&["PAUSE", "600000", "WRITE"]);
    let took = || {
        // The thread that asks whether it is back has a reply meanwhile, if it gets one.
        std::thread::sleep(ms(50));
        let began = Instant::now();
        drop(lock.lock().unwrap());
        began.elapsed()
    };
    let all: Vec<Duration> = (0..6).map(|_| took()).collect();
    // On a busy machine another one may take as long.
    assert!(all.iter().filter(|took| **took >= NODE_TIMEOUT).count() <= 2, "{all:?}");
    tell(&["UNPAUSE"]);
    wait_until(LONG, "it is asked again", || lock.lock().is_ok_and(|guard| guard.servers() == 3));
    fixture.nothing_stays();
}

#[test]
fn pain_27_too_few_servers_are_unavailable_and_each_is_named() {
    let fixture = Fixture::five();
    let red = fixture.red_with(|b| b.unreachable_timeout(ms(700))).with_node_timeout(ms(200));
    let lock = red.lock(NAME);
    red.with_node_timeout(PATIENT).lock(NAME).lock().unwrap().unlock().unwrap();
    for hung in &fixture.servers[..2] {
        hung.stop().unwrap();
    }
    fixture.servers[2].kill().unwrap();
    // On a busy machine one of the two that are there may be too slow, but not each time.
    let error = eventually(LONG, || {
        let error = lock.try_lock().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, NAME), "{error}");
        println!("{error}");
        error.to_string().contains("2 of 5 servers can vote now, 3 are needed").then_some(error)
    });
    for server in &fixture.servers[..3] {
        assert!(error.to_string().contains(&format!("127.0.0.1:{}", server.port())), "{error}");
    }
    let began = Instant::now();
    assert!(lock.try_lock_for(ms(400)).unwrap_err().is_unavailable());
    assert!(began.elapsed() >= ms(400) && began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    let began = Instant::now();
    assert!(lock.lock().unwrap_err().is_unavailable());
    assert!(began.elapsed() >= ms(700) && began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    let cancel = CancellationToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock_interruptibly(&cancel).map(drop));
        std::thread::sleep(ms(100));
        cancel.cancel();
        assert!(waiting.join().unwrap().unwrap_err().is_cancelled());
    });
    // What was got on the two was given back each time.
    let key = format!("rc:{{{NAME}}}");
    let is_there = |server: &RedisServer| server.keys().unwrap().contains(&key);
    wait_until(LEASE / 2, "given back", || !fixture.servers[3..].iter().any(is_there));
    for hung in &fixture.servers[..2] {
        hung.cont().unwrap();
    }
    fixture.servers[2].restart().unwrap();
    drop(lock.try_lock_for(LONG).unwrap().expect("they are back"));
    fixture.nothing_stays();
}

#[test]
fn keys_of_others_are_a_wrong_kind_and_left_alone() {
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME);
    let key = format!("rc:{{{NAME}}}");
    let foreign = |n: usize| {
        for server in &fixture.servers[..n] {
            let mut redis = server.connection().unwrap();
            let _: () = redis::cmd("HSET").arg(&key).arg("f").arg("theirs").query(&mut redis).unwrap();
        }
    };
    foreign(2);
    lock.try_lock().unwrap().expect("three are a majority").unlock().unwrap();
    foreign(3);
    for form in [|it| it.try_lock().map(drop), |it| it.lock().map(drop), |it| it.try_lock_for(LONG).map(drop)]
        as [fn(&RedLock) -> Result<(), Error>; 3]
    {
        // On a busy machine one of the three may be too slow, but not each time.
        let error =
            eventually(LONG, || Some(form(&lock).unwrap_err()).filter(|error| !error.is_unavailable()));
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, NAME), "{error}");
    }
    for (i, server) in fixture.servers.iter().enumerate() {
        wait_until(LONG, "what is ours is gone, and what is theirs is not", || {
            server.keys().unwrap().contains(&key) == (i < 3)
        });
    }
}

#[test]
fn pain_27_a_release_that_nobody_answers_is_unknown_and_goes_on() {
    let fixture = Fixture::of(3);
    let lock = fixture.red().lock(NAME);
    let guard = lock.lock().unwrap();
    for hung in &fixture.servers[..2] {
        hung.stop().unwrap();
    }
    let began = Instant::now();
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::OutcomeUnknown, NAME), "{error}");
    // On a busy machine the third one's reply may not come in its time either.
    let on = ["on 1 servers, 2 are needed", "on 0 servers, 2 are needed"];
    assert!(on.iter().any(|on| error.to_string().contains(on)), "{error}");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    for hung in &fixture.servers[..2] {
        hung.cont().unwrap();
    }
    wait_until(LEASE / 2, "given back well before the lease is over", || fixture.held_on() == 0);
    fixture.nothing_stays();
}

#[test]
fn pain_27_a_renewal_that_fails_says_whether_it_is_lost() {
    let fixture = Fixture::of(3);
    let lock = fixture.red().with_node_timeout(ms(300)).lock(NAME).with_lease(LEASE);
    let guard = lock.lock_owned().unwrap();
    for hung in &fixture.servers[..2] {
        hung.stop().unwrap();
    }
    let error = guard.renew().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::OutcomeUnknown, NAME), "{error}");
    assert!(!guard.is_lost());
    for hung in &fixture.servers[..2] {
        hung.cont().unwrap();
        wait_until(LONG, "it has forgotten", || hung.flush_all().is_ok());
    }
    let mut renewed = guard.renew();
    // They are asked again when they are known to be back.
    wait_until(LONG, "it is lost", || {
        renewed = guard.renew();
        renewed.as_ref().is_err_and(|error| error.is_lease_lost())
    });
    assert!(guard.is_lost() && guard.lost().is_cancelled());
    let began = Instant::now();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
}

#[test]
fn answers_that_are_lost_leave_nothing_behind() {
    let fixture = Fixture::of(3);
    let proxies: Vec<_> = fixture.servers.iter().map(|s| Proxy::start(s.port()).unwrap()).collect();
    let clients: Vec<_> =
        proxies.iter().map(|p| Client::builder().url(&p.url()).lease(LEASE).connect().unwrap()).collect();
    let red = RedLockClient::new(clients).unwrap().skip_startup_delay();
    let (patient, brisk) =
        (red.with_node_timeout(PATIENT).lock(NAME), red.with_node_timeout(ms(100)).lock(NAME));
    patient.lock().unwrap().unlock().unwrap();
    // The request is executed, its answer is lost with the connection: it is sent again, under the same id.
    for proxy in &proxies {
        proxy.only_matching(b"rc:{it}");
        proxy.swallow_next_reply_and_reset();
    }
    let guard = patient.try_lock().unwrap().expect("nobody else has it");
    // On a busy machine one of them may be too slow the second time.
    assert!(guard.servers() >= 2, "{}", guard.servers());
    guard.unlock().unwrap();
    wait_until(LONG, "each lost one", || proxies.iter().all(|proxy| proxy.struck() >= 1));
    fixture.nothing_stays();
    // The requests of an attempt that was given up arrive when it is long over.
    proxies.iter().for_each(|proxy| proxy.hold_next_requests(1));
    assert!(brisk.try_lock().unwrap_err().is_unavailable());
    wait_until(LONG, "they come back", || brisk.lock().is_ok_and(|guard| guard.servers() == 3));
    proxies.iter().for_each(Proxy::release_held);
    wait_until(LONG, "they have arrived", || proxies.iter().all(|proxy| proxy.held() == 0));
    fixture.nothing_stays();
    // Whatever its order with the release was, nothing comes in by it later.
    for _ in 0..20 {
        assert_eq!(fixture.held_on(), 0);
        std::thread::sleep(ms(5));
    }
}

/// Whether what nobody heard an answer to was granted is not known, but it is given back in time.
#[test]
fn clients_close_with_nothing_held_after_attempts_without_an_answer() {
    let fixture = Fixture::of(3);
    let proxies: Vec<_> = fixture.servers.iter().map(|s| Proxy::start(s.port()).unwrap()).collect();
    let closed = |round: usize| {
        let clients: Vec<_> =
            proxies.iter().map(|p| Client::builder().url(&p.url()).lease(LEASE).connect().unwrap()).collect();
        let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(ms(10));
        proxies.iter().for_each(|proxy| proxy.delay(ms(40)));
        let error = red.lock(&format!("{NAME}-{round}")).try_lock().map(drop).err();
        let outcomes: Vec<_> = clients.iter().map(Client::close).collect();
        proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
        assert!(error.as_ref().is_none_or(Error::is_unavailable), "{error:?}");
        (format!("{NAME}-{round}"), error.is_some(), outcomes)
    };
    // A loaded machine may wake the call so late that the answers are there; or it may not have the time that closing
    // takes at most: then what is left has its lease.
    let rounds: Vec<_> = (0..5).map(closed).collect();
    let (well, late): (Vec<_>, Vec<_>) = rounds.iter().partition(|(_, _, all)| all.iter().all(Result::is_ok));
    assert!(well.iter().any(|(_, unanswered, _)| *unanswered), "{rounds:?}");
    let is_late = |key: &String| late.iter().any(|(name, ..)| key.contains(&format!("{{{name}}}")));
    wait_until(LEASE / 2, "nothing is left behind", || fixture.lasting_keys().iter().all(is_late));
}
