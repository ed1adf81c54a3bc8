//! Several processes that want one lock, while its servers are killed, restarted empty, and stopped.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{ErrorKind, RedLockClient, Wait};
use redis_concurrent_testkit::{Child, hear_parent, is_role, tell_parent, wait_until};
use rustix::time::{ClockId, clock_gettime};

use crate::red_lock::fixture::{Fixture, LONG, NAME, ms};
use crate::support::{Random, builder, connected};

const LEASE: Duration = Duration::from_secs(1);
const PROCESSES: usize = 3;
const THREADS: u64 = 2;
/// Short of a machine's usual stalls, so that a server that runs mostly answers.
const NODE_LIMIT: Duration = Duration::from_millis(50);

/// By the clock that all processes of this machine share, in nanoseconds.
fn now() -> u64 {
    let t = clock_gettime(ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// From when to when somebody held it for certain.
type Span = (u64, u64);

/// The pairs of spans that lie over each other.
fn overlaps(spans: &mut [Span]) -> Vec<(Span, Span)> {
    spans.sort_unstable();
    let mut latest: Option<Span> = None;
    let mut found = Vec::new();
    for span in spans.iter() {
        if let Some(other) = latest.filter(|(_, until)| *until > span.0) {
            found.push((other, *span));
        }
        if latest.is_none_or(|(_, until)| until < span.1) {
            latest = Some(*span);
        }
    }
    found
}

#[test]
fn two_at_once_are_seen() {
    assert_eq!(overlaps(&mut [(5, 6), (1, 2), (2, 4)]), []);
    assert_eq!(overlaps(&mut [(3, 6), (1, 4)]), [((1, 4), (3, 6))]);
    assert_eq!(overlaps(&mut [(1, 9), (2, 3), (8, 10)]).len(), 2);
}

/// Takes the lock again and again, and tells from when to when it was held for certain.
#[test]
#[ignore = "a role, played by a child process"]
fn role_taker() {
    if !is_role("red_lock::chaos::role_taker") {
        return;
    }
    let (urls, seed) =
        (std::env::var("URLS").unwrap(), std::env::var("SEED").unwrap().parse::<u64>().unwrap());
    let connect = |url: &str| connected(|| builder(url).lease(LEASE));
    let red = RedLockClient::new(urls.split(' ').map(connect).collect::<Vec<_>>()).unwrap();
    let red = red.with_node_timeout(NODE_LIMIT);
    tell_parent("ready").unwrap();
    assert_eq!(hear_parent().unwrap().as_deref(), Some("go"));
    let ended = redis_concurrent::CancellationToken::new();
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (red, ended) = (&red, &ended);
            scope.spawn(move || take(&red.lock(NAME), Random::of(seed * THREADS + i), ended));
        }
        assert_eq!(hear_parent().unwrap().as_deref(), Some("end"));
        ended.cancel();
    });
    tell_parent("done").unwrap();
}

fn take(lock: &redis_concurrent::RedLock, mut random: Random, ended: &redis_concurrent::CancellationToken) {
    while !ended.is_cancelled() {
        let guard = match lock.lock_with(Wait::timeout(ms(500)).cancelled_by(ended)) {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                let kinds = [ErrorKind::Unavailable, ErrorKind::Cancelled];
                assert!(kinds.contains(&error.kind()), "{error}");
                continue;
            }
        };
        let from = now();
        let mut until = from;
        // Mostly for a moment; now and then so long that much may happen meanwhile, or for longer than a lease.
        let hold = match random.below(100) {
            0 => LEASE * 3 / 2,
            1..=5 => ms(200 + random.below(400)),
            _ => Duration::from_micros(random.below(3000)),
        };
        let end = Instant::now() + hold;
        loop {
            let at = now();
            if guard.is_lost() {
                break;
            }
            until = at;
            if Instant::now() >= end {
                break;
            }
            thread::sleep(ms(1).min(hold));
        }
        if let Err(error) = guard.unlock() {
            assert!([ErrorKind::LeaseLost, ErrorKind::OutcomeUnknown].contains(&error.kind()), "{error}");
        }
        if until > from {
            tell_parent(&format!("{from} {until}")).unwrap();
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// `ACQUISITIONS` and `CHAOS_SECONDS` make it longer, `SEED` repeats one.
#[test]
fn never_two_hold_it_while_servers_die_and_come_back() {
    let seed = setting("SEED", u64::from(std::process::id()));
    let (acquisitions, seconds) = (setting("ACQUISITIONS", 50), setting("CHAOS_SECONDS", 4));
    eprintln!("SEED={seed}");
    let mut random = Random::of(seed);
    let fixture = Fixture::five();
    let urls: Vec<_> = fixture.servers.iter().map(|server| server.url()).collect();
    let mut children: Vec<_> = (0..PROCESSES)
        .map(|i| {
            let seed = (seed + i as u64 + 1).to_string();
            Child::spawn("red_lock::chaos::role_taker", &[("URLS", &urls.join(" ")), ("SEED", &seed)])
                .unwrap()
        })
        .collect();
    for child in &children {
        assert_eq!(child.read_line_within(LONG).unwrap(), "ready");
    }
    children.iter_mut().for_each(|child| child.say("go").unwrap());
    let began = Instant::now();
    let mut spans: Vec<Span> = Vec::new();
    let hear = |child: &Child, limit| -> Option<Option<Span>> {
        let line = child.read_line_within(limit).ok()?;
        let mut numbers = line.split(' ').map_while(|n| n.parse().ok());
        Some(numbers.next().zip(numbers.next()))
    };
    // What is wrong with each server: nothing, dead, or hung.
    let mut state = [0_u8; 5];
    let mut faults = 0;
    while began.elapsed() < Duration::from_secs(seconds) || (spans.len() as u64) < acquisitions || faults < 3
    {
        assert!(began.elapsed() < Duration::from_secs(seconds) * 10 + LONG * 3, "they get on");
        let which = random.below(5) as usize;
        let server = &fixture.servers[which];
        let down = state.iter().filter(|it| **it > 0).count() as u64;
        if down == 0 && random.below(4) == 0 {
            // A majority forgets all at once.
            for i in 0..3 {
                fixture.servers[(which + i) % 5].kill().unwrap();
            }
            for i in 0..3 {
                fixture.servers[(which + i) % 5].restart().unwrap();
            }
            faults += 3;
            continue;
        }
        match state[which] {
            // Mostly a majority is there, and sometimes none.
            0 if down < 2 || random.below(12) == 0 => {
                state[which] = 1 + (random.below(3) == 0) as u8;
                if state[which] == 1 { server.kill() } else { server.stop() }.unwrap();
                faults += 1;
            }
            1 => {
                server.restart().unwrap();
                state[which] = 0;
            }
            2 => {
                server.cont().unwrap();
                state[which] = 0;
            }
            _ => {}
        }
        let until = Instant::now() + ms(100 + random.below(600));
        while Instant::now() < until {
            for child in &children {
                while let Some(Some(span)) = hear(child, ms(3)) {
                    spans.push(span);
                }
            }
        }
    }
    children.iter_mut().for_each(|child| child.say("end").unwrap());
    for (server, state) in fixture.servers.iter().zip(state) {
        match state {
            1 => server.restart().unwrap(),
            2 => server.cont().unwrap(),
            _ => {}
        }
    }
    for child in &mut children {
        while let Some(Some(span)) = hear(child, LONG) {
            spans.push(span);
        }
        assert!(child.wait_within(LONG).unwrap().success());
    }
    let ended = Instant::now();
    wait_until(LONG, "nothing is left after a lease", || fixture.lasting_keys().is_empty());
    let left = ended.elapsed();
    eprintln!("{} acquisitions, {faults} faults, nothing left after {left:?}", spans.len());
    // A lease, and what a machine that stands still adds to it.
    assert!(left < LEASE + ms(8000), "{left:?}");
    assert_eq!(overlaps(&mut spans), [], "SEED={seed}");
}
