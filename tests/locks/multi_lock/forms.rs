//! Every way in and out, with locks of every kind.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::kinds::{Permits, Reentrant, Simple};
use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent::{
    CancellationToken, Client, ErrorKind, Lock, LockGuard, Member, MultiLock, OwnedGuard, Wait,
};
use redis_concurrent_testkit::{Proxy, wait_until};

use crate::multi_lock::fixture::{Fixture, locks, multi};
use crate::support::{LONG, builder, connected, in_brief, ms, queued};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Somebody else's view: which of the names are held.
fn held(client: &Client) -> [bool; 3] {
    NAMES.map(|name| client.reentrant_lock(name).is_locked().unwrap())
}

#[test]
fn every_form_takes_all_and_gives_all_back() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let (it, never) = (multi(&here, &NAMES), CancellationToken::new());
    let soon = || Instant::now() + LONG;
    let threads = [
        it.lock().unwrap(),
        it.try_lock().unwrap().unwrap(),
        it.try_lock_for(LONG).unwrap().unwrap(),
        it.lock_with(soon()).unwrap().unwrap(),
        it.lock_interruptibly(&never).unwrap(),
        it.lock_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap().unwrap(),
    ];
    assert_eq!(held(&there), [true; 3]);
    assert_eq!(here.reentrant_lock("b").hold_count(), 6);
    for guard in threads {
        assert_eq!(held(&there), [true; 3]);
        guard.unlock().unwrap();
    }
    assert_eq!(here.reentrant_lock("b").hold_count(), 0);
    let owned: [fn(&MultiLock) -> OwnedGuard<MultiLock>; 6] = [
        |it| it.lock_owned().unwrap(),
        |it| it.try_lock_owned().unwrap().unwrap(),
        |it| it.lock_owned_with(LONG).unwrap().unwrap(),
        |it| it.lock_owned_with(Instant::now() + LONG).unwrap().unwrap(),
        |it| it.lock_owned_with(&CancellationToken::new()).unwrap().unwrap(),
        |it| {
            it.lock_owned_with(Wait::timeout(LONG).cancelled_by(&CancellationToken::new())).unwrap().unwrap()
        },
    ];
    for take in owned {
        let guard = take(&it);
        assert_eq!(here.reentrant_lock("b").hold_count(), 0, "it is the guard's");
        assert_eq!(held(&there), [true; 3]);
        thread::spawn(move || guard.unlock().unwrap()).join().unwrap();
        assert_eq!(held(&there), [false; 3]);
    }
    assert_eq!(it.with(|guard| guard.tokens().len()).unwrap(), 3);
    assert_eq!(held(&there), [false; 3]);
    drop(it);
    fixture.end(&[&here, &there]);
}

#[test]
fn a_try_is_none_when_any_is_busy_and_holds_nothing_then() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &NAMES);
    for busy in NAMES {
        let lock = there.reentrant_lock(busy);
        let other = lock.lock().unwrap();
        assert!(it.try_lock().unwrap().is_none());
        assert!(in_brief(it.try_lock_for(ms(30))).is_none());
        assert!(it.try_lock_owned().unwrap().is_none());
        assert_eq!(held(&there), NAMES.map(|name| name == busy));
        other.unlock().unwrap();
    }
    let guard = it.try_lock().unwrap().unwrap();
    guard.unlock().unwrap();
    drop(it);
    fixture.end(&[&here, &there]);
}

/// More than one script removes: those that are in the way are no longer there.
#[test]
fn one_attempt_gets_what_very_many_expired_leases_are_in_front_of() {
    const HOLDS: u32 = 150;
    const BRIEF: Duration = Duration::from_secs(2);
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let (client, gone) = (fixture.client(), connected(|| builder(&proxy.url())));
    let names = ["a", "b"];
    for name in names {
        client.semaphore(name).set_permits(HOLDS).unwrap();
    }
    let brief = gone.semaphore("b").with_lease(BRIEF);
    for _ in 0..HOLDS {
        std::mem::forget(brief.try_acquire(1).unwrap());
    }
    let began = Instant::now();
    proxy.black_hole(true);
    wait_until(LONG, "the last of their leases is over", || began.elapsed() > 2 * BRIEF);
    let permits = names.map(|name| client.lock_with_kind(name, Permits::of(HOLDS).unwrap()));
    let it = MultiLock::new(&[&permits[0], &permits[1]]);
    it.try_lock().unwrap().expect("all are free").unlock().unwrap();
}

#[test]
fn locks_of_all_kinds_and_clients_go_together_in_any_order() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.client(), fixture.client());
    let (simple, reentrant) = (one.simple_lock("simple"), two.reentrant_lock("reentrant"));
    let (reads, writes) = (one.read_write_lock("reads"), two.read_write_lock("writes"));
    let permits = one.semaphore("permits");
    permits.set_permits(3).unwrap();
    let two_permits = one.lock_with_kind("permits", Permits::of(2).unwrap());
    let members: [&dyn Member; 5] =
        [&simple, reads.read_lock(), &two_permits, &reentrant, writes.write_lock()];
    for turn in 0..members.len() {
        let mut members = members;
        members.rotate_left(turn);
        let it = MultiLock::new(&members);
        let guard = it.lock().unwrap();
        let mut tokens = guard.tokens();
        tokens.rotate_right(turn);
        assert_eq!(tokens.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, true, true]);
        assert!(simple.is_locked().unwrap() && reentrant.is_locked().unwrap());
        assert!(reads.read_count().unwrap() == 1 && writes.write_lock().is_locked().unwrap());
        assert_eq!(permits.available().unwrap(), 1);
        guard.unlock().unwrap();
        assert!(!simple.is_locked().unwrap() && !reentrant.is_locked().unwrap());
        assert!(reads.read_count().unwrap() == 0 && !writes.write_lock().is_locked().unwrap());
        assert_eq!(permits.available().unwrap(), 3);
    }
    permits.delete().unwrap();
    drop((simple, reentrant, reads, writes, permits, two_permits));
    fixture.end(&[&one, &two]);
}

#[test]
fn one_that_this_thread_holds_is_re_entered_and_stays_when_all_end() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let (it, b) = (multi(&here, &NAMES), here.reentrant_lock("b"));
    let outer = b.lock().unwrap();
    let guard = it.try_lock().unwrap().unwrap();
    assert_eq!(b.hold_count(), 2);
    assert_eq!(guard.tokens()[1], Some(outer.token()));
    guard.unlock().unwrap();
    assert_eq!((b.hold_count(), held(&there)), (1, [false, true, false]));
    // Also where another is waited for, or is never to be had.
    let c = there.reentrant_lock("c");
    let busy = c.lock().unwrap();
    assert!(in_brief(it.try_lock_for(ms(30))).is_none());
    assert_eq!(b.hold_count(), 1);
    drop((outer, busy));
    drop((it, b, c));
    fixture.end(&[&here, &there]);
}

#[test]
fn a_reader_and_the_writer_who_reads_re_enter() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (lock, other) = (client.read_write_lock("it"), client.reentrant_lock("other"));
    let it = MultiLock::new(&[&other, lock.read_lock()]);
    let write = lock.write_lock().lock().unwrap();
    let guard = it.try_lock().unwrap().expect("a writer may read");
    write.unlock().unwrap();
    assert!(!lock.write_lock().is_locked().unwrap() && lock.read_count().unwrap() == 1);
    let again = it.try_lock().unwrap().expect("and again");
    drop((guard, again));
    assert_eq!(lock.read_count().unwrap(), 0);
    drop((lock, other, it));
    fixture.end(&[&client]);
}

#[test]
fn one_that_may_not_be_re_entered_would_deadlock() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (a, b) = (client.reentrant_lock("a"), client.simple_lock("b"));
    let it = MultiLock::new(&[&a, &b]);
    let outer = b.lock().unwrap();
    let error = it.lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::WouldDeadlock, "b"));
    assert!(it.try_lock().unwrap().is_none());
    assert!(!a.is_locked().unwrap());
    drop(outer);
    drop((a, b, it));
    fixture.end(&[&client]);
}

#[test]
fn tokens_rise_and_come_in_the_order_of_the_names() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let (one, other) = (multi(&here, &["a", "b"]), multi(&there, &["b", "a"]));
    let mut last = [0, 0];
    for round in 0..4 {
        let tokens = if round % 2 == 0 {
            one.lock().unwrap().tokens()
        } else {
            let mut tokens = other.lock().unwrap().tokens();
            tokens.reverse();
            tokens
        };
        let tokens = [tokens[0].unwrap(), tokens[1].unwrap()];
        assert!(tokens[0] > last[0] && tokens[1] > last[1]);
        last = tokens;
    }
    drop((one, other));
    fixture.end(&[&here, &there]);
}

#[test]
fn it_is_a_lock_like_any_other() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let it: Arc<dyn Lock> = Arc::new(multi(&client, &NAMES));
    assert_eq!(it.name(), "a + b + c");
    let guard = it.lock().unwrap();
    assert!(guard.token().is_none() && !guard.is_lost() && !guard.lost().is_cancelled());
    assert!(guard.remaining() > LONG);
    guard.unlock().unwrap();
    assert!(it.try_lock().unwrap().is_some() && it.try_lock_for(LONG).unwrap().is_some());
    let never = CancellationToken::new();
    assert!(it.lock_interruptibly(&never).is_ok());
    assert!(it.lock_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap().is_some());
    // A guard in a box may go to another thread, if it was asked for as one.
    type Take = fn(&dyn Lock) -> Box<dyn LockGuard + Send>;
    let owned: [Take; 5] = [
        |it| it.lock_owned().unwrap(),
        |it| it.try_lock_owned().unwrap().unwrap(),
        |it| it.lock_owned_with(LONG.into()).unwrap().unwrap(),
        |it| it.lock_owned_with((&CancellationToken::new()).into()).unwrap().unwrap(),
        |it| it.lock_owned_with(Wait::once()).unwrap().unwrap(),
    ];
    for take in owned {
        let guard = take(&*it);
        thread::spawn(move || {
            assert_eq!(guard.name(), "a + b + c");
            guard.renew_for(LONG).unwrap();
            guard.unlock().unwrap();
        })
        .join()
        .unwrap();
    }
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn its_validity_is_that_of_the_one_that_ends_first() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let mut locks = locks(&client, &["a", "b"]);
    locks[1] = locks[1].with_lease(LONG / 2);
    let it = MultiLock::new(&[&locks[0], &locks[1], &client.lock_with_kind("c", Simple)]);
    let guard = it.lock().unwrap();
    assert!(guard.remaining() <= LONG / 2 && guard.remaining() > LONG / 4);
    drop(guard);
    let fixed = it.with_lease(LONG / 4);
    let guard = fixed.lock().unwrap();
    assert!(guard.remaining() <= LONG / 4 && guard.remaining() > LONG / 8);
    for name in ["a", "b"] {
        let left =
            client.lock_with_kind(name, Reentrant).holder().unwrap().and_then(|it| it.remaining).unwrap();
        assert!(left <= LONG / 4, "{name}: {left:?}");
    }
    guard.renew_for(LONG / 2).unwrap();
    assert!(guard.remaining() > LONG / 4 && guard.remaining() <= LONG / 2);
    guard.renew().unwrap();
    assert!(guard.remaining() > LONG / 8 && guard.remaining() <= LONG / 4);
    // The first error is told, and the others are renewed all the same.
    assert!(client.lock_with_kind("b", Reentrant).force_unlock().unwrap().holders > 0);
    let error = guard.renew_for(LONG / 2).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, "b"), "{error}");
    for (name, left) in [("a", locks[0].holder()), ("c", client.simple_lock("c").holder())] {
        let left = left.unwrap().and_then(|it| it.remaining).unwrap();
        assert!(left > LONG / 4, "{name}: {left:?}");
    }
    drop(guard);
    drop((locks, it, fixed));
    fixture.end(&[&client]);
}

#[test]
fn a_panic_under_it_gives_all_back() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &NAMES);
    let thrown = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _guard = it.lock().unwrap();
                assert_eq!(held(&there), [true; 3]);
                std::panic::resume_unwind(Box::new("as planned"));
            })
            .join()
    });
    assert!(thrown.is_err());
    assert_eq!(held(&there), [false; 3]);
    drop(it);
    fixture.end(&[&here, &there]);
}

#[test]
fn one_that_stays_for_a_while_does_so_only_where_all_were_held() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let stays = here.reentrant_lock("a").min_hold(LONG);
    let it = MultiLock::new(&[&stays, &here.reentrant_lock("b"), &here.reentrant_lock("c")]);
    // It waits for the one that would stay, and then cannot have another one.
    let (a, b) = (there.reentrant_lock("a"), there.reentrant_lock("b"));
    let (first, busy) = (a.lock().unwrap(), b.lock().unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| it.lock_owned_with(LONG).unwrap().expect("in time"));
        queued(&a, 1);
        first.unlock().unwrap();
        queued(&b, 1);
        wait_until(LONG / 2, "the other does not stay", || !a.is_locked().unwrap());
        busy.unlock().unwrap();
        waiter.join().unwrap().unlock().unwrap();
    });
    assert_eq!(held(&there), [true, false, false], "now it does");
    assert!(a.force_unlock().unwrap().holders > 0);
    let error = it.with_lease(LONG / 2).lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "a"), "{error}");
}

/// Remembers whose holds ended, in order.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<String>>>);

impl Observer for Ended {
    fn released(&self, lock: LockInfo<'_>, _: Duration) {
        self.0.lock().push(lock.name.to_owned());
    }
}

#[test]
fn they_are_given_back_in_reverse() {
    let fixture = Fixture::new();
    let ended = Ended::default();
    let watched = || connected(|| builder(&fixture.server.url()).observer(ended.clone()));
    // By one request, and by one each.
    for clients in [[&watched(); 3], [&watched(), &watched(), &watched()]] {
        let locks: Vec<_> = [0, 1, 2].map(|i| clients[i].reentrant_lock(NAMES[i])).into();
        MultiLock::new(&[&locks[1], &locks[0], &locks[2]]).lock().unwrap().unlock().unwrap();
        assert_eq!(std::mem::take(&mut *ended.0.lock()), ["c", "a", "b"]);
    }
}
