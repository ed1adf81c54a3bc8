//! Of names, leases and ends that are mixed up.

use std::thread;
use std::time::Instant;

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::*;

use crate::pains::LOAD;
use crate::server_days::connected;
use crate::support::*;

/// Two kinds of lock under one name are both granted; and the lease of another call on the same
/// handle is used.
#[test]
fn pain_21_a_name_has_one_kind_and_a_call_its_own_lease() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let (reentrant, simple) = (client.reentrant_lock("x"), client.simple_lock("x"));
    let wrong = |kind: ErrorKind| assert_eq!(kind, ErrorKind::WrongType);
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
    // A foreign key of any type stays as it is.
    for make in ["SET", "LPUSH", "SADD"] {
        let mut connection = server.connection().unwrap();
        redis::cmd(make).arg("rc:{x}").arg("foreign").exec(&mut connection).unwrap();
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
                    assert!(ttl > lease / 2 && ttl <= lease, "{ttl} of {lease}");
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
    let client = connect(&server);
    let impatient =
        connected(|| builder(&server.url()).unreachable_timeout(ms(300)).command_timeout(ms(200)));
    let lock = impatient.reentrant_lock("x");
    let never = |lock: &redis_concurrent::ReentrantLock| {
        lock.with(|_| -> () { panic!("ran without a hold") }).unwrap_err().kind()
    };
    assert_eq!(never(&lock.with_lease(ms(1))), ErrorKind::InvalidInput);
    redis::cmd("SET").arg("rc:{y}").arg(1).exec(&mut server.connection().unwrap()).unwrap();
    assert_eq!(never(&client.reentrant_lock("y")), ErrorKind::WrongType);
    // Its times are for the silence; before it a busy machine may not keep them.
    assert!(eventually(LONG, || lock.with(|guard| guard.token()).ok()) > 0);
    server.stop().unwrap();
    assert_eq!(never(&lock), ErrorKind::Unavailable);
    server.cont().unwrap();
    impatient.close().unwrap_or_default();
    assert_eq!(never(&lock), ErrorKind::Closed);
}

/// A key without a time to live, left by a process that was killed between two commands.
#[test]
fn pain_24_every_key_ends_by_itself_at_every_moment() {
    const ROLE: &str = "pains::misuse::role_lives_dangerously";
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
    // A machine with much to do looks for longer, so that it has looked as often.
    while began.elapsed() < ms(3000) || looks <= 500 {
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
    for child in &mut children {
        child.kill9().unwrap();
    }
    nothing_left(&server);
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_lives_dangerously() {
    if !is_role("pains::misuse::role_lives_dangerously") {
        return;
    }
    let mut random = Random::new("pains::role_lives_dangerously");
    let client = connected(|| builder(&env("URL")).lease(ms(500)).waiter_timeout(ms(500)));
    tell_parent("ready").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            let (mut random, client) = (random.fork(), &client);
            scope.spawn(move || {
                loop {
                    let (name, wait) = (["a", "b"][random.below(2) as usize], random.micros(3000));
                    if random.below(2) == 0 {
                        drop(in_brief(client.reentrant_lock(name).try_lock_for(wait)));
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
fn pain_25_a_late_holder_harms_nobody() {
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
            let got = in_brief(lock.try_lock_for(wait));
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
    assert!(in_brief(lock.try_lock_for(wait)).is_none());
    assert!(began.elapsed() >= wait - ms(5), "{:?}", began.elapsed());
    held.unlock().unwrap();
}
