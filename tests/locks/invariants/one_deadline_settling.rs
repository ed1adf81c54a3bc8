//! *one-deadline*, where a call ends with something that Redis has yet to be told: what it took and does not
//! want, a script that the server does not know. The call's time is not for it.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::once::Begun;
use redis_concurrent::{Client, ErrorKind, MultiLock, RedLockClient};
use redis_concurrent_testkit::*;

use crate::support::*;

/// Time enough for a machine that stands still to see what a call has come to, and to shut the door on it.
const LIMIT: Duration = ms(6000);
/// What was promised, and what a loaded machine may add. A neglected deadline shows as [`LONG`] or, where an
/// answer is late, as twice the delay.
const TOLERANCE: Duration = ms(250 + 4000);

/// A client that bears a silent server for long, with a connection.
fn patient(proxy: &Proxy) -> Client {
    let client = patiently(&proxy.url());
    drop(client.simple_lock("warm").lock().unwrap());
    client
}

/// What `call` comes to, which must not have taken longer than its limit.
#[track_caller]
fn in_time<T>(what: &str, limit: Duration, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = call();
    let took = began.elapsed();
    assert!(took < limit + TOLERANCE, "{what} took {took:?}");
    outcome
}

#[test]
fn one_deadline_where_a_part_is_given_back_to_a_server_that_fell_silent() {
    let (near, far) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let (near_door, far_door) = (Proxy::start(near.port()).unwrap(), Proxy::start(far.port()).unwrap());
    let (here, there) = (patient(&near_door), patient(&far_door));
    let (a, b) = (here.reentrant_lock("a"), there.reentrant_lock("b"));
    let both = MultiLock::new(&[&a, &b]);
    far_door.black_hole(true);
    thread::scope(|scope| {
        let call = scope.spawn(|| in_time("try_lock_for", LIMIT, || both.try_lock_for(LIMIT).map(drop)));
        wait_until(SOON, "it has the first one", || exists(&near, "rc:{a}"));
        near_door.black_hole(true);
        let error = call.join().unwrap().unwrap_err();
        // Of the first one, where its reply was on its way when the hole opened.
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(["a", "b"].contains(&error.name()), "{error}");
    });
    // It is given back all the same, and not by its lease of half a minute.
    near_door.black_hole(false);
    // A release that was sent into the hole by then would be waited for as long as these clients are patient.
    near_door.cut_all();
    wait_until(LONG, "it is given back", || !exists(&near, "rc:{a}"));
}

#[test]
fn one_deadline_where_replicas_were_waited_for_and_the_server_fell_silent() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door);
    let lock = client.reentrant_lock("x").with_replicas(1, LONG);
    drop(client.reentrant_lock("y").lock().unwrap());
    door.only_matching(b"WAIT");
    door.hold_requests(true);
    thread::scope(|scope| {
        let call = scope.spawn(|| in_time("try_lock_for", LIMIT, || lock.try_lock_for(LIMIT).map(drop)));
        wait_until(SOON, "it waits for replicas", || door.held() == 1);
        door.only_matching(b"");
        door.black_hole(true);
        let error = call.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    });
    door.heal().unwrap();
    door.cut_all();
    wait_until(LONG, "it is given back", || !exists(&server, "rc:{x}"));
}

#[test]
fn one_deadline_where_the_script_has_to_be_sent_whole_on_a_slow_line() {
    const FAR: Duration = ms(5500);
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door);
    let lock = client.reentrant_lock("x");
    door.delay(FAR);
    // That the server does not know the script takes nearly all of the time to hear.
    let limit = FAR + ms(200);
    let outcome = in_time("try_lock_for", limit, || lock.try_lock_for(limit).map(|guard| guard.is_some()));
    assert!(outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable), "{outcome:?}");
    door.delay(Duration::ZERO);
    // What is on the line yet takes as long as before.
    comes_in(&lock);
}

#[test]
fn one_deadline_of_a_red_lock_with_patience_for_its_servers() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
    let doors: Vec<_> = servers.iter().map(|server| Proxy::start(server.port()).unwrap()).collect();
    let clients: Vec<_> = doors.iter().map(patient).collect();
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(ms(15_000));
    let lock = red.lock("x");
    let guard = lock.lock().unwrap();
    wait_until(LONG, "all have answered", || guard.servers() == 3);
    drop(guard);
    // The first server grants it, the others are silent; then that one is, too.
    doors[1..].iter().for_each(|door| door.black_hole(true));
    thread::scope(|scope| {
        let call = scope.spawn(|| in_time("try_lock_for", LIMIT, || lock.try_lock_for(LIMIT).map(drop)));
        wait_until(SOON, "it has the first one", || exists(&servers[0], "rc:{x}"));
        doors[0].black_hole(true);
        let error = call.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    });
    doors[0].black_hole(false);
    doors[0].cut_all();
    wait_until(LONG, "it is given back", || !exists(&servers[0], "rc:{x}"));
}

/// Calls `form`, which waits for `x`. Once it waits, it hears what `goes_on` makes the server tell it, and its next request
/// is not answered.
#[track_caller]
fn unanswered_once_it_was_told<T: Send>(
    what: &str,
    (server, door): (&RedisServer, &Proxy),
    form: impl FnOnce() -> T + Send,
    goes_on: impl FnOnce(),
) -> T {
    let waits = || -> u64 {
        let waiting = redis::cmd("ZCARD").arg("rc:{x}:queue").query(&mut server.connection().unwrap());
        waiting.unwrap()
    };
    thread::scope(|scope| {
        let call = scope.spawn(|| in_time(what, LIMIT, form));
        wait_until(SOON, "it waits", || waits() == 1);
        door.hold_requests(true);
        goes_on();
        wait_until(SOON, "its next request is not answered", || door.held() > 0);
        call.join().unwrap()
    })
}

/// A server, a door, a client behind the door that bears silence for long and hears its messages, and one beside it.
fn with_a_door() -> (RedisServer, Proxy, Client, Client) {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let (behind, direct) = (patient(&door), connect(&server));
    drop(behind.simple_lock("warm").lock().unwrap().lost());
    (server, door, behind, direct)
}

#[test]
fn one_deadline_of_a_campaign_whose_first_lease_cannot_be_renewed() {
    let (server, door, behind, direct) = with_a_door();
    let leads = direct.election("x").campaign().unwrap();
    // So long before its end that its first lease is too short for it.
    let election = behind.election("x").stop_before(ms(15_000));
    let campaign = || election.campaign_with(LIMIT);
    let goes_on = || leads.resign().unwrap();
    let outcome = unanswered_once_it_was_told("campaign_for", (&server, &door), campaign, goes_on);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    door.heal().unwrap();
    door.cut_all();
    wait_until(LONG, "nobody leads", || direct.election("x").leader().unwrap().is_none());
}

#[test]
fn one_deadline_of_a_party_that_cannot_say_that_it_has_passed() {
    let (server, door, behind, direct) = with_a_door();
    let barrier = behind.cyclic_barrier("x", 2);
    let wait = || barrier.wait_with(LIMIT);
    let goes_on = || assert_eq!(direct.cyclic_barrier("x", 2).wait().unwrap(), 0);
    let outcome = unanswered_once_it_was_told("wait_for", (&server, &door), wait, goes_on);
    assert_eq!(outcome.unwrap(), 1);
    door.heal().unwrap();
}

#[test]
fn one_deadline_of_a_caller_that_cannot_read_the_answer_of_another() {
    let (server, door, behind, direct) = with_a_door();
    let once = behind.once("x");
    let Begun::Yours(attempt) = direct.once("x").begin().unwrap() else { panic!("it is new") };
    let begin = || once.begin_with(LIMIT);
    let goes_on = || attempt.done("it").unwrap();
    let outcome = unanswered_once_it_was_told("begin_for", (&server, &door), begin, goes_on);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    door.heal().unwrap();
}

#[test]
fn one_deadline_of_an_observer_that_cannot_read_the_change() {
    let (server, door, behind, direct) = with_a_door();
    let mut changes = behind.election("x").observe();
    assert!(changes.next_with(LIMIT).unwrap().is_some());
    let next = || changes.next_with(LIMIT);
    let goes_on = || drop(direct.election("x").campaign().unwrap());
    let outcome = unanswered_once_it_was_told("next_for", (&server, &door), next, goes_on);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
    door.heal().unwrap();
}
