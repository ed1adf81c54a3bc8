//! redis-py's `Lock` and ours at one key. Needs Python with redis-py (Debian: python3-redis, for the system's
//! own Python); another interpreter than `python3` is named in `PYTHON`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::foreign::contention::{COUNTER, TURNS, all_were_counted, count, take_turns};
use crate::foreign::fixture::{Fixture, KEY};
use crate::support::{LONG, Random, ms};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/redis_py.py");

/// Why redis-py cannot be used here.
fn missing(python: &str) -> Option<String> {
    match Command::new(python).args(["-c", "import redis"]).stdin(Stdio::null()).output() {
        Err(error) => Some(error.to_string()),
        Ok(import) if import.status.success() => None,
        Ok(import) => {
            let stderr = String::from_utf8_lossy(&import.stderr);
            Some(stderr.lines().last().unwrap_or("it cannot import redis").to_owned())
        }
    }
}

/// The interpreter that has redis-py, or why there is none.
pub fn interpreter() -> Result<String, String> {
    let named = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let system = "/usr/bin/python3".to_owned();
    match missing(&named) {
        None => Ok(named),
        Some(_) if missing(&system).is_none() => Ok(system),
        Some(why) => Err(format!("{named} says: {why}")),
    }
}

/// A Python process that does as it is told.
struct Python {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Python {
    /// `None`, and says so loudly, where there is no redis-py.
    fn start(fixture: &Fixture, test: &str) -> Option<Python> {
        let python = match interpreter() {
            Ok(python) => python,
            Err(why) => {
                // Not by eprintln!, of which a test that passes shows nothing.
                let mut all = std::io::stderr();
                writeln!(all, "\nSKIPPED, AND SHOWS NOTHING: {test}, as {why}\n").unwrap();
                return None;
            }
        };
        let mut process = Command::new(&python)
            .args([SCRIPT, &fixture.server.port().to_string(), KEY, COUNTER, TURNS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let python = Python { process, input, lines };
        eprintln!("redis-py {}", python.receives());
        Some(python)
    }

    #[track_caller]
    fn say(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    #[track_caller]
    fn receives(&self) -> String {
        self.lines.recv_timeout(2 * LONG).expect("Python says something")
    }

    /// Tells it to do something, and waits until it has.
    #[track_caller]
    fn does(&mut self, what: &str) -> String {
        self.say(what);
        self.receives()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_and_ours_hold_the_lock_in_turn_a_thousand_times() {
    const ROUNDS: usize = 1_000;
    let fixture = Fixture::new();
    let Some(mut python) = Python::start(&fixture, "it_and_ours_hold_the_lock_in_turn_a_thousand_times")
    else {
        return;
    };
    let (lock, mut redis) = (fixture.lock(), fixture.server.connection().unwrap());
    let (began, mut found) = (Instant::now(), Vec::new());
    python.say("take");
    for round in 0..ROUNDS {
        let token = python.receives();
        assert!(lock.try_lock().unwrap().is_none(), "round {round}");
        let guard = if round % 50 == 0 {
            let holder = lock.holder().unwrap().unwrap();
            assert_eq!((holder.owner, holder.since), (token, None));
            assert!(holder.remaining.is_some_and(|left| left > Duration::from_secs(30)));
            // As a waiter that is not told.
            let (guard, took) = thread::scope(|scope| {
                let waits =
                    scope.spawn(|| (lock.lock_owned_with(LONG).unwrap().expect("in time"), Instant::now()));
                fixture.await_queued(1);
                assert_eq!(python.does("free"), "out");
                let gone = Instant::now();
                let (guard, came) = waits.join().unwrap();
                (guard, came - gone)
            });
            found.push(took);
            guard
        } else {
            assert_eq!(python.does("free"), "out");
            lock.lock_owned().unwrap()
        };
        if round % 50 == 1 {
            assert_eq!(python.does("attempt"), "busy");
            assert_eq!(python.does("steal"), "0", "its release does not free ours");
        }
        if round + 1 < ROUNDS {
            python.say("take");
        }
        count(&mut redis, "ours");
        guard.unlock().unwrap();
    }
    found.sort_unstable();
    eprintln!("{ROUNDS} turns each in {:?}; {:?} until the waiter finds out", began.elapsed(), found);
    assert!(found[found.len() / 2] < ms(250 + 500), "{found:?}");
    all_were_counted(&fixture, 2 * ROUNDS);
}

#[test]
fn it_and_ours_contend_and_are_never_inside_together() {
    const ROUNDS: usize = 300;
    let fixture = Fixture::new();
    let Some(mut python) = Python::start(&fixture, "it_and_ours_contend_and_are_never_inside_together")
    else {
        return;
    };
    let mut chance = Random::new("contention with redis-py");
    python.say(&format!("contend {ROUNDS}"));
    thread::scope(|scope| {
        for _ in 0..2 {
            let (fixture, chance) = (&fixture, chance.fork());
            scope.spawn(move || take_turns(fixture, &fixture.lock(), ROUNDS, chance));
        }
    });
    assert_eq!(python.receives(), "done");
    all_were_counted(&fixture, 3 * ROUNDS);
}
