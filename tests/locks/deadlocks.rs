//! Circles of threads that wait for each other's locks: one of them gives up, the others go on.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, RedisLock, Wait, kinds::Reentrant};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent, wait_until};

use crate::support::{LONG, Random, builder, connected, env, ms, nothing_left, queued};

fn client_that_looks_after(server: &RedisServer, timeout: Duration) -> Client {
    client_that_reports_to(server, timeout, &Reports::default())
}

fn client_that_reports_to(server: &RedisServer, timeout: Duration, reports: &Reports) -> Client {
    connected(|| {
        let builder = builder(&server.url()).connect_timeout(LONG).observer(reports.clone());
        builder.waiter_timeout(ms(900)).deadlock_timeout(timeout)
    })
}

/// The circles that clients report: the lock that is waited for, the text, whether the thread is chosen.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(String, String, bool)>>>);

impl Observer for Reports {
    fn deadlock(&self, lock: LockInfo<'_>, circle: &str, chosen: bool) {
        self.0.lock().unwrap().push((lock.name.to_owned(), circle.to_owned(), chosen));
    }
}

/// It ignores looks that take longer than that, as they may on a busy machine.
const SOON: Duration = Duration::from_secs(1);

fn client(server: &RedisServer) -> Client {
    client_that_looks_after(server, SOON)
}

fn switched_off(server: &RedisServer) -> Client {
    client_that_looks_after(server, Duration::MAX)
}

/// A thread that holds one lock and then waits for another one, until it has that or gets an error.
fn takes(client: &Client, held: &str, awaited: &str) -> JoinHandle<Option<Error>> {
    let [held, awaited] = [held, awaited].map(|name| client.reentrant_lock(name));
    let (tell, holds) = std::sync::mpsc::channel();
    let name = format!("{}-{}", held.name(), awaited.name());
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _held = held.lock().unwrap();
        tell.send(()).unwrap();
        wait_for_the_others();
        awaited.lock_with(LONG).map(|guard| drop(guard.expect("nobody waits for ever"))).err()
    });
    holds.recv_timeout(LONG).unwrap();
    thread.unwrap()
}

/// Until every thread of the test holds its first lock: they are parked by the test.
fn wait_for_the_others() {
    thread::park_timeout(LONG);
}

/// Lets them wait for their second locks, one after the other; returns what came of each.
fn one_after_another(threads: Vec<JoinHandle<Option<Error>>>, waits: impl Fn(usize)) -> Vec<Option<Error>> {
    for (i, it) in threads.iter().enumerate() {
        it.thread().unpark();
        waits(i);
        // So that it is the order of their clocks, which count in milliseconds.
        thread::sleep(ms(20));
    }
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

fn lock(client: &Client, name: &str) -> RedisLock<Reentrant> {
    client.reentrant_lock(name)
}

#[track_caller]
fn one_gives_up(outcomes: &[Option<Error>], says: &[&str]) {
    let errors: Vec<_> = outcomes.iter().flatten().collect();
    assert!(errors.len() == 1 && errors[0].kind() == ErrorKind::Deadlock, "{outcomes:?}");
    let text = errors[0].to_string();
    for word in says {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[track_caller]
fn only_the_last_gives_up(outcomes: &[Option<Error>], says: &[&str]) {
    one_gives_up(outcomes, says);
    assert!(outcomes.last().unwrap().is_some(), "{outcomes:?}");
}

#[test]
fn of_two_processes_the_one_that_waited_last_gives_up() {
    let server = RedisServer::start().unwrap();
    let reports = Reports::default();
    let clients = [(); 2].map(|()| client_that_reports_to(&server, SOON, &reports));
    let threads = vec![takes(&clients[0], "a", "b"), takes(&clients[1], "b", "a")];
    let outcomes = one_after_another(threads, |i| queued(&lock(&clients[0], ["b", "a"][i]), 1));
    let pid = std::process::id().to_string();
    let says = ["\"a\"", "\"b\"", "a-b", "b-a", &pid, "which holds", "has waited"];
    only_the_last_gives_up(&outcomes, &says);
    let (reports, error) = (reports.0.lock().unwrap().clone(), outcomes[1].as_ref().unwrap().to_string());
    let [(name, circle, true)] = &reports[..] else { panic!("{reports:?}") };
    assert!(name == "a" && error.contains(circle), "{name}: {circle}, not {error}");
    nothing_left(&server);
}

#[test]
fn of_three_processes_one_gives_up() {
    let server = RedisServer::start().unwrap();
    let clients = [client(&server), client(&server), client(&server)];
    let threads =
        vec![takes(&clients[0], "a", "b"), takes(&clients[1], "b", "c"), takes(&clients[2], "c", "a")];
    let outcomes = one_after_another(threads, |i| queued(&lock(&clients[0], ["b", "c", "a"][i]), 1));
    one_gives_up(&outcomes, &["a-b", "b-c", "c-a"]);
}

#[test]
fn of_two_threads_of_a_process_one_gives_up() {
    let server = RedisServer::start().unwrap();
    let client = client(&server);
    let threads = vec![takes(&client, "a", "b"), takes(&client, "b", "a")];
    let outcomes = one_after_another(threads, |_| ());
    one_gives_up(&outcomes, &["a-b", "b-a"]);
}

/// The wait of a thread for another one of its process is known to that process only.
#[test]
fn a_wait_within_a_process_is_part_of_the_circle() {
    for last in 0..3 {
        let server = RedisServer::start().unwrap();
        let (here, there) = (client(&server), client(&server));
        let mut threads = vec![takes(&here, "a", "b"), takes(&here, "b", "c"), takes(&there, "c", "a")];
        threads.rotate_left(last);
        let outcomes = one_after_another(threads, |_| ());
        one_gives_up(&outcomes, &["a-b", "b-c", "c-a"]);
    }
}

#[test]
fn threads_behind_the_head_of_their_process_count() {
    for last in [false, true] {
        let server = RedisServer::start().unwrap();
        let (here, there) = (client(&server), client(&server));
        let mut threads = vec![takes(&here, "b", "a"), takes(&there, "a", "b")];
        let head = {
            let a = here.reentrant_lock("a");
            thread::spawn(move || drop(a.lock().unwrap()))
        };
        queued(&lock(&there, "a"), 1);
        if last {
            threads.swap(0, 1);
        }
        let outcomes = one_after_another(threads, |_| ());
        one_gives_up(&outcomes, &["a-b", "b-a"]);
        head.join().unwrap();
    }
}

#[test]
fn who_waits_in_a_row_goes_on() {
    let server = RedisServer::start().unwrap();
    let clients = [client(&server), client(&server)];
    let first = clients[0].reentrant_lock("c").lock().unwrap();
    let threads = vec![takes(&clients[0], "b", "c"), takes(&clients[1], "a", "b")];
    for it in &threads {
        it.thread().unpark();
    }
    queued(&lock(&clients[0], "b"), 1);
    // Some heartbeats.
    thread::sleep(Duration::from_secs(2));
    drop(first);
    for it in threads {
        assert!(it.join().unwrap().is_none());
    }
}

/// Waits for so long, and returns whether it has the lock. (A timeout would also end the last request of a busy machine.)
fn waits(lock: &RedisLock<Reentrant>, time: Duration) -> Result<bool, Error> {
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(time);
            stop.cancel();
        });
        let outcome = lock.lock_interruptibly(&stop).map(|_| true);
        outcome.or_else(|error| if error.is_cancelled() { Ok(false) } else { Err(error) })
    })
}

/// Two threads take two locks in opposite orders, the first ones by `hold` and the second ones with a timeout.
/// Returns whether each has its second lock.
fn crosswise(clients: &[Client; 2], hold: fn(&Client, &str) -> Box<dyn Any>) -> Vec<Result<bool, Error>> {
    let both = Barrier::new(2);
    thread::scope(|scope| {
        let threads = [(0, "a", "b"), (1, "b", "a")].map(|(i, first, second)| {
            let (client, both) = (&clients[i], &both);
            scope.spawn(move || {
                let _held = hold(client, first);
                both.wait();
                let outcome = waits(&client.reentrant_lock(second), ms(2500));
                both.wait();
                outcome
            })
        });
        threads.map(|it| it.join().unwrap()).into()
    })
}

#[test]
fn it_can_be_switched_off() {
    let server = RedisServer::start().unwrap();
    let clients = [(); 2].map(|()| switched_off(&server));
    let outcomes = crosswise(&clients, |client, name| Box::new(client.reentrant_lock(name).lock().unwrap()));
    assert!(outcomes.iter().all(|it| matches!(it, Ok(false))), "{outcomes:?}");
}

#[test]
fn owned_guards_belong_to_no_thread() {
    let server = RedisServer::start().unwrap();
    let clients = [client(&server), client(&server)];
    let outcomes =
        crosswise(&clients, |client, name| Box::new(client.reentrant_lock(name).lock_owned().unwrap()));
    assert!(outcomes.iter().all(|it| matches!(it, Ok(false))), "{outcomes:?}");
}

/// Two threads read one lock each, and then want the other one, to write it or to read it. Meanwhile writers are
/// in both queues.
fn readers(write: bool) -> Vec<Result<bool, Error>> {
    let server = RedisServer::start().unwrap();
    let (both, reports) = (Barrier::new(3), Reports::default());
    let clients = [(); 2].map(|()| client_that_reports_to(&server, SOON, &reports));
    let (writer, stop) = (&switched_off(&server), &CancellationToken::new());
    thread::scope(|scope| {
        let readers = [(0, "a", "b"), (1, "b", "a")].map(|(i, first, second)| {
            let (client, both) = (&clients[i], &both);
            scope.spawn(move || {
                let _held = client.read_write_lock(first).read_lock().lock().unwrap();
                both.wait();
                let second = client.read_write_lock(second);
                if write {
                    return second.write_lock().lock_with(3 * LONG).map(|it| it.is_some());
                }
                queued(second.write_lock(), 1);
                second.read_lock().lock_with(3 * LONG).map(|it| it.is_some())
            })
        });
        both.wait();
        if !write {
            let waits = ["a", "b"].map(|name| {
                let wait = Wait::timeout(3 * LONG).cancelled_by(stop);
                scope.spawn(move || drop(writer.read_write_lock(name).write_lock().lock_with(wait)))
            });
            wait_until(3 * LONG, "the circle is listed", || !writer.deadlocks().unwrap().is_empty());
            let circle = &writer.deadlocks().unwrap()[0].threads;
            assert_eq!(circle.len(), 2, "{circle:?}");
            assert!((0..2).all(|i| circle[i].waits_for == circle[1 - i].holds), "{circle:?}");
            assert!(circle.iter().all(|it| it.process.pid == std::process::id()), "{circle:?}");
            wait_until(3 * LONG, "it is reported", || !reports.0.lock().unwrap().is_empty());
            // Long enough for both to look at it again.
            stop.wait_timeout(ms(2000));
            let reports = reports.0.lock().unwrap().clone();
            assert!(matches!(&reports[..], [(.., false)]), "once: {reports:?}");
            stop.cancel();
            let _ = waits.map(|it| it.join().unwrap());
        }
        readers.map(|it| it.join().unwrap()).into()
    })
}

#[test]
fn a_writer_waits_for_each_reader() {
    let outcomes = readers(true);
    let chosen = |it: &&Result<bool, Error>| it.as_ref().is_err_and(|e| e.kind() == ErrorKind::Deadlock);
    assert_eq!(outcomes.iter().filter(chosen).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().any(|it| matches!(it, Ok(true))), "{outcomes:?}");
}

/// The readers wait for writers in the queues, and not for each other: once those give up, they go on.
#[test]
fn a_circle_through_read_holds_chooses_nobody() {
    let outcomes = readers(false);
    assert!(outcomes.iter().all(|it| matches!(it, Ok(true))), "{outcomes:?}");
}

/// What a thread sends while it waits for a lock for some heartbeats, perhaps holding another one: each request once,
/// without what differs between two runs.
fn requests(server: &RedisServer, client: &Client, holds: bool) -> BTreeSet<String> {
    let mut monitor = server.connection().unwrap();
    monitor.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).unwrap();
    monitor.recv_response().unwrap();
    let other = switched_off(server);
    let guard = other.reentrant_lock("b").lock().unwrap();
    let _held = holds.then(|| client.reentrant_lock("a").lock().unwrap());
    assert!(!waits(&client.reentrant_lock("b"), ms(1500)).unwrap());
    drop(guard);
    let _: String = redis::cmd("ECHO").arg("the end").query(&mut server.connection().unwrap()).unwrap();
    let mut all = BTreeSet::new();
    loop {
        let redis::Value::SimpleString(line) = monitor.recv_response().unwrap() else { continue };
        if line.contains("the end") {
            return all;
        }
        let Some((_, words)) = line.split_once("\"EVALSHA\" ") else { continue };
        let differs = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f' | '-');
        all.insert(words.split(differs).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("#"));
    }
}

/// Such a thread sends the same requests with detection after `timeout` as without. What a stalled machine adds to
/// either, such as one more heartbeat, it does not add each time.
#[track_caller]
fn sends_what_it_always_sent(timeout: Duration, holds: bool) {
    let server = RedisServer::start().unwrap();
    let round = || {
        let looks = client_that_looks_after(&server, timeout);
        (requests(&server, &looks, holds), requests(&server, &switched_off(&server), holds))
    };
    let rounds: Vec<_> = (0..5).map(|_| round()).take_while(|(with, without)| with != without).collect();
    assert!(rounds.len() < 5, "{rounds:#?}");
}

#[test]
fn a_short_wait_sends_what_it_always_sent() {
    sends_what_it_always_sent(LONG, true);
}

#[test]
fn a_thread_that_holds_nothing_sends_what_it_always_sent() {
    sends_what_it_always_sent(ms(100), false);
}

/// How many rounds each process takes: 1,000 with `ROUNDS=1000`.
fn rounds() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10)
}

/// The client of a process whose heartbeats are due every 200 ms, and whose holds end soon if it is to be killed.
fn of_a_process(url: &str, is_killed: bool) -> Client {
    connected(|| {
        let lease = if is_killed { Duration::from_secs(3) } else { 4 * LONG };
        let builder = builder(url).connect_timeout(LONG).lease(lease);
        builder.waiter_timeout(ms(600)).deadlock_timeout(ms(100))
    })
}

/// Takes two locks, in the order that it is told, again and again. With a barrier, both processes hold their first
/// lock before either asks for its second.
#[test]
#[ignore = "a role, played by a child process"]
fn role_takes_two_locks() {
    if !is_role("deadlocks::role_takes_two_locks") {
        return;
    }
    let meets = env("MEETS") == "true";
    let client = of_a_process(&env("URL"), !meets);
    let meet = meets.then(|| client.cyclic_barrier("meet", 2));
    let [first, second] = if env("BACKWARDS") == "true" { ["b", "a"] } else { ["a", "b"] };
    let [first, second] = [first, second].map(|name| client.reentrant_lock(name));
    tell_parent("ready").unwrap();
    let mut chosen = 0;
    for round in 0..rounds() {
        let meets = || meet.as_ref().map(|it| it.wait_with(LONG).unwrap());
        let held = first.lock_with(LONG).unwrap().unwrap_or_else(|| panic!("a deadlock in round {round}"));
        match &meet {
            Some(_) => drop(meets()),
            // So that they often stand in each other's way.
            None => thread::sleep(ms(20)),
        }
        match second.lock_with(LONG) {
            Ok(guard) => drop(guard.unwrap_or_else(|| panic!("a deadlock in round {round}"))),
            Err(error) if error.kind() == ErrorKind::Deadlock => chosen += 1,
            Err(error) => panic!("{error:#}"),
        }
        drop(held);
        meets();
    }
    tell_parent(&chosen.to_string()).unwrap();
}

fn takes_two_locks(server: &RedisServer, backwards: bool, meets: bool) -> Child {
    let (url, backwards, meets) = (server.url(), backwards.to_string(), meets.to_string());
    let env = [("URL", &*url), ("BACKWARDS", &*backwards), ("MEETS", &*meets)];
    let child = Child::spawn("deadlocks::role_takes_two_locks", &env).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "ready");
    child
}

fn ends(child: &mut Child) -> u64 {
    let chosen = child.read_line_within(LONG + ms(4000) * rounds() as u32).unwrap().parse().unwrap();
    assert!(child.wait_within(LONG).unwrap().success());
    chosen
}

#[test]
fn two_processes_in_opposite_orders_have_one_victim_a_round() {
    let server = RedisServer::start().unwrap();
    let mut children = [false, true].map(|backwards| takes_two_locks(&server, backwards, true));
    let began = Instant::now();
    let chosen = children.each_mut().map(ends);
    println!("{} rounds, {:?} each, chosen: {chosen:?}", rounds(), began.elapsed() / rounds() as u32);
    assert_eq!(chosen.iter().sum::<u64>(), rounds());
}

#[test]
fn nobody_waits_for_ever_although_processes_are_killed() {
    let mut random = Random::new("deadlocks with kills");
    let server = RedisServer::start().unwrap();
    let mut stays = takes_two_locks(&server, false, false);
    let kills = 3.max(rounds() / 10);
    for _ in 0..kills {
        let mut killed = takes_two_locks(&server, true, false);
        thread::sleep(random.micros(1_500_000));
        killed.kill9().unwrap();
    }
    let mut last = takes_two_locks(&server, true, false);
    println!("{kills} kills, chosen: {} and {}", ends(&mut stays), ends(&mut last));
}
