//! Up to ten thousand requests by chance, by several processes of which one after the other is killed: a lease
//! later every permit is there, and never were more out than there are.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client, Permit, Semaphore};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent, wait_until};

use crate::support::{LONG, Random, SOON, builder, connected, env, in_brief, ms};

const PERMITS: u32 = 5;
const THREADS: usize = 2;
/// Of this process; those of its children come on top.
const REQUESTS: u64 = 10_000;
/// By then it is enough, whatever a slow machine has made of them: 20 s with `SECONDS=20`.
fn limit() -> Duration {
    Duration::from_secs(std::env::var("SECONDS").map_or(8, |n| n.parse().unwrap()))
}
/// Renewed in time on a loaded machine too.
const LEASE: Duration = ms(6000);
/// Of the children: what a killed one has is soon back, and the others go on.
const BRIEF: Duration = ms(4000);

fn client(url: &str, lease: Duration) -> Client {
    connected(|| {
        builder(url).lease(lease).renew_every(lease / 20).waiter_timeout(lease).command_timeout(lease)
    })
}

/// One request by chance: a permit, or whatever else came of it.
fn ask(semaphore: &Semaphore, random: &mut Random) -> Option<Permit> {
    let n = 1 + random.below(PERMITS.into()) as u32;
    match random.below(6) {
        0 => in_brief(semaphore.try_acquire(n)),
        1 => in_brief(semaphore.acquire_with(n, random.micros(4000))),
        2 => in_brief(semaphore.drain()),
        3 => {
            let cancel = CancellationToken::new();
            thread::scope(|scope| {
                let asks = scope.spawn(|| semaphore.acquire_with(n, &cancel));
                thread::sleep(random.micros(4000));
                cancel.cancel();
                match asks.join().unwrap() {
                    Ok(permit) => permit,
                    Err(error) => {
                        assert!(error.is_cancelled(), "{error}");
                        None
                    }
                }
            })
        }
        _ => semaphore.acquire_with(n, LONG).unwrap(),
    }
}

/// One after another by each of some threads, while there is one `more`. `out` counts what this process has.
fn play(semaphore: &Semaphore, random: &mut Random, more: &(impl Fn() -> bool + Sync), out: &AtomicI64) {
    let seeds: Vec<_> = (0..THREADS).map(|_| random.fork()).collect();
    thread::scope(|scope| {
        for mut random in seeds {
            scope.spawn(move || {
                while more() {
                    let Some(permit) = ask(semaphore, &mut random) else { continue };
                    let mine = permit.permits() as i64;
                    let now = out.fetch_add(mine, SeqCst) + mine;
                    assert!(now <= PERMITS.into(), "{now} are out");
                    thread::sleep(random.micros(2000));
                    out.fetch_sub(mine, SeqCst);
                    if random.below(2) == 0 {
                        permit.release().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_player() {
    if !is_role("semaphore::chance::role_player") {
        return;
    }
    let client = client(&env("URL"), BRIEF);
    tell_parent("playing").unwrap();
    let mut random = Random::of(env("RANDOM").parse().unwrap());
    play(&client.semaphore("it"), &mut random, &|| true, &AtomicI64::new(0));
}

fn child(server: &RedisServer, random: &mut Random) -> Child {
    let env = [("URL", &*server.url()), ("RANDOM", &*random.seed())];
    let child = Child::spawn("semaphore::chance::role_player", &env).unwrap();
    assert_eq!(child.read_line_within(3 * LONG).unwrap(), "playing");
    child
}

/// Kills one child after another, whatever it has just then, until `is_over`. Returns how many, and when
/// the last one died.
fn kill(
    server: &RedisServer,
    semaphore: &Semaphore,
    mut random: Random,
    is_over: &AtomicBool,
) -> (u64, Instant) {
    let mut children = [child(server, &mut random), child(server, &mut random)];
    let (mut kills, mut victim) = (0, 0);
    while !is_over.load(SeqCst) {
        thread::sleep(ms(1500) + random.micros(4_000_000));
        let has_some = || {
            let holders = semaphore.holders().unwrap();
            let mine = |pid: u32| holders.iter().any(|h| h.process.as_ref().is_some_and(|p| p.pid == pid));
            mine(children[victim].pid())
        };
        // Every other one where it is known to hold; else it may be waiting, or asking.
        if kills % 2 == 0 {
            wait_until(LONG, "the child has some", has_some);
        }
        children[victim].kill9().unwrap();
        kills += 1;
        let available = semaphore.available().unwrap();
        assert!((0..=i64::from(PERMITS)).contains(&available), "{available} are available");
        children[victim] = child(server, &mut random);
        victim = 1 - victim;
    }
    for child in &mut children {
        child.kill9().unwrap();
    }
    (kills + 2, Instant::now())
}

#[test]
fn what_is_available_is_exact_whatever_became_of_the_requests() {
    let mut random = Random::new("what_is_available_is_exact_whatever_became_of_the_requests");
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..3).map(|_| client(&server.url(), LEASE)).collect();
    let semaphores: Vec<_> = clients.iter().map(|client| client.semaphore("it")).collect();
    semaphores[0].set_permits(PERMITS).unwrap();
    let (out, made, is_over) = (AtomicI64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (began, chance) = (Instant::now(), random.fork());
    let limit = limit();
    let more = || began.elapsed() < limit && made.fetch_add(1, SeqCst) < REQUESTS;
    let (kills, died) = thread::scope(|scope| {
        let killer = scope.spawn(|| kill(&server, &semaphores[0], chance, &is_over));
        let players: Vec<_> = semaphores
            .iter()
            .map(|semaphore| {
                let (mut random, more, out) = (random.fork(), &more, &out);
                scope.spawn(move || play(semaphore, &mut random, more, out))
            })
            .collect();
        let ends: Vec<_> = players.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, SeqCst);
        ends.into_iter().for_each(|end| end.unwrap());
        killer.join().unwrap()
    });
    let made = made.into_inner().min(REQUESTS);
    println!("{made} requests and {kills} kills in {:?}", began.elapsed());
    assert!(made > REQUESTS / 100, "hardly a request: {made}");
    wait_until(LONG, "the dead ones' are back", || semaphores[0].available().unwrap() == i64::from(PERMITS));
    assert!(died.elapsed() < BRIEF + 2 * SOON, "only {:?} later", died.elapsed());
    assert_eq!(semaphores[0].permits().unwrap(), Some(PERMITS));
    assert_eq!(semaphores[0].holders().unwrap(), []);
    wait_until(LONG, "the dead are out of the queue", || semaphores[0].queue_length().unwrap() == 0);
    // One of the dead that is silent, and not counted, gets its waiter timeout once more, if nobody was heard all the while.
    let all = semaphores[1].acquire_with(PERMITS, LONG).unwrap().unwrap();
    assert_eq!(semaphores[2].available().unwrap(), 0);
    all.release().unwrap();
}
