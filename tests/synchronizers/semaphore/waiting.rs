//! Waiting for permits: all or nothing, in order of arrival, and not for the dead.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::{CancellationToken, ErrorKind, Semaphore};
use redis_concurrent_testkit::{Child, Proxy, RedisServer, hear_parent, is_role, tell_parent, wait_until};

use crate::support::{LONG, SOON, builder, connect, connected, env, in_brief, ms};

#[track_caller]
pub fn queued(semaphore: &Semaphore, n: usize) {
    wait_until(LONG, "so many wait", || semaphore.queue_length().unwrap() == n);
}

#[test]
fn a_large_request_at_the_head_is_not_passed_by_small_ones() {
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    let [holder, large, small, other] = [0, 1, 2, 3].map(|i| clients[i].semaphore("it"));
    holder.set_permits(4).unwrap();
    let held: Vec<_> = (0..4).map(|_| holder.acquire(1).unwrap()).collect();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, (semaphore, n)) in [(&large, 4), (&small, 1), (&other, 2)].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let permit = semaphore.acquire(n).unwrap();
                order.lock().push(n);
                permit.release().unwrap();
            });
            queued(&holder, i + 1);
        }
        for (i, permit) in held.into_iter().enumerate() {
            assert_eq!(*order.lock(), [0; 0], "with {i} back");
            assert_eq!(holder.available().unwrap(), i as i64, "nothing is set aside");
            permit.release().unwrap();
        }
    });
    let order = order.into_inner();
    assert_eq!((order[0], order.len()), (4, 3));
    assert_eq!(holder.available().unwrap(), 4);
}

/// Neither the answer to its ask reaches it nor the message that lets it in, and by the time that it asks again
/// its lease is over: its permits are nobody's then, and it gets them anew.
#[test]
fn a_waiter_that_hears_neither_its_answer_nor_its_message_gets_its_permits_all_the_same() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let holder = connect(&server).semaphore("it");
    // Renewed often, so that a machine that stands still does not lose what it then gets.
    let deaf = || builder(&proxy.url()).lease(ms(3000)).renew_every(ms(200)).command_timeout(ms(3500));
    let deaf = connected(deaf).semaphore("it");
    holder.set_permits(3).unwrap();
    let held = holder.acquire(2).unwrap();
    // So that Redis knows the script, and the listener is there.
    assert!(in_brief(deaf.acquire_with(2, ms(500))).is_none());
    proxy.only_matching(b"\r\nwait\r\n");
    proxy.swallow_replies(1);
    proxy.swallow_replies_with(b"message");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| deaf.acquire(2).unwrap());
        queued(&holder, 1);
        held.release().unwrap();
        let permit = waiter.join().unwrap();
        assert_eq!((permit.permits(), holder.available().unwrap()), (2, 1));
        permit.release().unwrap();
    });
    assert_eq!((proxy.struck(), holder.available().unwrap()), (2, 3));
}

/// As java.util.concurrent's `new Semaphore(0)`, on which others release first.
#[test]
fn where_there_are_none_on_purpose_all_wait_until_others_add_some() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server).semaphore("it"), connect(&server).semaphore("it"));
    type Change = fn(&Semaphore);
    let ways: [(&str, Change); 3] = [
        ("set", |it| it.set_permits(0).unwrap()),
        ("first", |it| assert!(it.try_set_permits(0).unwrap())),
        ("reduce", |it| {
            it.set_permits(2).unwrap();
            it.add_permits(-2).unwrap();
        }),
    ];
    for (way, none) in ways {
        none(&here);
        assert!(there.try_acquire(1).unwrap().is_none(), "{way}");
        assert!(in_brief(there.acquire_with(3, ms(50))).is_none(), "{way}");
        assert!(there.drain().unwrap().is_none(), "{way}");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| there.acquire(3).map(|permit| permit.permits()));
            queued(&here, 1);
            // Too few of them are no reason to refuse it: more may follow.
            for _ in 0..2 {
                here.add_permits(1).unwrap();
                assert_eq!(here.queue_length().unwrap(), 1, "{way}");
            }
            here.add_permits(1).unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), 3, "{way}");
        });
        // Set to a number, there are no more than that.
        here.set_permits(3).unwrap();
        assert_eq!(there.acquire(4).map(drop).unwrap_err().kind(), ErrorKind::Refused, "{way}");
        assert!(here.delete().unwrap());
        let error = there.acquire(1).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{way}: never set");
        assert!(error.to_string().contains("set_permits comes first"), "{way}: {error}");
    }
}

#[test]
fn several_are_let_in_by_one_that_leaves() {
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    let semaphores: Vec<_> = clients.iter().map(|client| client.semaphore("it")).collect();
    semaphores[0].set_permits(3).unwrap();
    let all = semaphores[0].drain().unwrap().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> =
            semaphores[1..].iter().map(|semaphore| scope.spawn(|| semaphore.acquire(1).unwrap())).collect();
        queued(&semaphores[0], 3);
        let began = Instant::now();
        all.release().unwrap();
        let permits: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        // Far less than any lease.
        assert!(began.elapsed() < 2 * SOON);
        assert_eq!(semaphores[0].available().unwrap(), 0);
        drop(permits);
    });
    assert_eq!(semaphores[0].available().unwrap(), 3);
}

#[test]
fn added_permits_let_waiters_in() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let (here, there) = (here.semaphore("it"), there.semaphore("it"));
    here.set_permits(2).unwrap();
    let all = here.acquire(2).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.acquire(2).unwrap());
        queued(&here, 1);
        here.add_permits(1).unwrap();
        assert_eq!(here.available().unwrap(), 1, "one is not two");
        here.add_permits(1).unwrap();
        waiter.join().unwrap().release().unwrap();
    });
    all.release().unwrap();
    assert_eq!(here.available().unwrap(), 4);
}

#[test]
fn a_waiter_that_gives_up_leaves_everything_as_it_was() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let (here, there) = (here.semaphore("it"), there.semaphore("it"));
    here.set_permits(3).unwrap();
    let _one = here.acquire(1).unwrap();
    for semaphore in [&here, &there] {
        let began = Instant::now();
        assert!(in_brief(semaphore.acquire_with(3, ms(150))).is_none());
        assert!(began.elapsed() >= ms(150));
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.acquire_with(3, &cancel).map(drop));
            queued(&here, 1);
            cancel.cancel();
            assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
        });
        queued(&here, 0);
        assert_eq!(here.available().unwrap(), 2);
        assert_eq!(semaphore.try_acquire(2).unwrap().map(|permit| permit.permits()), Some(2));
    }
}

/// Of the holder that is killed. A busy machine does not end it before.
const HELD: Duration = ms(4000);

#[test]
#[ignore = "a role, played by a child process"]
fn role_holder() {
    if !is_role("semaphore::waiting::role_holder") {
        return;
    }
    let client = connected(|| builder(&env("URL")).lease(HELD).renew_every(ms(100)));
    let _permit = client.semaphore("it").acquire(2).unwrap();
    tell_parent("inside").unwrap();
    hear_parent().unwrap();
}

#[test]
fn permits_of_a_dead_process_come_back_within_a_lease() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let semaphore = client.semaphore("it");
    semaphore.set_permits(3).unwrap();
    let mut child = Child::spawn("semaphore::waiting::role_holder", &[("URL", &server.url())]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "inside");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire(3).unwrap());
        queued(&semaphore, 1);
        child.kill9().unwrap();
        let began = Instant::now();
        let permit = waiter.join().unwrap();
        // Which of its own heartbeats finds it is of no account: it knows when the other lapses.
        assert!(began.elapsed() < HELD + SOON, "after {:?}", began.elapsed());
        assert_eq!(permit.permits(), 3);
    });
    assert_eq!(semaphore.available().unwrap(), 3);
}
