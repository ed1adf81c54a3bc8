//! The figures of docs/vs.md: the same lock with this library, with redis-py and with Redisson, on a private
//! server. A library that is not installed (`python3-redis`, or what `ci/java.sh` obtains) is left out.
//!
//! `cargo run --release --example vs`. Each holder and each waiter is a process of its own; leases are 3 s.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, io, net::TcpStream, sync::Arc, thread};

use redis_concurrent::Client;
use redis_concurrent_testkit::{ClientKind, RedisServer};

type Failure = Box<dyn std::error::Error>;

const LEASE: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(60);
const PAIRS: u64 = 200;

const PYTHON: &str = r#"
import redis, sys
lock = redis.Redis(port=int(sys.argv[1])).lock("vs", timeout=3)
print("ready", flush=True)
for line in sys.stdin:
    try:
        if "unlock" in line:
            lock.release()
            print("out", flush=True)
        else:
            lock.acquire()
            print("in", flush=True)
    except Exception as error:
        print("failed: " + type(error).__name__, flush=True)
"#;

/// A process that locks with one of the libraries, on command.
struct Peer {
    process: Child,
    lines: Receiver<String>,
}

impl Peer {
    fn start(mut command: Command) -> Result<Peer, Failure> {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line.trim_start_matches(['0', '1', ' ']).to_owned());
            }
        });
        let peer = Peer { process, lines };
        peer.hear()?;
        Ok(peer)
    }

    fn hear(&self) -> Result<String, Failure> {
        Ok(self.lines.recv_timeout(LIMIT)?)
    }

    fn tell(&mut self, word: &str) -> io::Result<()> {
        writeln!(self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?, "1 {word}")
    }

    fn ask(&mut self, word: &str) -> Result<String, Failure> {
        self.tell(word)?;
        self.hear()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Counts the requests to the server, and the commands it executes for them, including those of scripts.
#[derive(Clone, Default)]
struct Monitor(Arc<[AtomicU64; 2]>);

impl Monitor {
    fn start(port: u16) -> io::Result<Monitor> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.write_all(b"MONITOR\r\n")?;
        let monitor = Monitor::default();
        let counts = monitor.0.clone();
        thread::spawn(move || {
            for line in BufReader::new(socket).split(b'\n').map_while(Result::ok).skip(1) {
                let by_script = line.windows(5).any(|it| it == b" lua]");
                counts[0].fetch_add(u64::from(!by_script), SeqCst);
                counts[1].fetch_add(1, SeqCst);
            }
        });
        Ok(monitor)
    }

    /// Returns the requests and the commands so far, once the monitor has seen all of them.
    fn counts(&self) -> [u64; 2] {
        thread::sleep(Duration::from_millis(200));
        [self.0[0].load(SeqCst), self.0[1].load(SeqCst)]
    }
}

fn ours(port: u16) -> Result<(), Failure> {
    let client = Client::builder().url(&format!("redis://127.0.0.1:{port}/")).lease(LEASE).connect()?;
    let lock = client.reentrant_lock("vs");
    let mut held = None;
    println!("ready");
    for line in io::stdin().lines() {
        let line = line?;
        if line.ends_with(" lock") {
            held = Some(lock.lock()?);
            println!("in");
        } else if line.ends_with("lost") {
            let lost = held.as_ref().ok_or("it holds nothing")?.lost();
            while !lost.wait_timeout(LIMIT) {}
            println!("lost");
        } else {
            match held.take().ok_or("it holds nothing")?.unlock() {
                Ok(()) => println!("out"),
                Err(error) => println!("failed: {:?}", error.kind()),
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    if let Ok(port) = env::var("VS_PORT") {
        return ours(port.parse()?);
    }
    measure("redis-concurrent", |port| {
        let mut command = Command::new(env::current_exe()?);
        command.env("VS_PORT", port.to_string());
        Ok(command)
    })?;
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if Command::new(&python)
        .args(["-c", "import redis"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
    {
        measure("redis-py", |port| {
            let mut command = Command::new(&python);
            command.args(["-c", PYTHON, &port.to_string()]);
            Ok(command)
        })?;
    }
    let path = Command::new("ci/java.sh").stderr(Stdio::null()).output();
    if let Some(path) = path.ok().filter(|it| it.status.success()) {
        let path = String::from_utf8(path.stdout)?;
        measure("Redisson", |port| {
            let mut command = Command::new("java");
            let lease = LEASE.as_millis().to_string();
            command.args(["-cp", path.trim(), "Peer", &port.to_string(), "vs", &lease]);
            Ok(command)
        })?;
    }
    Ok(())
}

fn measure(name: &str, peer: impl Fn(u16) -> Result<Command, Failure>) -> Result<(), Failure> {
    let server = RedisServer::start()?;
    let monitor = Monitor::start(server.port())?;
    let start = || Peer::start(peer(server.port())?);
    let (mut holder, mut waiter) = (start()?, start()?);
    let ms = |from: Instant| format!("{:.0} ms", from.elapsed().as_secs_f64() * 1000.0);
    println!("{name}");

    for _ in 0..3 {
        holder.ask("lock")?;
        holder.ask("unlock")?;
    }
    let before = monitor.counts();
    for _ in 0..PAIRS {
        holder.ask("lock")?;
        holder.ask("unlock")?;
    }
    let after = monitor.counts();
    let each = [0, 1].map(|i| (after[i] - before[i]) as f64 / PAIRS as f64);
    println!("  lock and unlock: {:.2} requests, {:.2} commands in the server", each[0], each[1]);

    // The first wait, which includes one-time work, does not count.
    for counted in [false, true] {
        holder.ask("lock")?;
        let before = monitor.counts();
        waiter.tell("lock")?;
        thread::sleep(Duration::from_secs(2));
        let after = monitor.counts();
        holder.tell("unlock")?;
        let began = Instant::now();
        waiter.hear()?;
        let passed = ms(began);
        holder.hear()?;
        waiter.ask("unlock")?;
        if counted {
            println!("  2 s of waiting, renewals of the holder included: {} requests", after[0] - before[0]);
            println!("  a release: the waiter is in after {passed}");
        }
    }

    holder.ask("lock")?;
    waiter.tell("lock")?;
    thread::sleep(Duration::from_millis(500));
    server.kill_clients(ClientKind::PubSub)?;
    holder.tell("unlock")?;
    let began = Instant::now();
    waiter.hear()?;
    println!("  its message lost, as the connection breaks: {}", ms(began));
    holder.hear()?;
    waiter.ask("unlock")?;

    holder.ask("lock")?;
    thread::sleep(LEASE.mul_f64(1.5));
    let kept = holds(&server)?;
    println!("  work of 1.5 leases: {}", if kept { "still held" } else { "no longer held" });
    let reply = holder.ask("unlock")?;
    println!("  and its release: {reply}");

    holder.ask("lock")?;
    waiter.tell("lock")?;
    thread::sleep(Duration::from_millis(500));
    drop(holder);
    let began = Instant::now();
    waiter.hear()?;
    println!("  kill -9 of the holder: the waiter is in after {}", ms(began));
    waiter.ask("unlock")?;

    let mut holder = start()?;
    holder.ask("lock")?;
    if name == "redis-concurrent" {
        holder.tell("lost")?;
    }
    server.stop()?;
    let began = Instant::now();
    let silent = LEASE + Duration::from_secs(2);
    if name == "redis-concurrent" {
        holder.hear()?;
        println!("  Redis silent: the holder is told after {}", ms(began));
    }
    thread::sleep(silent.saturating_sub(began.elapsed()));
    server.cont()?;
    println!("  Redis back after {} s: the holder's release: {}", silent.as_secs(), holder.ask("unlock")?);
    Ok(())
}

/// Whether the lock's own key exists, in any of the forms.
fn holds(server: &RedisServer) -> Result<bool, Failure> {
    Ok(server.keys()?.iter().any(|key| key == "vs" || key == "rc:{vs}"))
}
