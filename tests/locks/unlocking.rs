//! What `unlock` says: `Ok` only of a hold that it ended, `LeaseLost` of one that was over before, `Unavailable`
//! where Redis did not run it, `Unknown` where nobody can tell.

use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent::kinds::{Kind, Permits, Reentrant};
use redis_concurrent::observe::{AcquiredVia, LossReason};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::support::*;

/// For how long, by the server's own count, it has been up.
fn uptime(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO").arg("server").query(&mut server.connection().unwrap()).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    line.unwrap().trim().parse().unwrap()
}

/// Waits until it is clear from the server's count of whole seconds that it was up a second ago.
fn until_up(server: &RedisServer, seconds: u64) {
    wait_until(LONG, "the server has been up for so long", || uptime(server) >= seconds);
}

// ---- sent twice ----------------------------------------------------------------------------

#[test]
fn of_a_hold_that_a_restart_forgot_is_lost_where_another_holds_since() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&proxy.url()).observer(recorder.clone()));
    // No renewal tells it, and no other connection than the pool's finds out: that asks for `INFO server` first.
    let lock = client.reentrant_lock("x").with_lease(LONG);
    proxy.only_matching(b"$6\r\nserver");
    proxy.black_hole(true);
    // The connection is older than the server will be, by more than the three seconds that are allowed for a
    // server's count of its uptime.
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    until_up(&server, 5);
    server.kill().unwrap();
    server.restart().unwrap();
    until_up(&server, 4);
    let other = connect(&server).reentrant_lock("x");
    let theirs = other.try_lock().unwrap().expect("it was forgotten");
    assert!(!guard.is_lost(), "nobody has told it yet");
    let error = guard.unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    assert!(lost.is_cancelled());
    let reported: Vec<_> = recorder.all().into_iter().filter(|event| *event != Event::Reconnected).collect();
    assert_eq!(reported, [Event::Acquired(AcquiredVia::Free), Event::Lost(LossReason::Revoked)]);
    theirs.unlock().unwrap();
}

/// Whether the first copy was run before the server died, nobody can tell.
#[test]
fn of_a_hold_that_is_gone_with_the_server_that_was_told_is_unknown_where_another_holds_since() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(SOON));
    let lock = client.reentrant_lock("x");
    drop(lock.lock().unwrap());
    let guard = lock.lock_owned().unwrap();
    proxy.only_matching(b"rc:{x}");
    proxy.hold_next_requests(1);
    let error = thread::scope(|scope| {
        let unlocks = scope.spawn(|| guard.unlock());
        wait_until(SOON, "its request is held", || proxy.held() == 1);
        server.kill().unwrap();
        server.restart().unwrap();
        let other = connect(&server).reentrant_lock("x");
        let theirs = other.lock().unwrap();
        proxy.cut_all();
        let error = unlocks.join().unwrap().unwrap_err();
        theirs.unlock().unwrap();
        error
    });
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
}

/// Somebody else comes in by a leave whose answer is lost with its connection. What `unlock` says of it.
fn answer_lost_with_another_waiting<K: Kind>(
    server: &RedisServer,
    url: &str,
    kind: [K; 2],
) -> Option<ErrorKind> {
    let proxy = Proxy::start(server.port()).unwrap();
    let url = url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()));
    let client = connected(|| builder(&url));
    let [mine, theirs] = kind;
    let (lock, other) = (client.lock_with_kind("x", mine), connect(server).lock_with_kind("x", theirs));
    // Redis knows the scripts.
    drop(lock.lock().unwrap());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.lock_owned().unwrap());
        queued(&lock, 1);
        proxy.only_matching(b"rc:{x}");
        proxy.swallow_next_reply_and_reset();
        let kind = guard.unlock().err().map(|error| error.kind());
        assert!(proxy.struck() >= 1);
        waits.join().unwrap().unlock().unwrap();
        kind
    })
}

#[test]
fn of_a_hold_that_the_first_copy_ended_is_ok_on_a_server_that_forgot_nothing() {
    // Up for less than it counts.
    let server = RedisServer::start().unwrap();
    let came = answer_lost_with_another_waiting(&server, &server.url(), [Reentrant, Reentrant]);
    assert_eq!(came, None);
    connect(&server).semaphore("y").set_permits(2).unwrap();
    connect(&server).semaphore("x").set_permits(2).unwrap();
    let two = || Permits::of(2).unwrap();
    let came = answer_lost_with_another_waiting(&server, &server.url(), [two(), two()]);
    assert_eq!(came, None);
}

/// Without the right to ask it, the number alone tells: of an exclusive lock that nobody has taken since.
#[test]
fn of_a_hold_that_is_gone_is_unknown_where_redis_may_not_be_asked() {
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    let rules = ["SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info"];
    redis::cmd("ACL").arg(&rules[..]).exec(&mut admin).unwrap();
    let url = server.url().replace("redis://", "redis://app:secret@");
    until_up(&server, 2);
    let came = answer_lost_with_another_waiting(&server, &url, [Reentrant, Reentrant]);
    assert_eq!(came, Some(ErrorKind::OutcomeUnknown));
    let proxy = Proxy::start(server.port()).unwrap();
    let url = proxy.url().replace("redis://", "redis://app:secret@");
    let lock = connected(|| builder(&url)).reentrant_lock("alone");
    drop(lock.lock().unwrap());
    let guard = lock.lock().unwrap();
    proxy.only_matching(b"rc:{alone}");
    proxy.swallow_next_reply_and_reset();
    guard.unlock().unwrap();
    assert!(proxy.struck() >= 1);
}

// ---- lost before ---------------------------------------------------------------------------

#[test]
fn of_each_guard_of_a_lost_hold_is_lost() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let lock = client.reentrant_lock("x");
    // Known by its deadline, and by Redis's word.
    for forced in [false, true] {
        let held = if forced { lock.clone() } else { lock.with_lease(LONG) };
        let outer = held.lock().unwrap();
        let (middle, inner) = (held.lock().unwrap(), held.lock().unwrap());
        if forced {
            assert!(connect(&server).reentrant_lock("x").force_unlock().unwrap().holders > 0);
            outer.renew_for(ms(60_000)).unwrap_err();
        } else {
            // So short only now that all three are there. It may be over by its answer.
            let _ = outer.renew_for(ms(200));
        }
        assert!(outer.lost().wait_timeout(SOON));
        for guard in [inner, middle, outer] {
            let error = guard.unlock().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
        }
        // With all of them gone the thread may come in again.
        drop((lock.lock().unwrap(), lock.lock().unwrap()));
        assert_eq!(recorder.failures(), 0);
    }
    wait_until(LONG, "both losses are told", || recorder.losses() == 2);
}

/// By force, before its client listened: nobody heard the message. The hold is younger than a heartbeat then, or older.
#[test]
fn of_a_hold_that_ended_before_its_client_listened_is_told_as_soon_as_it_does() {
    for is_young in [true, false] {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        // Its renewals are half a minute apart.
        let client = builder(&proxy.url()).lease(ms(90_000));
        let client = if is_young { client.waiter_timeout(ms(9000)) } else { client }.connect().unwrap();
        let guard = client.reentrant_lock("x").lock_owned().unwrap();
        proxy.only_matching(b"SUBSCRIBE");
        if is_young {
            proxy.hold_requests(true);
        } else {
            proxy.black_hole(true);
        }
        let lost = guard.lost();
        assert!(connect(&server).reentrant_lock("x").force_unlock().unwrap().holders > 0);
        assert!(!lost.is_cancelled(), "nobody has told it yet");
        proxy.heal().unwrap();
        assert!(lost.wait_timeout(LONG), "young: {is_young}");
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    }
}

// ---- not run -------------------------------------------------------------------------------

#[test]
fn that_redis_was_too_busy_to_run_is_unavailable_and_done_later() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    let mut admin = server.connection().unwrap();
    redis::cmd("CONFIG").arg("SET").arg("lua-time-limit").arg(50).exec(&mut admin).unwrap();
    thread::scope(|scope| {
        let mut busy = server.connection().unwrap();
        scope.spawn(move || {
            let endless = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut busy);
            endless.unwrap_err();
        });
        wait_until(LONG, "the server is busy", || redis::cmd("PING").query::<String>(&mut admin).is_err());
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let reported = format!("{error:?}");
        assert!(reported.contains("background"), "{reported}");
        redis::cmd("SCRIPT").arg("KILL").exec(&mut admin).unwrap();
    });
    free_at_once(&connect(&server).reentrant_lock("x"));
}

#[test]
fn that_redis_does_not_run_while_it_is_a_replica_is_unavailable() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    let mut admin = server.connection().unwrap();
    // Of a primary that is not there.
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(NOBODYS_PORT).exec(&mut admin).unwrap();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Unavailable);
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut admin).unwrap();
    free_at_once(&connect(&server).reentrant_lock("x"));
}
