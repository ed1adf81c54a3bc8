//! The same scenes on a real server, with the library as a user runs it: a client for each process, since for
//! Redis a client is a process. Run by hand: `make scale`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use redis_concurrent_testkit::{ClientKind, RedisServer, wait_until};

use super::costs::{Costs, Kind};
use super::figures::Figures;
use super::points::{Figure, points};
use super::scene::{Scene, What, ms};
use super::seen::Seen;
use super::simulate;
use crate::engine::random::Rng;
use crate::kinds::{Kind as LockKind, Simple};
use crate::{CancellationToken, Client, OwnedGuard, RedisLock};

const LONG: Duration = Duration::from_secs(60);
/// Times are the minimum over this many rounds: other programs can only make them longer.
const ROUNDS: u32 = 8;
/// How many times something is done in a row, to measure one of them.
const TIMES: u32 = 20_000;

/// Measures everything in `measured.txt` except what only a simulation yields.
pub(super) fn measure() -> Figures {
    let mut figures = Figures::default();
    cpu(&mut figures);
    commands(&mut figures);
    memory(&mut figures);
    ways(&mut figures);
    for point in points().iter().filter(|point| point.is_measured_here()) {
        let seen = observe(&point.scene);
        for figure in point.figures {
            let value = figure.of(&point.scene, &seen);
            println!("{}.{figure:?} {value:.3}", point.name);
            figures.set(format!("{}.{figure:?}", point.name), value);
        }
    }
    figures
}

/// Reads the server's CPU time, in microseconds, from the figures of `docs/design/benchmarks.md`, which an idle
/// machine measured.
pub(super) fn cpu(figures: &mut Figures) {
    let row = |file: &str, has: &str| -> String {
        let path = format!("{}/../docs/design/benchmarks/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let found = text.lines().find(|line| has.split(' ').all(|it| line.contains(it)));
        found.unwrap_or_else(|| panic!("{has} in {file}")).to_owned()
    };
    let field = |row: &str, name: &str| -> f64 {
        let (_, rest) = row.split_once(&format!("\"{name}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    let processes = |n| row("processes", &format!("\"pin\":\"same\" \"fair\":true \"processes\":{n},"));
    let pair = processes(1);
    figures.set("cpu.pair", field(&pair, "server_cpu_us"));
    // What is spent outside scripts, for two requests.
    let outside = field(&pair, "server_cpu_us") - field(&pair, "inside_redis_us");
    figures.set("cpu.write", outside / 2.0);
    figures.set("cpu.hand_over", field(&processes(4), "server_cpu_us"));
    for n in [8, 16] {
        figures.set(format!("idle-{n}.{:?}", Figure::Cpu), field(&processes(n), "server_cpu_us"));
    }
    let kept = row("renewal", "\"pin\":\"same\"");
    let each = field(&kept, "server_cpu_percent") * 1e4 / field(&kept, "renewals_per_s");
    // Only a simulation knows how many renewals a write contains.
    figures.set("cpu.renewal", each);
    let (scene, costs) = (Scene::held(1, 100_000, ms(30_000)), Costs::of_cpu(figures));
    let simulated = simulate(&scene, &costs, 1);
    let writes = simulated.writes as f64 / simulated.renewals as f64;
    figures.set("cpu.renewal", each - writes * outside / 2.0);
}

struct Watched {
    server: RedisServer,
    connection: Connection,
}

impl Watched {
    fn start() -> Watched {
        let server = RedisServer::builder().arg("maxclients", "20000").start().unwrap();
        let connection = server.connection().unwrap();
        Watched { server, connection }
    }

    fn info(&mut self, section: &str) -> String {
        cmd("INFO").arg(section).query(&mut self.connection).unwrap()
    }

    fn field(&mut self, section: &str, name: &str) -> f64 {
        let info = self.info(section);
        let field = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        field.unwrap_or_else(|| panic!("{name} in {info}")).trim().parse().unwrap()
    }

    fn memory(&mut self) -> f64 {
        self.field("memory", "used_memory")
    }

    /// Returns how often each command was called, by scripts or by clients.
    fn calls(&self) -> BTreeMap<String, u64> {
        self.server.command_calls().unwrap()
    }

    fn client(&self, scene: &Scene, name: usize) -> Client {
        let builder =
            Client::builder().url(&self.server.url()).client_name(&format!("c{name}")).lease(scene.lease);
        builder.waiter_timeout(scene.waiter_timeout).local_handoff(scene.local_handoff).connect().unwrap()
    }
}

/// Counts the commands that only scripts call.
fn of_scripts(calls: &BTreeMap<String, u64>) -> u64 {
    let outside = ["evalsha", "eval", "ping", "info", "hello", "subscribe", "select", "quit", "auth"];
    let of_script = |name: &&String| {
        let name = name.split('|').next().unwrap_or_default();
        !outside.contains(&name) && !["client", "config", "script"].contains(&name)
    };
    calls.iter().filter(|(name, _)| of_script(name)).map(|(_, calls)| calls).sum()
}

/// Observes a scene on a real server.
fn observe(scene: &Scene) -> Seen {
    let watched = Watched::start();
    let clients: Vec<Client> = (0..scene.clients).map(|i| watched.client(scene, i)).collect();
    let (ends, acquisitions) = (AtomicBool::new(false), AtomicU64::new(0));
    let cancel = CancellationToken::new();
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let mut kept: Vec<OwnedGuard<_>> = Vec::new();
        match scene.what {
            What::Keep => {
                let began = Instant::now();
                let all = (scene.clients * scene.threads) as u32;
                for i in 0..all {
                    thread::sleep((scene.renew_every() / all * i).saturating_sub(began.elapsed()));
                    let client = &clients[i as usize % scene.clients];
                    kept.push(client.simple_lock(&format!("{i:06}")).lock_owned().unwrap());
                }
                kept.iter().for_each(|guard| assert!(!guard.is_lost()));
            }
            What::Wait => {
                kept.push(clients[0].simple_lock("one").lock_owned().unwrap());
                for client in &clients[1..] {
                    let cancel = &cancel;
                    scope.spawn(move || client.simple_lock("one").lock_interruptibly(cancel).is_err());
                }
                let lock = clients[0].simple_lock("one");
                wait_until(LONG, "all wait", || lock.queue_length().unwrap() >= scene.clients - 1);
            }
            What::Contend => {
                for client in clients.iter().flat_map(|client| (0..scene.threads).map(move |_| client)) {
                    let (ends, acquisitions) = (&ends, &acquisitions);
                    scope.spawn(move || contend(scene, &client.simple_lock("one"), ends, acquisitions));
                }
            }
        }
        thread::sleep(scene.warm_up);
        watched.server.reset_stats().unwrap();
        let sent = || clients.iter().map(Client::request_count).sum::<u64>();
        let before = (sent(), acquisitions.load(Ordering::Relaxed), Instant::now());
        thread::sleep(scene.counted);
        seen.requests[Kind::Free as usize] = sent() - before.0;
        seen.acquisitions = acquisitions.load(Ordering::Relaxed) - before.1;
        seen.seconds = before.2.elapsed().as_secs_f64();
        let calls = watched.calls();
        let called = |name: &str| calls.get(name).copied().unwrap_or(0);
        (seen.messages, seen.pings) = (called("publish"), called("ping"));
        seen.commands = of_scripts(&calls) as f64;
        if scene.what == What::Keep {
            seen.renewals = seen.requests();
            assert!(kept.iter().all(|guard| !guard.is_lost()), "this machine is too slow");
        }
        seen.connections = connections(&watched.server);
        ends.store(true, Ordering::Relaxed);
        cancel.cancel();
    });
    seen
}

fn contend(scene: &Scene, lock: &RedisLock<impl LockKind>, ends: &AtomicBool, acquisitions: &AtomicU64) {
    let lock = if scene.fair { lock.fair() } else { lock.clone() };
    let mut rng = Rng(u64::from(std::process::id()));
    while !ends.load(Ordering::Relaxed) {
        let guard = lock.lock().unwrap();
        acquisitions.fetch_add(1, Ordering::Relaxed);
        if !scene.hold.is_zero() {
            thread::sleep(scene.hold);
        }
        guard.unlock().unwrap();
        if !scene.think.is_zero() {
            thread::sleep(scene.think * rng.below(2001) as u32 / 1000);
        }
    }
}

/// Returns the largest number of connections that any client has.
fn connections(server: &RedisServer) -> usize {
    let mut of_each: BTreeMap<String, usize> = BTreeMap::new();
    for kind in [ClientKind::Normal, ClientKind::PubSub] {
        for line in server.clients(kind).unwrap() {
            let name = line.split(' ').find_map(|word| word.strip_prefix("name=c"));
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                *of_each.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    of_each.into_values().max().unwrap_or(0)
}

/// Counts how many Redis commands the script of each kind of request calls, with one request at a time.
fn commands(figures: &mut Figures) {
    let watched = Watched::start();
    let scene = Scene::contended(3, 1);
    let clients = [0, 1, 2].map(|i| watched.client(&scene, i));
    let [one, two, three] = [0, 1, 2].map(|i| clients[i].simple_lock("one"));
    // Afterwards the scripts are loaded, and all clients listen.
    for (holder, waiter) in [(&one, &two), (&two, &three), (&three, &one)] {
        let guard = holder.lock_owned().unwrap();
        assert!(waiter.try_lock_for(ms(200)).unwrap().is_none());
        guard.unlock().unwrap();
    }
    // A request has been carried out once the count of scripts has risen, since nothing else is sent.
    let count = |kind: &str, figures: &mut Figures, less: f64, act: &mut dyn FnMut()| {
        let before = watched.calls();
        act();
        let evals = |calls: &BTreeMap<String, u64>| calls.get("evalsha").copied().unwrap_or(0);
        wait_until(LONG, "one request is carried out", || evals(&watched.calls()) > evals(&before));
        let now = watched.calls();
        assert_eq!(evals(&now), evals(&before) + 1, "{kind}: one request, on a machine that is less busy");
        let commands = (of_scripts(&now) - of_scripts(&before)) as f64;
        figures.set(format!("commands.{kind}"), commands - less);
        commands
    };
    let mut held = None;
    count("Free", figures, 0.0, &mut || held = Some(one.lock_owned().unwrap()));
    count("Renewal", figures, 0.0, &mut || held.as_ref().unwrap().renew().unwrap());
    count("Busy", figures, 0.0, &mut || assert!(two.try_lock().unwrap().is_none()));
    let leave = count("Leave", figures, 0.0, &mut || held.take().unwrap().unlock().unwrap());
    thread::scope(|scope| {
        // Starts a thread that waits for the lock and holds it until it is signalled.
        let waits = |lock: &RedisLock<Simple>| {
            let ((tell, signal), lock) = (std::sync::mpsc::channel::<()>(), lock.clone());
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                let _ = signal.recv();
                guard.unlock().unwrap();
            });
            tell
        };
        held = Some(one.lock_owned().unwrap());
        let mut holder = None;
        let queue = count("Queue", figures, 0.0, &mut || holder = Some(waits(&two)));
        count("Heartbeat", figures, 0.0, &mut || {});
        let admits = count("Admission", figures, leave, &mut || held.take().unwrap().unlock().unwrap());
        // Now the second process has the lock. Another of its threads waits for it, which sends nothing; the
        // first process waits too.
        let mut others = vec![waits(&two)];
        wait_until(LONG, "a thread waits behind its own process", || two.local_queue_length() == 1);
        count("Queue", figures, 0.0, &mut || others.push(waits(&one)));
        count("Together", figures, admits + queue, &mut || drop(holder.take()));
        count("Behind", figures, 0.0, &mut || others.push(waits(&three)));
    });
}

/// Measures bytes in Redis: of a held lock, of what is left of a released one, of a waiter, of a connection.
fn memory(figures: &mut Figures) {
    let mut watched = Watched::start();
    let scene = Scene { lease: Duration::from_secs(600), ..Scene::contended(1, 1) };
    let client = watched.client(&scene, 0);
    client.simple_lock("warm").lock().unwrap().unlock().unwrap();
    let empty = watched.memory();
    let held = |name: &str| -> Vec<_> {
        (0..TIMES).map(|i| client.simple_lock(&format!("{name}{i:06}")).lock_owned().unwrap()).collect()
    };
    let each = |bytes: f64| bytes / f64::from(TIMES);
    let guards = held("a");
    let full = watched.memory();
    figures.set("bytes.held", each(full - empty));
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    figures.set("bytes.left", each(watched.memory() - empty));

    let before = watched.memory();
    let connections: Vec<_> = (0..500).map(|_| watched.server.connection().unwrap()).collect();
    figures.set("bytes.connection", (watched.memory() - before) / connections.len() as f64);
    drop(connections);

    // With a client each, so this excludes their connections.
    let waiters = 100;
    let clients: Vec<_> = (1..=waiters).map(|i| watched.client(&scene, i)).collect();
    let guard = client.simple_lock("one").lock_owned().unwrap();
    let bytes = |watched: &Watched| -> f64 {
        let mut connection = watched.server.connection().unwrap();
        let of =
            |key: String| -> Option<f64> { cmd("MEMORY").arg("USAGE").arg(key).query(&mut connection).ok()? };
        watched.server.keys().unwrap().into_iter().filter(|key| key.contains("{one}")).filter_map(of).sum()
    };
    let before = bytes(&watched);
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        for client in &clients {
            let cancel = &cancel;
            scope.spawn(move || client.simple_lock("one").lock_interruptibly(cancel).is_err());
        }
        let lock = client.simple_lock("one");
        wait_until(LONG, "all wait", || lock.queue_length().unwrap() >= waiters);
        figures.set("bytes.waiter", (bytes(&watched) - before) / waiters as f64);
        cancel.cancel();
    });
    guard.unlock().unwrap();
}

/// Measures how long things take on their way, in microseconds, for one client that does one thing after the
/// other.
fn ways(figures: &mut Figures) {
    let watched = Watched::start();
    let client = watched.client(&Scene::contended(1, 1), 0);
    let lock = client.simple_lock("one");
    lock.lock().unwrap().unlock().unwrap();
    let round = |_| {
        let began = Instant::now();
        (0..TIMES / ROUNDS).for_each(|_| lock.lock().unwrap().unlock().unwrap());
        began.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES / ROUNDS)
    };
    let took = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    // Two requests, each there and back.
    figures.set("way", ((took - figures.get("cpu.pair")) / 4.0).max(1.0));
    figures.set("wake", wake());
}

/// Returns the microseconds until a thread runs that another one has woken.
fn wake() -> f64 {
    let ((there, hears), (back, answer)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || hears.iter().try_for_each(|()| back.send(())));
        let began = Instant::now();
        for _ in 0..TIMES {
            there.send(()).unwrap();
            answer.recv().unwrap();
        }
        drop(there);
        began.elapsed().as_secs_f64() * 1e6 / f64::from(2 * TIMES)
    })
}
