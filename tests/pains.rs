//! What users of other lock libraries complained of, each as a test that it does not happen here,
//! as far as no other test of this crate shows it already.

#[path = "invariants/support.rs"]
mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::testing::*;
use redis_concurrent::{CancellationToken, Client, ErrorKind};

use support::*;

/// What a loaded machine may add to any bound.
const LOAD: Duration = ms(4000);

fn requests(client: &Client, during: Duration) -> u64 {
    let before = client.requests();
    thread::sleep(during);
    client.requests() - before
}

/// A released lock is renewed for ever: an acquire that was cancelled at just the wrong moment has
/// left its renewal behind.
#[test]
fn pain_01_nothing_is_renewed_after_its_release() {
    let mut random = Random::new("pain_01");
    let server = RedisServer::start().unwrap();
    let lease = ms(300);
    let clients: Vec<_> = (0..2).map(|_| builder(&server.url()).lease(lease).connect().unwrap()).collect();
    thread::scope(|scope| {
        for i in 0..4 {
            let (mut random, lock) = (random.fork(), clients[i % 2].reentrant_lock("x"));
            scope.spawn(move || {
                for _ in 0..400 {
                    let token = CancellationToken::new();
                    let pause = random.micros(1500);
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            thread::sleep(pause);
                            token.cancel();
                        });
                        match lock.lock_interruptibly(&token) {
                            Ok(guard) => guard.unlock().unwrap(),
                            Err(e) => assert!(e.is_cancelled(), "{e}"),
                        }
                    });
                }
            });
        }
    });
    nothing_left(&server);
    for client in &clients {
        wait_until(SOON, "no lock is in use", || client.locks() == 0);
        assert_eq!(requests(client, 2 * lease), 0, "something is renewed still");
    }
}

/// A held lock is silently not renewed: its entry was another acquisition's of the same name, or a
/// failed renewal has left one that blocks all later ones.
#[test]
fn pain_02_a_held_lock_is_renewed_whatever_was_before() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let lease = ms(600);
    let client = builder(&proxy.url()).lease(lease).connect().unwrap();
    let lock = client.reentrant_lock("x");
    let held_for = |limit: Duration| {
        let guard = lock.lock().unwrap();
        let began = Instant::now();
        while began.elapsed() < limit {
            assert!(!guard.is_lost(), "not renewed");
            thread::sleep(ms(10));
        }
        guard.unlock().unwrap();
    };
    // Two threads take turns on one name.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..2).for_each(|_| held_for(ms(900))));
        }
    });
    // After a loss the same thread comes again.
    let guard = lock.lock().unwrap();
    assert!(delete(&server, "rc:{x}"));
    assert!(guard.lost().wait_timeout(SOON));
    drop(guard);
    held_for(ms(1500));
    // The connection is cut again and again, during renewals too.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(ms(170));
                proxy.cut_all();
            }
        });
        let guard = lock.lock().unwrap();
        let began = Instant::now();
        while began.elapsed() < ms(2400) && !guard.is_lost() {
            thread::sleep(ms(10));
        }
        let survived = !guard.is_lost();
        stop.store(true, Ordering::Relaxed);
        assert!(survived, "one cut during a renewal ended all renewals");
        guard.unlock().unwrap();
    });
}

/// A release that races a running renewal is reported as a loss.
#[test]
fn pain_05_a_release_during_a_renewal_is_no_loss() {
    let mut random = Random::new("pain_05");
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let ears = Ears::default();
    let client =
        builder(&proxy.url()).lease(ms(2000)).renew_every(ms(5)).observer(ears.clone()).connect().unwrap();
    // Answers to renewals come when the release is long over.
    proxy.delay(ms(4));
    thread::scope(|scope| {
        for i in 0..4 {
            let (mut random, lock) = (random.fork(), client.reentrant_lock(&format!("x{i}")));
            scope.spawn(move || {
                for _ in 0..100 {
                    let guard = lock.lock().unwrap();
                    thread::sleep(random.micros(25_000));
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(ears.count(Heard::Renewed) > 50, "hardly a renewal to race with");
    assert_eq!(ears.count(Heard::Released), 400);
    assert_eq!(ears.losses() + ears.failures(), 0, "{:?}", ears.all());
    nothing_left(&server);
}

/// Every cycle of lock and unlock starts another chain of renewals.
#[test]
fn pain_07_renewals_cost_what_is_held() {
    let server = RedisServer::start().unwrap();
    let every = ms(200);
    let client = builder(&server.url()).lease(ms(600)).renew_every(every).connect().unwrap();
    let held = client.reentrant_lock("held").lock_owned().unwrap();
    let lock = client.reentrant_lock("x");
    for _ in 0..3000 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let during = ms(1600);
    let sent = requests(&client, during);
    let due = during.as_millis() / every.as_millis();
    assert!(u128::from(sent) <= due + 2, "{sent} requests for one lock, renewed {due} times");
    assert!(u128::from(sent) >= due / 2, "{sent} requests, {due} were due");
    held.unlock().unwrap();

    // Many at once: none comes near the end of its lease.
    let ears = Ears::default();
    let lease = ms(6000);
    let client = builder(&server.url()).lease(lease).observer(ears.clone()).connect().unwrap();
    let guards: Vec<_> =
        (0..3000).map(|i| client.reentrant_lock(&format!("{i}")).lock_owned().unwrap()).collect();
    wait_until(LONG, "all were renewed", || ears.count(Heard::Renewed) >= guards.len());
    let least = guards.iter().map(|g| g.remaining()).min().unwrap();
    assert!(least > lease / 3, "{least:?} left");
    assert_eq!(ears.losses(), 0);
    client.close().unwrap();
}

/// One subscription for each contended lock, until there are no more to be had.
#[test]
fn pain_10_subscriptions_do_not_grow_with_the_locks_waited_for() {
    let server = RedisServer::start().unwrap();
    let holder = connect(&server);
    let names: Vec<String> = (0..200).map(|i| format!("x{i}")).collect();
    let guards: Vec<_> = names.iter().map(|name| holder.reentrant_lock(name).lock_owned().unwrap()).collect();
    let client = connect(&server);
    thread::scope(|scope| {
        let waiters: Vec<_> = names
            .iter()
            .map(|name| {
                let lock = client.reentrant_lock(name);
                scope.spawn(move || lock.lock().map(drop))
            })
            .collect();
        let last = holder.reentrant_lock(&names[names.len() - 1]);
        wait_until(LONG, "all wait", || {
            let places = server.keys().unwrap().iter().filter(|k| k.ends_with(":queue")).count();
            places == names.len()
        });
        assert_eq!(last.queue_length().unwrap(), 1);
        assert_eq!(channels(&server).len(), 1);
        assert_eq!(server.clients(ClientKind::PubSub).unwrap().len(), 1);
        drop(guards);
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
    wait_until(SOON, "all are released", || client.locks() == 0);
    client.close().unwrap();
    wait_until(SOON, "no subscription is left", || channels(&server).is_empty());
    nothing_left(&server);
}

/// A listener whose peer is gone without a word waits for ever.
#[test]
fn pain_11_a_half_open_listener_is_replaced() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let ears = Ears::default();
    let holder = connect(&server).reentrant_lock("x");
    // Its beat is 10 s: only the listener can be quicker.
    let client = builder(&proxy.url()).window(ms(30_000)).observer(ears.clone()).connect().unwrap();
    let lock = client.reentrant_lock("x");
    let waits = |released: &dyn Fn()| {
        let held = holder.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                (Instant::now(), guard.unlock())
            });
            queued(&holder, 1);
            released();
            let at = Instant::now();
            held.unlock().unwrap();
            let (got, unlocked) = waits.join().unwrap();
            unlocked.unwrap();
            got.saturating_duration_since(at)
        })
    };
    // Idle for several read time-outs and pings, it still hears.
    let took = waits(&|| thread::sleep(ms(2500)));
    assert!(took < LOAD, "{took:?}");
    assert_eq!(ears.count(Heard::Reconnected), 0);
    // Pings go into a black hole; a new connection gets through.
    let connections = proxy.connections();
    proxy.only_matching(b"PING");
    proxy.black_hole(true);
    wait_until(SOON, "it is noticed", || ears.count(Heard::Reconnected) > 0);
    proxy.heal().unwrap();
    assert!(proxy.connections() > connections);
    let took = waits(&|| ());
    assert!(took < LOAD, "{took:?}");
}

/// Every process retries on every release, in no order.
#[test]
fn pain_12_two_scripts_a_grant_and_nobody_starves() {
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
    let turns: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    // Scripts are known, listeners are there.
    for client in &clients {
        let lock = client.reentrant_lock("x");
        let guard = clients[0].simple_lock("warm").lock_owned().unwrap();
        drop(lock.lock().unwrap());
        assert!(client.simple_lock("warm").try_lock_for(ms(30)).unwrap().is_none());
        drop(guard);
    }
    let (mut grants, mut scripts) = (0, 0);
    thread::scope(|scope| {
        for (client, turns) in clients.iter().zip(&turns) {
            for _ in 0..8 {
                let (lock, stop) = (client.reentrant_lock("x").fair(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        turns.fetch_add(1, Ordering::Relaxed);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
        let total = || turns.iter().map(|t| t.load(Ordering::Relaxed)).sum::<u64>();
        let count = || server.command_calls().unwrap().get("evalsha").copied().unwrap_or(0);
        wait_until(LONG, "all take part", || turns.iter().all(|t| t.load(Ordering::Relaxed) > 10));
        let (grants_before, scripts_before) = (total(), count());
        wait_until(LONG, "a thousand turns", || total() > grants_before + 1000);
        scripts = count() - scripts_before;
        grants = total() - grants_before;
        stop.store(true, Ordering::Relaxed);
    });
    // Some turns end between the two counts.
    let each = scripts as f64 / grants as f64;
    assert!(each < 2.1, "{each} scripts a grant: {scripts} for {grants}");
    let turns: Vec<f64> = turns.iter().map(|t| t.load(Ordering::Relaxed) as f64).collect();
    let sum: f64 = turns.iter().sum();
    let jain = sum * sum / (5.0 * turns.iter().map(|t| t * t).sum::<f64>());
    println!("{each:.2} scripts a grant, Jain's index {jain:.3}");
    assert!(jain >= 0.9, "{jain}: {turns:?}");
}

/// Two kinds of lock under one name are both granted; and the lease of another call on the same
/// handle is used.
#[test]
fn pain_21_a_name_has_one_kind_and_a_call_its_own_lease() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let (reentrant, simple) = (client.reentrant_lock("x"), client.simple_lock("x"));
    let wrong = |kind: ErrorKind| assert_eq!(kind, ErrorKind::WrongKind);
    let guard = reentrant.lock().unwrap();
    let state = server.keys().unwrap();
    wrong(simple.try_lock().unwrap_err().kind());
    wrong(simple.lock().unwrap_err().kind());
    wrong(simple.try_lock_for(LONG).unwrap_err().kind());
    wrong(simple.is_locked().unwrap_err().kind());
    assert_eq!(server.keys().unwrap(), state, "a refusal has written something");
    guard.unlock().unwrap();
    let guard = simple.lock().unwrap();
    wrong(reentrant.try_lock().unwrap_err().kind());
    wrong(reentrant.lock().unwrap_err().kind());
    wrong(reentrant.holder().unwrap_err().kind());
    guard.unlock().unwrap();
    // A stranger's key of any type stays as it is.
    for make in ["SET", "LPUSH", "SADD"] {
        let mut connection = server.connection().unwrap();
        redis::cmd(make).arg("rc:{x}").arg("stranger").exec(&mut connection).unwrap();
        wrong(reentrant.lock().unwrap_err().kind());
        if make != "SET" {
            wrong(simple.lock().unwrap_err().kind());
        }
        assert!(delete(&server, "rc:{x}"));
    }
    redis::cmd("HSET").arg(&["rc:{x}", "a", "b"]).exec(&mut server.connection().unwrap()).unwrap();
    wrong(reentrant.lock().unwrap_err().kind());
    wrong(simple.lock().unwrap_err().kind());
    assert!(delete(&server, "rc:{x}"));

    // Two threads with one handle, each with a lease of its own.
    let (short, long) = (reentrant.with_lease(ms(5000)), reentrant.with_lease(ms(60_000)));
    thread::scope(|scope| {
        for (lock, lease) in [(&short, 5000), (&long, 60_000), (&reentrant, 30_000)] {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..40 {
                    let guard = lock.lock().unwrap();
                    let ttl = pttl(server, "rc:{x}");
                    assert!(ttl > lease - 3000 && ttl <= lease, "{ttl} of {lease}");
                    guard.unlock().unwrap();
                }
            });
        }
    });
}

/// The block ran although the lock was not obtained.
#[test]
fn pain_23_without_a_hold_nothing_runs_under_it() {
    let server = RedisServer::start().unwrap();
    let client = builder(&server.url()).give_up_after(ms(300)).command_timeout(ms(200)).connect();
    let client = client.unwrap();
    let lock = client.reentrant_lock("x");
    let never = |lock: &redis_concurrent::ReentrantLock| {
        lock.with(|_| -> () { panic!("ran without a hold") }).unwrap_err().kind()
    };
    assert_eq!(never(&lock.with_lease(ms(1))), ErrorKind::Config);
    redis::cmd("SET").arg("rc:{y}").arg(1).exec(&mut server.connection().unwrap()).unwrap();
    assert_eq!(never(&client.reentrant_lock("y")), ErrorKind::WrongKind);
    assert!(lock.with(|guard| guard.token()).unwrap() > 0);
    server.stop().unwrap();
    assert_eq!(never(&lock), ErrorKind::Unavailable);
    server.cont().unwrap();
    client.close().unwrap_or_default();
    assert_eq!(never(&lock), ErrorKind::Closed);
}

/// A key without a time to live, left by who was killed between two commands.
#[test]
fn pain_24_every_key_ends_by_itself_at_every_moment() {
    const ROLE: &str = "role_lives_dangerously";
    let mut random = Random::new("pain_24");
    let server = RedisServer::start().unwrap();
    let endless = redis::Script::new(
        "local bad = {}
         for _, key in ipairs(redis.call('KEYS', '*')) do
           if redis.call('PTTL', key) == -1 then bad[#bad + 1] = key end
         end
         return bad",
    );
    let start = |random: &mut Random| {
        let child = Child::spawn(ROLE, &[("URL", &server.url()), ("SEED", &random.seed())]).unwrap();
        child.read_line_within(LONG).unwrap();
        child
    };
    let mut children: Vec<_> = (0..2).map(|_| start(&mut random)).collect();
    let mut connection = server.connection().unwrap();
    let (began, mut looks) = (Instant::now(), 0);
    let mut kill_at = ms(200);
    while began.elapsed() < ms(3000) {
        let bad: Vec<String> = endless.invoke(&mut connection).unwrap();
        assert!(bad.is_empty(), "without an end: {bad:?}");
        looks += 1;
        if began.elapsed() > kill_at {
            let victim = random.below(2) as usize;
            children[victim].kill9().unwrap();
            children[victim] = start(&mut random);
            kill_at = began.elapsed() + ms(100) + random.micros(150_000);
        }
    }
    assert!(looks > 500, "{looks} looks");
    for child in &mut children {
        child.kill9().unwrap();
    }
    nothing_left(&server);
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_lives_dangerously() {
    if !is_role("role_lives_dangerously") {
        return;
    }
    let mut random = Random::new("role_lives_dangerously");
    let client = builder(&env("URL")).lease(ms(500)).window(ms(500)).connect().unwrap();
    tell_parent("ready").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            let (mut random, client) = (random.fork(), &client);
            scope.spawn(move || {
                loop {
                    let (name, wait) = (["a", "b"][random.below(2) as usize], random.micros(3000));
                    if random.below(2) == 0 {
                        drop(client.reentrant_lock(name).try_lock_for(wait).unwrap());
                    } else {
                        drop(client.simple_lock(["c", "d"][random.below(2) as usize]).lock().unwrap());
                    }
                }
            });
        }
    });
}

/// The late finisher deletes the next holder's lock.
#[test]
fn pain_25_who_is_late_harms_nobody() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    for simple in [false, true] {
        let others = connect(&server);
        let lease = ms(300);
        let error = if simple {
            let guard = client.simple_lock("x").with_lease(lease).lock_owned().unwrap();
            let theirs = others.simple_lock("x").lock().map(|g| g.token());
            assert!(theirs.unwrap() > guard.token());
            let others = others.simple_lock("x");
            let theirs = others.lock().unwrap();
            let error = guard.unlock().unwrap_err();
            assert!(!theirs.is_lost());
            theirs.unlock().unwrap();
            error
        } else {
            let guard = client.reentrant_lock("x").with_lease(lease).lock_owned().unwrap();
            let others = others.reentrant_lock("x");
            let theirs = others.lock().unwrap();
            let error = guard.unlock().unwrap_err();
            assert!(!theirs.is_lost());
            theirs.unlock().unwrap();
            error
        };
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
    }
    nothing_left(&server);
}

/// How long to wait and how long to hold are mixed up.
#[test]
fn pain_26_waits_and_leases_have_nothing_to_do_with_each_other() {
    let mut random = Random::new("pain_26");
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let client = connect(&server);
    for _ in 0..25 {
        let wait = ms(1) + random.micros(250_000);
        let lease = ms(100 + random.below(400));
        let busy_for = random.micros(300_000);
        let held = holder.lock_owned().unwrap();
        let lock = client.reentrant_lock("x").with_lease(lease);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(busy_for);
                held.unlock().unwrap();
            });
            let began = Instant::now();
            let got = lock.try_lock_for(wait).unwrap();
            let took = began.elapsed();
            assert!(took < wait + LOAD, "waited {took:?} for at most {wait:?}");
            match got {
                Some(guard) => {
                    let ttl = pttl(&server, "rc:{x}");
                    assert!(ttl <= lease.as_millis() as i64, "{ttl} ms of {lease:?}");
                    assert!(guard.remaining() <= lease);
                    // It may have ended by itself.
                    let _ = guard.unlock();
                }
                None => assert!(took + ms(5) >= wait, "gave up after {took:?} of {wait:?}"),
            }
        });
    }
    // A wait longer than the lease of the holder and of the waiter is waited out.
    let held = holder.lock_owned().unwrap();
    let (wait, lease) = (ms(700), ms(150));
    let lock = client.reentrant_lock("x").with_lease(lease);
    let began = Instant::now();
    assert!(lock.try_lock_for(wait).unwrap().is_none());
    assert!(began.elapsed() >= wait - ms(5), "{:?}", began.elapsed());
    held.unlock().unwrap();
}

/// A registry that grows with every name.
#[test]
fn pain_30_names_leave_nothing() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let counts: Mutex<HashMap<usize, usize>> = Mutex::default();
    for i in 0..3000 {
        let lock = client.reentrant_lock(&format!("name {i}"));
        if i % 10 == 0 {
            lock.lock().unwrap().unlock().unwrap();
        }
        drop(lock);
        *counts.lock().entry(client.locks()).or_default() += 1;
    }
    assert_eq!(counts.into_inner(), HashMap::from([(0, 3000)]));
    nothing_left(&server);
}
