//! The rules that keep the protocol safe, each where it shows from outside: on a real server, with
//! a network that fails. The lock state's own part is in `verify/lock_state_tests/`, that of the scripts
//! in `tests/lua/operations.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Commands, Connection, cmd};
use redis_concurrent::kinds::{Kind, Reentrant, Simple};
use redis_concurrent::{CancellationToken, Client, ClientBuilder, ErrorKind, ReentrantLock};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, scripts, wait_until};

use crate::support::{Event, LONG, Recorder, SOON, channels, connected, ms};

/// A server, a proxy before it, a client behind that, and one without.
struct Fixture {
    proxy: Proxy,
    far: Client,
    near: Client,
    redis: Connection,
    // Last, so that the others have somebody to say goodbye to.
    server: RedisServer,
}

/// Short times, but long enough for a busy machine.
fn usual(builder: ClientBuilder) -> ClientBuilder {
    builder.lease(ms(1_500)).waiter_timeout(ms(1_200)).command_timeout(ms(300)).connect_timeout(ms(300))
}

/// Where nothing is waited for that passes by time.
fn unhurried(builder: ClientBuilder) -> ClientBuilder {
    builder.lease(2 * LONG).waiter_timeout(SOON).command_timeout(SOON).connect_timeout(SOON)
}

fn scene_with(set: impl Fn(ClientBuilder) -> ClientBuilder) -> Fixture {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let far = connected(|| set(usual(Client::builder().url(&proxy.url()))));
    let near = Client::builder().url(&server.url()).command_timeout(SOON).connect_timeout(SOON);
    let near = near.connect().unwrap();
    let redis = server.connection().unwrap();
    Fixture { proxy, far, near, redis, server }
}

fn fixture() -> Fixture {
    scene_with(|builder| builder)
}

fn sha(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

/// The names of the reentrant lock's scripts: what a proxy can tell requests apart by.
fn shas() -> (String, String) {
    let made = scripts(Reentrant::RULE).unwrap();
    (sha(&made.acquire), sha(&made.leave))
}

impl Fixture {
    fn lock(&self, client: &Client) -> ReentrantLock {
        client.reentrant_lock("rule")
    }

    /// Each script is known to the server, so that no request needs a second one.
    fn warm_up(&mut self) {
        let lock = self.near.reentrant_lock("warm");
        let guard = lock.lock().unwrap();
        guard.renew_for(LONG).unwrap();
        guard.unlock().unwrap();
    }

    fn owner_inside(&mut self) -> Option<String> {
        self.redis.hget("rc:{rule}", "owner").unwrap()
    }

    fn positions(&mut self) -> Vec<(String, f64)> {
        self.redis.zrange_withscores("rc:{rule}:queue", 0, -1).unwrap()
    }

    fn await_positions(&mut self, n: usize) -> Vec<(String, f64)> {
        eventually(LONG, || Some(self.positions()).filter(|positions| positions.len() == n))
    }

    fn gone(&mut self) -> Vec<String> {
        self.redis.zrange("rc:{rule}:tombstones", 0, -1).unwrap()
    }

    fn fence(&mut self) -> u64 {
        self.redis.get("rc:{rule}:fence").unwrap()
    }
}

// ---- numbers filter messages; unknown ids are ignored --------------------------------------

#[test]
fn a_message_that_was_overtaken_is_not_believed() {
    let mut fixture = fixture();
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
        let owner = fixture.await_positions(1).remove(0).0;
        let channel = format!("rc:inbox:{}", owner.split(':').next().unwrap());
        // No newer than what the waiter was told is the last grant: it lay unread. It is for the
        // waiter's own lease, so that it would be used as it is.
        let number = fixture.fence();
        for stale in [1, number - 1, number] {
            let receivers: i64 = fixture.redis.publish(&channel, format!("{owner} in {stale} 1500")).unwrap();
            assert_eq!(receivers, 1);
        }
        for strange in ["", "in", "x:1 in", "not a message", &format!("{owner}0 in {} 30000", number + 9)] {
            let _: i64 = fixture.redis.publish(&channel, strange).unwrap();
        }
        // It goes on beating, under its id.
        let before = fixture.server.command_calls().unwrap()["evalsha"];
        wait_until(LONG, "it sends heartbeats", || {
            waiter.is_finished() || fixture.server.command_calls().unwrap()["evalsha"] > before + 2
        });
        assert!(!waiter.is_finished(), "it believed that it holds");
        // (Waited for: one that was silent for too long has to ask again.)
        let positions: Vec<_> = fixture.await_positions(1).into_iter().map(|(owner, _)| owner).collect();
        assert_eq!(positions, [owner]);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
}

/// Whoever may publish and knows an owner id may lie to its waiter, but not for long.
#[test]
fn a_forged_message_is_worth_no_more_than_a_first_lease() {
    for fixed in [None, Some(LONG)] {
        let mut fixture = scene_with(|builder| builder.lease(3 * LONG));
        let held = fixture.lock(&fixture.near);
        let waits =
            fixed.map_or(fixture.lock(&fixture.far), |lease| fixture.lock(&fixture.far).with_lease(lease));
        let guard = held.lock().unwrap();
        let believes = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let forged = waits.try_lock_for(LONG).unwrap().unwrap();
                believes.store(true, Ordering::SeqCst);
                assert!(forged.remaining() <= ms(1_200), "{fixed:?}: {:?}", forged.remaining());
                wait_until(SOON, "it learns that it holds nothing", || forged.is_lost());
            });
            let owner = fixture.await_positions(1).remove(0).0;
            let channel = format!("rc:inbox:{}", owner.split(':').next().unwrap());
            for beyond in [1 << 52, (1 << 53) - 1, u64::MAX] {
                let _: i64 = fixture.redis.publish(&channel, format!("{owner} in {beyond} 3600000")).unwrap();
            }
            let before = fixture.server.command_calls().unwrap()["evalsha"];
            wait_until(LONG, "it sends a heartbeat", || {
                waiter.is_finished() || fixture.server.command_calls().unwrap()["evalsha"] > before
            });
            assert_eq!(fixture.positions().len(), 1, "{fixed:?}: no token has such a number");
            let number = fixture.fence() + 1;
            // Again and again: one that is read a second late is worth nothing.
            wait_until(SOON, "it believes it", || {
                let message = format!("{owner} in {number} 3600000");
                let _: i64 = fixture.redis.publish(&channel, message).unwrap();
                believes.load(Ordering::SeqCst)
            });
            waiter.join().unwrap();
        });
        assert!(!guard.is_lost() && guard.unlock().is_ok());
    }
}

#[test]
fn an_owner_id_is_not_guessed() {
    let mut fixture = fixture();
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.try_lock_for(LONG).unwrap().map(|held| held.token() >> 12));
        let owner = fixture.await_positions(1).remove(0).0;
        let uuid = owner.split(':').next().unwrap();
        let number = fixture.fence() + 1;
        for guess in 0..100 * 4 {
            let n: u64 = (guess / 4) * (1 << 22) + guess % 4;
            for message in ["in", "again", "no:strange", "no:forced", "listen"] {
                let text = format!("{uuid}:{n} {message} {number} 60000 rc:guessed");
                let _: i64 = fixture.redis.publish(format!("rc:inbox:{uuid}"), text).unwrap();
            }
        }
        let before = fixture.server.command_calls().unwrap()["evalsha"];
        wait_until(LONG, "it sends heartbeats", || {
            waiter.is_finished() || fixture.server.command_calls().unwrap()["evalsha"] > before + 1
        });
        assert!(!waiter.is_finished(), "it believed one of them");
        let strange: Vec<_> =
            channels(&fixture.server).into_iter().filter(|it| !it.starts_with("rc:inbox:")).collect();
        assert!(strange.is_empty(), "{strange:?}");
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap() > number);
    });
}

#[test]
fn a_lock_makes_its_client_listen_to_one_channel_of_others() {
    let mut fixture = fixture();
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.try_lock_for(LONG).unwrap().is_some());
        let owner = fixture.await_positions(1).remove(0).0;
        let channel = format!("rc:inbox:{}", owner.split(':').next().unwrap());
        for n in 0..1_000 {
            let text = format!("{owner} listen 0 3600000 rc:strange-{n}");
            let _: i64 = fixture.redis.publish(&channel, text).unwrap();
        }
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
    // With the second one, by which scripts tell the library's subscribers from others, and the one that it replaces.
    // (The holder's client listens to its own inbox, too, if it has held for longer than a heartbeat.)
    let others = || channels(&fixture.server).iter().filter(|it| it.contains("strange")).count();
    assert!(others() <= 3, "{:?}", channels(&fixture.server));
    wait_until(LONG, "it listens there for a waiter timeout", || others() == 0);
}

// ---- a new owner id each grant; the next head inherits the ask ----------------------------

#[test]
fn each_grant_has_an_owner_id_of_its_own() {
    let mut fixture = fixture();
    let lock = fixture.lock(&fixture.near);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let guard = lock.lock().unwrap();
        seen.push(fixture.owner_inside().unwrap());
        guard.unlock().unwrap();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);
}

#[test]
fn the_next_head_inherits_the_position() {
    let mut fixture = fixture();
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let (guard, cancel) = (held.lock_owned().unwrap(), CancellationToken::new());
    thread::scope(|scope| {
        let head = scope.spawn(|| waits.lock_interruptibly(&cancel).map(drop));
        let position = fixture.await_positions(1);
        let second = scope.spawn(|| waits.try_lock_for(2 * LONG).map(|held| held.is_some()));
        wait_until(LONG, "both wait", || waits.local_queue_length() == 2);
        cancel.cancel();
        assert!(head.join().unwrap().unwrap_err().is_cancelled());
        let before = fixture.server.command_calls().unwrap()["evalsha"];
        // Sooner than the holder has renewed twice, every ten seconds.
        wait_until(3 * SOON, "it sends heartbeats", || {
            fixture.server.command_calls().unwrap()["evalsha"] > before + 1
        });
        assert_eq!(fixture.await_positions(1), position, "the same id, where it was");
        guard.unlock().unwrap();
        assert!(second.join().unwrap().unwrap());
    });
}

// ---- heartbeats keep, they never create ---------------------------------------------------------

#[test]
fn a_position_that_was_lost_is_asked_for_anew_under_the_same_id_and_arrival() {
    let mut fixture = fixture();
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
        let position = fixture.await_positions(1);
        let _: () = fixture.redis.del(&["rc:{rule}:queue", "rc:{rule}:positions"]).unwrap();
        assert_eq!(fixture.await_positions(1), position);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
}

// ---- tombstones ----------------------------------------------------------------------------

#[test]
fn a_late_copy_of_an_ask_does_not_come_in() {
    let mut fixture = fixture();
    fixture.warm_up();
    let lock = fixture.lock(&fixture.far);
    fixture.proxy.only_matching(shas().0.as_bytes());
    fixture.proxy.hold_next_requests(1);
    let error = lock.try_lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Its id gets a tombstone in the background, then its request arrives.
    wait_until(LONG, "a tombstone", || fixture.gone().len() == 1);
    assert_eq!(fixture.proxy.held(), 1);
    fixture.proxy.release_held();
    let before = fixture.server.command_calls().unwrap()["evalsha"];
    wait_until(LONG, "it is passed on", || fixture.proxy.held() == 0);
    wait_until(LONG, "it has run", || fixture.server.command_calls().unwrap()["evalsha"] >= before);
    // The next caller finds the lock free, and stays in.
    let other = fixture.lock(&fixture.near);
    let guard = other.try_lock().unwrap().expect("nobody holds it");
    assert!(fixture.owner_inside().is_some());
    guard.unlock().unwrap();
    let ttl: i64 = fixture.redis.pttl("rc:{rule}:tombstones").unwrap();
    assert!(ttl > 0 && ttl <= 60_000, "{ttl}");
}

#[test]
fn an_answer_that_was_lost_is_asked_for_again_under_the_same_id() {
    let mut fixture = scene_with(unhurried);
    fixture.warm_up();
    let lock = fixture.lock(&fixture.far);
    fixture.proxy.only_matching(shas().0.as_bytes());
    fixture.proxy.swallow_next_reply_and_reset();
    let guard = lock.try_lock().unwrap().expect("the second copy finds itself inside");
    assert_eq!(fixture.proxy.struck(), 1);
    let number = fixture.fence();
    assert_eq!(guard.token() >> 12, number, "one grant, not two");
    guard.unlock().unwrap();
    assert_eq!(fixture.owner_inside(), None);
}

// ---- leave = release + abandon -------------------------------------------------------------

#[test]
fn a_release_whose_answer_was_lost_is_good() {
    let mut fixture = scene_with(unhurried);
    fixture.warm_up();
    let lock = fixture.lock(&fixture.far);
    let guard = lock.lock().unwrap();
    fixture.proxy.only_matching(shas().1.as_bytes());
    fixture.proxy.swallow_next_reply_and_reset();
    // The second copy is answered "not inside": the first did its work.
    guard.unlock().unwrap();
    assert_eq!(fixture.proxy.struck(), 1);
    assert_eq!(fixture.owner_inside(), None);
}

#[test]
fn a_release_without_an_answer_is_unknown_and_goes_on() {
    let mut fixture = scene_with(|b| b.lease(Duration::from_secs(30)));
    fixture.warm_up();
    let lock = fixture.lock(&fixture.far);
    let guard = lock.lock().unwrap();
    let owner = fixture.owner_inside().unwrap();
    fixture.proxy.only_matching(shas().1.as_bytes());
    fixture.proxy.black_hole(true);
    let start = Instant::now();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
    assert_eq!(fixture.owner_inside(), Some(owner.clone()));
    fixture.proxy.heal().unwrap();
    wait_until(LONG, "it is out, long before its lease", || fixture.owner_inside().is_none());
    assert_eq!(fixture.gone(), [owner]);
}

#[test]
fn an_orphaned_ask_for_the_next_head_leaves_nothing() {
    let mut fixture = scene_with(unhurried);
    fixture.warm_up();
    let (lock, other) = (fixture.lock(&fixture.far), fixture.lock(&fixture.near));
    let cancel = CancellationToken::new();
    let guard = lock.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock_interruptibly(&cancel).map(drop));
        wait_until(LONG, "it waits", || lock.local_queue_length() == 1);
        // The hand-off period is over long since: the leave asks for the waiter.
        thread::sleep(ms(5));
        fixture.proxy.only_matching(shas().1.as_bytes());
        fixture.proxy.hold_next_requests(1);
        let release = scope.spawn(|| guard.unlock());
        wait_until(LONG, "the leave is on its way", || fixture.proxy.held() == 1);
        cancel.cancel();
        assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
        fixture.proxy.heal().unwrap();
        release.join().unwrap().unwrap();
    });
    assert!(other.try_lock_for(Duration::from_secs(5)).unwrap().is_some(), "well before a lease is over");
    assert!(fixture.positions().is_empty());
}

// ---- losses --------------------------------------------------------------------------------

#[test]
fn lost_by_the_deadline_is_given_back_in_redis() {
    let mut fixture = scene_with(|b| b.lease(ms(1_200)));
    fixture.warm_up();
    let lock = fixture.lock(&fixture.far);
    // (Again where the machine stood still for a lease.)
    let (guard, owner) = eventually(LONG, || {
        let guard = lock.lock().unwrap();
        fixture.owner_inside().map(|owner| (guard, owner))
    });
    let lost = guard.lost();
    // Its renewals arrive, their answers do not: Redis keeps it for ever, if nobody leaves.
    fixture.proxy.only_matching(owner.as_bytes());
    fixture.proxy.swallow_replies(usize::MAX);
    assert!(lost.wait_timeout(LONG));
    wait_until(LONG, "it has left, with a tombstone", || fixture.gone().contains(&owner));
    assert_eq!(fixture.owner_inside(), None);
    assert!(guard.unlock().unwrap_err().is_lease_lost());
}

#[test]
fn lost_by_verdict_sends_nothing() {
    // A renewal finds out, long before the lease is over.
    let mut fixture = scene_with(|b| b.lease(2 * LONG).renew_every(ms(300)));
    let lock = fixture.lock(&fixture.far);
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let _: () = fixture.redis.del("rc:{rule}").unwrap();
    assert!(lost.wait_timeout(LONG));
    let before = fixture.far.request_count();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(fixture.far.request_count(), before);
    assert!(fixture.gone().is_empty());
}

#[test]
fn io_errors_alone_do_not_end_a_hold() {
    let mut fixture = scene_with(|b| unhurried(b).renew_every(ms(100)));
    let lock = fixture.lock(&fixture.far);
    let guard = lock.lock().unwrap();
    let owner = fixture.owner_inside();
    for _ in 0..3 {
        fixture.proxy.cut_all();
        let seen = fixture.proxy.connections();
        wait_until(LONG, "it connects again", || fixture.proxy.connections() > seen);
    }
    assert!(!guard.is_lost());
    assert_eq!(fixture.owner_inside(), owner);
    guard.unlock().unwrap();
}

// ---- the timer beside the inbox ------------------------------------------------------------

/// Its heartbeats are so far apart.
fn asks_each_second(builder: ClientBuilder) -> ClientBuilder {
    builder.lease(2 * LONG).waiter_timeout(ms(3000))
}

#[test]
fn a_message_that_got_lost_costs_one_bounded_park() {
    let mut fixture = scene_with(asks_each_second);
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
        fixture.await_positions(1);
        // The connection stands, so the server counts a listener; no message of it arrives.
        fixture.proxy.swallow_replies_with(b"message");
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
        // The proxy may come to it after the waiter has asked for itself.
        wait_until(LONG, "the message is lost", || fixture.proxy.struck() >= 1);
    });
}

#[test]
fn a_grant_that_was_taken_away_before_it_was_heard_is_asked_for_anew() {
    let mut fixture = scene_with(asks_each_second);
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    fixture.proxy.swallow_replies_with(b"message");
    let mut is_taken_away = || {
        let guard = held.lock_owned().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
            let owner = fixture.await_positions(1).remove(0).0;
            guard.unlock().unwrap();
            let granted = fixture.owner_inside() == Some(owner);
            let taken = granted && held.force_unlock().unwrap().holders > 0;
            assert!(waiter.join().unwrap().unwrap(), "it takes a new id, and comes in");
            taken
        })
    };
    // (Again where a busy machine let it ask for itself before.)
    assert!((0..5).any(|_| is_taken_away()), "granted, and not heard");
    // In two chunks, or in one if the proxy came to it late.
    wait_until(LONG, "both messages are lost", || fixture.proxy.struck() >= 1);
}

// ---- renewal: no server at another's cost --------------------------------------------------

#[test]
fn one_servers_silence_costs_anothers_leases_nothing() {
    let (silent, lively) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let slow = Client::builder().url(&silent.url()).lease(Duration::from_secs(20)).renew_every(ms(150));
    let slow = slow.command_timeout(Duration::from_secs(3)).connect().unwrap();
    let recorder = Recorder::default();
    let quick = Client::builder().url(&lively.url()).lease(2 * LONG).renew_every(ms(300));
    let quick = quick.observer(recorder.clone()).connect().unwrap();
    let (far, near) = (slow.reentrant_lock("far"), quick.reentrant_lock("near"));
    let (_kept, guard) = (far.lock_owned().unwrap(), near.lock().unwrap());
    let before = slow.request_count();
    wait_until(LONG, "it renews, on a connection that stands", || slow.request_count() > before + 3);
    silent.stop().unwrap();
    let renewals = recorder.count(Event::Renewed);
    // Requests to the other server wait for their limit meanwhile: after each of them there would be too few.
    wait_until(LONG, "it is renewed all the same", || recorder.count(Event::Renewed) > renewals + 10);
    silent.cont().unwrap();
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
}

// ---- the clock and the fence ---------------------------------------------------------------

#[test]
fn tokens_rise_when_redis_has_lost_everything() {
    let fixture = fixture();
    let lock = fixture.lock(&fixture.near);
    let before = lock.lock().unwrap().token();
    fixture.server.flush_all().unwrap();
    let after = lock.lock().unwrap().token();
    assert!(after > before, "{after} after {before}");
}

/// Another program wrote the last number.
#[test]
fn a_number_that_no_token_can_have_is_refused() {
    let mut fixture = fixture();
    let (lock, fence) = (fixture.lock(&fixture.near), "rc:{rule}:fence");
    for beyond in ["4503599627370495", "9007199254740991", "1e300"] {
        let _: () = fixture.redis.set(fence, beyond).unwrap();
        let error = lock.try_lock().map(|guard| guard.map(|guard| guard.token())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{beyond}: {error}");
        assert!(error.to_string().contains(fence), "{error}");
        assert_eq!(
            fixture.redis.get::<_, String>(fence).unwrap(),
            beyond,
            "the next caller learns of it, too"
        );
    }
    let _: () = fixture.redis.set(fence, (1u64 << 52) - 2).unwrap();
    assert_eq!(lock.lock().unwrap().token(), u64::MAX << 12, "the last one");
    assert_eq!(lock.try_lock().map(drop).unwrap_err().kind(), ErrorKind::Protocol);
    fixture.redis.del::<_, ()>(fence).unwrap();
    // As it is while a lock is held, whose number is the last one.
    let simple = fixture.near.simple_lock("rule");
    let receipt = simple.lock_owned().unwrap().into_receipt().unwrap();
    let _: () = fixture.redis.set(fence, 1u64 << 52).unwrap();
    assert_eq!(fixture.far.adopt::<Simple>(&receipt).map(drop).unwrap_err().kind(), ErrorKind::Protocol);
    wait_until(SOON, "what was granted under it is given back", || !simple.is_locked().unwrap());
}

#[test]
fn a_full_redis_lets_holders_out() {
    let mut fixture = scene_with(unhurried);
    let (held, waits) = (fixture.lock(&fixture.near), fixture.lock(&fixture.far));
    let guard = held.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let held = waits.try_lock_for(LONG)?.expect("it is granted");
            held.unlock()
        });
        fixture.await_positions(1);
        let _: () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query(&mut fixture.redis).unwrap();
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    let error = held.try_lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let _: () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).query(&mut fixture.redis).unwrap();
    assert!(held.try_lock().unwrap().is_some());
}
