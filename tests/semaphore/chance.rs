//! Some hundred requests by chance, by several clients of which one is killed: afterwards every permit
//! is there, and never were more out than there are.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::thread;

use redis_concurrent::testing::{Child, RedisServer, is_role, tell_parent, wait_until};
use redis_concurrent::{CancellationToken, Client, Permit, Semaphore};

use crate::support::{LONG, Random, builder, env, ms};

const PERMITS: u32 = 5;
const THREADS: usize = 2;

fn client(url: &str) -> Client {
    // Renewed in time on a loaded machine too, and soon over when its process is dead.
    builder(url).lease(ms(3000)).window(ms(1500)).connect().unwrap()
}

/// One request by chance: a permit, or whatever else came of it.
fn ask(semaphore: &Semaphore, random: &mut Random) -> Option<Permit> {
    let n = 1 + random.below(PERMITS.into()) as u32;
    match random.below(6) {
        0 => semaphore.try_acquire(n).unwrap(),
        1 => semaphore.try_acquire_for(n, random.micros(4000)).unwrap(),
        2 => semaphore.drain().unwrap(),
        3 => {
            let cancel = CancellationToken::new();
            thread::scope(|scope| {
                let asks = scope.spawn(|| semaphore.acquire_interruptibly(n, &cancel));
                thread::sleep(random.micros(4000));
                cancel.cancel();
                match asks.join().unwrap() {
                    Ok(permit) => Some(permit),
                    Err(error) => {
                        assert!(error.is_cancelled(), "{error}");
                        None
                    }
                }
            })
        }
        _ => semaphore.try_acquire_for(n, LONG).unwrap(),
    }
}

/// `rounds` of them by each of some threads. `out` counts what this process has.
fn play(semaphore: &Semaphore, random: &mut Random, rounds: u64, out: &AtomicI64) {
    let seeds: Vec<_> = (0..THREADS).map(|_| random.fork()).collect();
    thread::scope(|scope| {
        for mut random in seeds {
            scope.spawn(move || {
                for _ in 0..rounds {
                    let Some(permit) = ask(semaphore, &mut random) else { continue };
                    let mine = permit.permits() as i64;
                    let now = out.fetch_add(mine, SeqCst) + mine;
                    assert!(now <= PERMITS.into(), "{now} are out");
                    thread::sleep(random.micros(2000));
                    out.fetch_sub(mine, SeqCst);
                    if random.below(2) == 0 {
                        permit.unlock().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_player() {
    if !is_role("chance::role_player") {
        return;
    }
    let client = client(&env("URL"));
    tell_parent("playing").unwrap();
    play(
        &client.semaphore("it"),
        &mut Random::of(env("RANDOM").parse().unwrap()),
        u64::MAX,
        &AtomicI64::new(0),
    );
}

#[test]
fn what_is_available_is_exact_whatever_became_of_the_requests() {
    let mut random = Random::new("what_is_available_is_exact_whatever_became_of_the_requests");
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..3).map(|_| client(&server.url())).collect();
    let semaphores: Vec<_> = clients.iter().map(|client| client.semaphore("it")).collect();
    semaphores[0].set_permits(PERMITS).unwrap();
    let env = [("URL", &*server.url()), ("RANDOM", &*random.seed())];
    let mut child = Child::spawn("chance::role_player", &env).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "playing");
    let out = AtomicI64::new(0);
    let players: Vec<_> = semaphores.iter().map(|semaphore| (semaphore, random.fork())).collect();
    thread::scope(|scope| {
        for (semaphore, mut random) in players {
            let out = &out;
            scope.spawn(move || play(semaphore, &mut random, 60, out));
        }
        scope.spawn(|| {
            // In the midst of it, whatever it has just then.
            wait_until(LONG, "the child has some", || {
                let holders = semaphores[0].holders().unwrap();
                let of = |pid: u32| holders.iter().any(|h| h.process.as_ref().is_some_and(|p| p.pid == pid));
                of(child.pid())
            });
            child.kill9().unwrap();
        });
    });
    wait_until(LONG, "the dead one's are back", || semaphores[0].available().unwrap() == PERMITS.into());
    assert_eq!(semaphores[0].permits().unwrap(), Some(PERMITS.into()));
    assert_eq!(semaphores[0].holders().unwrap(), []);
    assert_eq!(semaphores[0].queue_length().unwrap(), 0);
    let all = semaphores[1].try_acquire(PERMITS).unwrap().unwrap();
    assert_eq!(semaphores[2].available().unwrap(), 0);
    all.unlock().unwrap();
}
