//! Receipts: a hold goes from one process to another, once, with its token.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::admin::HeldBy;
use redis_concurrent::kinds::{Kind, Permits, Read, Reentrant, Sharing, Simple};
use redis_concurrent::observe::AcquiredVia;
use redis_concurrent::{Client, Error, ErrorKind, OwnedGuard, Receipt, RedisLock};
use redis_concurrent_testkit::*;

use crate::bulkhead::Bulkhead;
use crate::support::*;

fn on_paper<K: Kind>(guard: OwnedGuard<K>) -> Receipt {
    // By way of its text, as it goes.
    guard.into_receipt().unwrap().to_string().parse().unwrap()
}

fn fails_with<T>(outcome: Result<T, Error>, kind: ErrorKind) {
    match outcome {
        Err(error) => assert_eq!((error.kind(), error.name()), (kind, "it"), "{error}"),
        Ok(_) => panic!("it should say {kind:?}"),
    }
}

/// What is so for each kind that can.
fn it_goes_over_once<K: Kind + Default>(
    make: impl Fn(&Client) -> RedisLock<K>,
    token: impl Fn(&OwnedGuard<K>) -> u64,
) {
    let server = RedisServer::start().unwrap();
    let (recorder_here, recorder_there) = (Recorder::default(), Recorder::default());
    // Renewed often, but long enough for a busy machine while nobody renews it.
    let brisk = |recorder: &Recorder| {
        connected(|| unhurried(&server.url()).lease(LONG).renew_every(ms(300)).observer(recorder.clone()))
    };
    let (here, there, third) = (brisk(&recorder_here), brisk(&recorder_there), connect(&server));
    let (mine, theirs, others) = (make(&here), make(&there), make(&third));
    let guard = mine.lock_owned().unwrap();
    let (before, number) = (others.holder().unwrap().unwrap().owner, token(&guard));
    let receipt = on_paper(guard);
    assert_eq!((receipt.kind(), receipt.name()), (K::NAME, "it"));
    assert!(recorder_here.all().contains(&Event::Released));
    let renewed = recorder_here.count(Event::Renewed);
    assert!(others.try_lock().unwrap().is_none(), "nobody has it in hands, but it is held");

    let guard = there.adopt::<K>(&receipt).unwrap();
    assert_eq!(token(&guard), number);
    assert_eq!(recorder_there.all().first(), Some(&Event::Acquired(AcquiredVia::Adopted)));
    let after = others.holder().unwrap().unwrap().owner;
    assert_ne!(after, before);
    assert!(in_brief(theirs.try_lock_for(ms(1))).is_none() && mine.try_lock().unwrap().is_none());
    for client in [&here, &there, &third] {
        fails_with(client.adopt::<K>(&receipt), ErrorKind::NotOwner);
    }
    // Renewed there, and there alone.
    wait_until(LONG, "it is renewed several times", || {
        assert!(others.try_lock().unwrap().is_none() && !guard.is_lost());
        recorder_there.count(Event::Renewed) > 4
    });
    // (One may have been on its way.)
    assert!(
        recorder_here.count(Event::Renewed) <= renewed + 1 && recorder_here.losses() == 0,
        "{:?}",
        recorder_here.all()
    );
    // And on, from there.
    let guard = here.adopt::<K>(&on_paper(guard)).unwrap();
    assert_eq!(token(&guard), number);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| others.lock_owned().unwrap());
        wait_until(LONG, "one waits", || mine.queue_length().unwrap() == 1);
        guard.unlock().unwrap();
        let next = waiter.join().unwrap();
        assert!(token(&next) > number || K::SHARING == Sharing::Shared);
    });
    assert!(!mine.is_locked().unwrap());
    fails_with(there.adopt::<K>(&receipt), ErrorKind::NotOwner);
}

#[test]
fn what_was_revoked_on_its_way_is_not_adopted() {
    let server = RedisServer::start().unwrap();
    let [here, there, operator] = [(); 3].map(|()| connect(&server));
    let receipt = on_paper(here.reentrant_lock("it").with_lease(ms(60_000)).lock_owned().unwrap());
    let lock = operator.reentrant_lock("it");
    assert_eq!(lock.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().holders, 1);
    let left = lock.holder().unwrap().and_then(|it| it.remaining).unwrap();
    fails_with(there.adopt::<Reentrant>(&receipt), ErrorKind::NotOwner);
    assert!(
        lock.is_locked().unwrap() && lock.holder().unwrap().and_then(|it| it.remaining).unwrap() <= left,
        "until its lease is over"
    );
}

#[test]
fn it_goes_over_once_of_a_simple_lock() {
    it_goes_over_once(|client| client.simple_lock("it"), |guard| guard.token());
}

#[test]
fn it_goes_over_once_of_a_reentrant_lock() {
    it_goes_over_once(|client| client.reentrant_lock("it"), |guard| guard.token());
}

#[test]
fn it_goes_over_once_of_a_write_lock() {
    it_goes_over_once(|client| client.read_write_lock("it").write_lock().clone(), |guard| guard.token());
}

#[test]
fn a_read_lock_goes_over_and_knows_the_last_write() {
    let server = RedisServer::start().unwrap();
    let [here, there, third] = [(); 3].map(|()| connect(&server));
    let locks = [&here, &there, &third].map(|client| client.read_write_lock("it"));
    drop(locks[2].write_lock().lock().unwrap());
    let guard = locks[0].read_lock().lock_owned().unwrap();
    let write = guard.value();
    assert!(write > 0);
    let receipt = on_paper(guard);
    assert!(locks[2].write_lock().try_lock().unwrap().is_none(), "it is read");
    let guard = there.adopt::<Read>(&receipt).unwrap();
    assert_eq!(guard.value(), write);
    assert_eq!(locks[1].read_count().unwrap(), 1);
    fails_with(third.adopt::<Read>(&receipt), ErrorKind::NotOwner);
    // Others read beside it, and it goes by itself.
    drop(locks[0].read_lock().lock().unwrap());
    drop(locks[1].read_lock().lock().unwrap());
    assert!(locks[2].write_lock().try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    assert!(locks[2].write_lock().try_lock().unwrap().is_some());
    // One that other threads share stays where it is.
    let client = connected(|| builder(&server.url()).local_handoff(LONG));
    let lock = client.read_write_lock("it");
    let (one, other) = (lock.read_lock().lock_owned().unwrap(), lock.read_lock().lock_owned().unwrap());
    fails_with(one.into_receipt(), ErrorKind::Refused);
    other.unlock().unwrap();
    assert!(locks[2].write_lock().try_lock().unwrap().is_some());
}

#[test]
fn it_goes_over_once_of_a_semaphore() {
    let make = |client: &Client| {
        let semaphore = client.semaphore("it");
        semaphore.try_set_permits(3).unwrap();
        client.lock_with_kind("it", Permits::of(2).unwrap())
    };
    it_goes_over_once(make, |guard| guard.permits().into());
}

#[test]
fn a_token_has_its_hand_overs_with_it() {
    let server = RedisServer::start().unwrap();
    let here = connected(|| builder(&server.url()).local_handoff(LONG));
    let lock = here.reentrant_lock("it");
    let first = lock.lock_owned().unwrap();
    let (token, guard) = thread::scope(|scope| {
        let next = scope.spawn(|| lock.lock_owned().unwrap());
        wait_until(LONG, "one waits", || lock.local_queue_length() == 1);
        let token = first.token();
        first.unlock().unwrap();
        (token, next.join().unwrap())
    });
    assert_eq!(guard.token(), token + 1, "from hand to hand");
    let there = connect(&server).adopt::<Reentrant>(&on_paper(guard)).unwrap();
    assert_eq!(there.token(), token + 1);
}

/// Whatever the text says, altered with care: nothing in it is a token, or part of one that others compare.
#[test]
fn the_token_is_what_redis_has() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    for n in [1, 1_000_000_000_000] {
        let guard = here.reentrant_lock("it").lock_owned().unwrap();
        let token = guard.token();
        let text = guard.into_receipt().unwrap().to_string();
        let altered = text.replace(&(token >> 12).to_string(), &((token >> 12) + n).to_string());
        let guard = there.adopt::<Reentrant>(&with_checksum(&altered)).unwrap();
        assert_eq!(guard.token(), token);
        guard.unlock().unwrap();
    }
}

/// The receipt of this text, whose last part is not right: the CRC of Redis's slots.
fn with_checksum(text: &str) -> Receipt {
    let (text, _) = text.rsplit_once('.').unwrap();
    let shifted = |sum: u16| if sum >= 0x8000 { (sum << 1) ^ 0x1021 } else { sum << 1 };
    let sum =
        text.bytes().fold(0, |sum, byte| (0..8).fold(sum ^ (u16::from(byte) << 8), |sum, _| shifted(sum)));
    format!("{text}.{sum:04x}").parse().unwrap()
}

#[test]
fn what_a_permit_has_stays_with_it() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let semaphore = here.semaphore("it");
    semaphore.set_permits(7).unwrap();
    let _two = semaphore.acquire(2).unwrap();
    let receipt = semaphore.drain().unwrap().unwrap().into_receipt().unwrap();
    let receipt = receipt.to_string().parse().unwrap();
    assert_eq!(semaphore.available().unwrap(), 0);
    let mut permit = there.adopt::<Permits>(&receipt).unwrap();
    assert_eq!((permit.permits(), semaphore.available().unwrap()), (5, 0));
    permit.release_some(1).unwrap();
    assert_eq!((permit.permits(), semaphore.available().unwrap()), (4, 1));
    permit.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 5);
}

#[test]
fn between_two_processes_nobody_renews() {
    let server = RedisServer::start().unwrap();
    let there = connect(&server);
    let theirs = there.simple_lock("it");
    let is_kept = |lease| {
        let here = connected(|| builder(&server.url()).lease(lease));
        let Ok(receipt) = here.simple_lock("it").lock_owned().unwrap().into_receipt() else { return false };
        let left = theirs.holder().unwrap().and_then(|it| it.remaining);
        assert!(left <= Some(lease + ms(1)), "{left:?}");
        let guard = theirs.try_lock_for(LONG).unwrap().expect("the lease has ended");
        fails_with(there.adopt::<Simple>(&receipt), ErrorKind::NotOwner);
        assert!(!guard.is_lost());
        left > Some(lease / 2)
    };
    // (The second where the first was over before a busy machine came to it.)
    assert!([ms(600), 2 * SOON].into_iter().any(is_kept), "it is held for what is left of its lease");
}

#[test]
fn a_fixed_lease_stays_one() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connected(|| builder(&server.url()).lease(ms(600))));
    let fixed = here.reentrant_lock("it").with_lease(ms(900));
    // (Again where it was over before it was adopted.)
    let (began, guard) = eventually(LONG, || {
        let began = Instant::now();
        let receipt = fixed.lock_owned().unwrap().into_receipt().ok()?;
        let receipt = receipt.to_string().parse().unwrap();
        there.adopt::<Reentrant>(&receipt).ok().map(|guard| (began, guard))
    });
    assert!(guard.remaining() <= ms(900));
    assert!(guard.lost().wait_timeout(LONG), "it ends by itself");
    assert!(began.elapsed() >= ms(700), "after {:?}", began.elapsed());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
}

#[test]
fn a_lost_hold_has_no_receipt() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let lock = here.reentrant_lock("it");
    let brief = lock.with_lease(ms(1000)).lock_owned().unwrap();
    wait_until(LONG, "it has ended", || brief.is_lost());
    fails_with(brief.into_receipt(), ErrorKind::LeaseLost);
    wait_until(LONG, "and left, as it may have been there yet", || exists(&server, "rc:{it}:tombstones"));
    // Of what is lost without our knowing, Redis tells.
    let taken = lock.lock_owned().unwrap();
    assert!(delete(&server, "rc:{it}"));
    fails_with(taken.into_receipt(), ErrorKind::LeaseLost);
    // Taken away while it was on paper.
    let receipt = on_paper(lock.lock_owned().unwrap());
    assert!(there.reentrant_lock("it").force_unlock().unwrap().holders > 0);
    fails_with(there.adopt::<Reentrant>(&receipt), ErrorKind::NotOwner);
    let closed = lock.lock_owned().unwrap();
    here.close().unwrap();
    fails_with(closed.into_receipt(), ErrorKind::Closed);
    assert!(!there.reentrant_lock("it").is_locked().unwrap());
}

#[test]
fn a_kind_takes_its_own_receipts_only() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let receipt = on_paper(here.reentrant_lock("it").lock_owned().unwrap());
    let requests = there.request_count();
    fails_with(there.adopt::<Simple>(&receipt), ErrorKind::WrongType);
    fails_with(there.adopt::<Permits>(&receipt), ErrorKind::WrongType);
    assert_eq!(there.request_count(), requests, "nothing is sent for that");
    let guard = there.adopt::<Reentrant>(&receipt).unwrap();
    guard.unlock().unwrap();
    // Whatever a receipt says, the key decides.
    let receipt = on_paper(here.simple_lock("it").lock_owned().unwrap());
    assert!(delete(&server, "rc:{it}"));
    let _other = here.reentrant_lock("it").lock_owned().unwrap();
    fails_with(there.adopt::<Simple>(&receipt), ErrorKind::WrongType);
}

#[test]
fn a_rule_that_cannot_says_so_and_the_hold_is_given_back() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.lock_with_kind("it", Bulkhead::default());
    fails_with(lock.lock_owned().unwrap().into_receipt(), ErrorKind::InvalidInput);
    assert!(!lock.is_locked().unwrap());
    let receipt = on_paper(client.simple_lock("it").lock_owned().unwrap()).to_string();
    let receipt = with_checksum(&receipt.replace("simple%20lock", "bulkhead"));
    fails_with(client.adopt::<Bulkhead>(&receipt), ErrorKind::InvalidInput);
}

#[test]
fn the_waiters_here_wait_on() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let lock = here.reentrant_lock("it");
    let guard = lock.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> =
            (0..2).map(|_| scope.spawn(|| lock.lock().map(|g| g.token()).unwrap())).collect();
        wait_until(LONG, "two wait", || lock.local_queue_length() == 2);
        let receipt = on_paper(guard);
        wait_until(LONG, "one of them in Redis", || exists(&server, "rc:{it}:queue"));
        // Adopted by the very client whose threads wait for it, and by another.
        let guard = here.adopt::<Reentrant>(&receipt).unwrap();
        assert_eq!(lock.local_queue_length(), 2);
        let guard = there.adopt::<Reentrant>(&on_paper(guard)).unwrap();
        let guard = here.adopt::<Reentrant>(&on_paper(guard)).unwrap();
        let token = guard.token();
        guard.unlock().unwrap();
        for waiter in waiters {
            assert!(waiter.join().unwrap() > token);
        }
    });
    nothing_left(&server);
}

#[test]
fn a_client_that_closes_gives_back_what_it_adopted() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let receipt = on_paper(here.simple_lock("it").lock_owned().unwrap());
    let guard = there.adopt::<Simple>(&receipt).unwrap();
    there.close().unwrap();
    assert!(guard.is_lost());
    assert!(!here.simple_lock("it").is_locked().unwrap());
    fails_with(there.adopt::<Simple>(&receipt), ErrorKind::Closed);
}

// ---- answers that do not come --------------------------------------------------------------

struct Fixture {
    server: RedisServer,
    proxy: Proxy,
    /// Through the proxy.
    client: Client,
    other: RedisLock<Reentrant>,
    receipt: Receipt,
}

/// A request may take so long; Redis knows the scripts.
fn fixture(command_timeout: Duration) -> Fixture {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(command_timeout));
    let straight = connect(&server);
    // What is swallowed later is then the answer of a run of one.
    let another = on_paper(straight.reentrant_lock("another").lock_owned().unwrap());
    straight.adopt::<Reentrant>(&another).unwrap().unlock().unwrap();
    let receipt = on_paper(straight.reentrant_lock("it").lock_owned().unwrap());
    proxy.only_matching(b"rc:{it}");
    Fixture { server, proxy, client, other: straight.reentrant_lock("it"), receipt }
}

#[test]
fn an_answer_lost_with_its_connection_is_asked_for_again() {
    let Fixture { server, proxy, client, other, receipt } = fixture(SOON);
    proxy.swallow_next_reply_and_reset();
    let guard = client.adopt::<Reentrant>(&receipt).unwrap();
    assert!(proxy.struck() >= 1);
    assert!(!guard.is_lost());
    assert!(other.try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    free_at_once(&other);
    nothing_left(&server);
}

#[test]
fn an_adoption_without_an_answer_is_unknown_and_released() {
    let Fixture { server, proxy, client, other, receipt } = fixture(ms(1000));
    proxy.swallow_replies(1);
    fails_with(client.adopt::<Reentrant>(&receipt), ErrorKind::OutcomeUnknown);
    assert_eq!(proxy.struck(), 1);
    wait_until(SOON, "released in the background", || !other.is_locked().unwrap());
    fails_with(client.adopt::<Reentrant>(&receipt), ErrorKind::NotOwner);
    nothing_left(&server);
}

#[test]
fn a_late_copy_of_an_adoption_takes_nothing() {
    let Fixture { server, proxy, client, other, receipt } = fixture(ms(1000));
    proxy.hold_next_requests(1);
    fails_with(client.adopt::<Reentrant>(&receipt), ErrorKind::OutcomeUnknown);
    wait_until(SOON, "its owner has a tombstone", || exists(&server, "rc:{it}:tombstones"));
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    assert!(other.is_locked().unwrap(), "the hold is on its receipt still");
    let guard = client.adopt::<Reentrant>(&receipt).unwrap();
    guard.unlock().unwrap();
    free_at_once(&other);
}

/// It was asked for twice before it was there, and the first copy comes when it has gone over and has ended.
#[test]
fn a_late_copy_of_the_ask_for_what_went_over_takes_nothing() {
    let Fixture { server, proxy, client, .. } = fixture(SOON);
    let lock = client.reentrant_lock("later");
    drop(lock.lock().unwrap());
    proxy.only_matching(b"rc:{later}");
    proxy.hold_next_requests(1);
    let guard = thread::scope(|scope| {
        let asks = scope.spawn(|| lock.lock_owned().unwrap());
        wait_until(SOON, "its request is held", || proxy.held() == 1);
        proxy.cut_all();
        asks.join().unwrap()
    });
    let adopted = connect(&server).adopt::<Reentrant>(&on_paper(guard)).unwrap();
    adopted.unlock().unwrap();
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    // Redis has run it when it has answered something that came later.
    free_at_once(&connect(&server).reentrant_lock("later"));
    assert!(!exists(&server, "rc:{later}"), "it is held by nobody");
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_adopter() {
    if !is_role("receipts::role_adopter") {
        return;
    }
    let receipt: Receipt = hear_parent().unwrap().unwrap().parse().unwrap();
    let guard = connected(|| builder(&env("URL"))).adopt::<Reentrant>(&receipt).unwrap();
    tell_parent(&guard.token().to_string()).unwrap();
    hear_parent().unwrap();
    guard.unlock().unwrap();
}

#[test]
fn another_process_goes_on_when_the_first_is_gone() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("it");
    let guard = lock.lock_owned().unwrap();
    let token = guard.token();
    let receipt = on_paper(guard).to_string();
    client.close().unwrap();
    let mut child = Child::spawn("receipts::role_adopter", &[("URL", &server.url())]).unwrap();
    child.say(&receipt).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), token.to_string());
    let other = connect(&server).reentrant_lock("it");
    let pid = other.holder().unwrap().and_then(|h| h.process).map(|p| p.pid);
    assert_eq!(pid, Some(child.pid()));
    child.say("end").unwrap();
    assert!(child.wait_within(LONG).unwrap().success());
    free_at_once(&other);
}
