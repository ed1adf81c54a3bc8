//! Operations whose instructions callgrind counts, in a client and, for a pair, in the server.
//!
//! What a caller's thread does by itself is counted in that thread only, so it comes out the same to the digit. What
//! several threads do is the difference of two runs of different lengths, divided by how often more it was done.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::{self, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ClientBuilder, SimpleLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

type Done<T> = Result<T, Box<dyn Error>>;

const BUDGETS: &str = include_str!("budgets.txt");
/// What a child does, how often, and where.
const ROLE: &str = "INSTRUCTIONS_ROLE";
const URL: &str = "INSTRUCTIONS_URL";
/// The function whose instructions are counted, with all that it calls.
const COUNTED: &str = "*counted_by_callgrind*";
/// The scripts of a pair, in the server.
const SERVER_PAIR: &str = "server-pair";
/// What the thread of a caller does by itself.
const CALLS: [&str; 4] = ["pair", "pair-dropped", "kept-pair", "re-entry"];
const TIMES: u64 = 100;
/// The function of the server that runs a script, with all that it calls: neither reading a request nor writing its reply.
const SCRIPT: &str = "evalShaCommand";
/// How many pairs a server runs: so many that neither the first of them nor when its Lua collects garbage counts.
const PAIRS: u64 = 500;
/// The smallest pair of scripts that lock and unlock.
const SMALLEST: [&str; 2] = [
    "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
];
/// A program under valgrind is some fifty times slower.
const PATIENT: Duration = Duration::from_secs(60);

/// Makes glibc set and copy memory in loops on each processor.
const UNREPEATED: &str =
    "glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000";

/// How the program was built that is counted.
#[derive(Clone, Copy)]
#[allow(dead_code)]
pub(crate) enum Build {
    Bench,
    Tests,
}

/// Counts each operation in children of this program, which must call [`play`] if it gets these arguments. Prints
/// the counts, and returns those that are over budget.
pub(crate) fn compare(build: Build, args: &[&str]) -> Done<Vec<String>> {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        eprintln!("NOT COUNTED: there is no valgrind (ci/setup.sh valgrind): {error}");
        return Ok(Vec::new());
    }
    let mut over = Vec::new();
    for (operation, count) in counts(args)? {
        let line = BUDGETS.lines().find_map(|line| line.strip_prefix(operation)?.strip_prefix(' '));
        let numbers = line.unwrap_or_default().split(' ').map(str::parse);
        let [bench, tests, goal] = numbers.collect::<Result<Vec<u64>, _>>()?[..] else {
            return Err(format!("{operation} has no budget").into());
        };
        let most = if let Build::Bench = build { bench } else { tests };
        let of =
            if operation == SERVER_PAIR { "% of the smallest pair's instructions" } else { "instructions" };
        println!("{operation:12} {count:7} {of} (at most {most}; goal of a bench build: {goal})");
        if count > most {
            over.push(format!("{operation}: {count} {of}, at most {most}"));
        }
    }
    Ok(over)
}

fn counts(args: &[&str]) -> Done<Vec<(&'static str, u64)>> {
    let mut counts = Vec::new();
    for operation in CALLS {
        let server = RedisServer::start()?;
        counts.push((operation, Counted::start(operation, TIMES, &server, args)?.total()? / TIMES));
    }
    let (few, many) = (hand_over(5, args)?, hand_over(25, args)?);
    counts.push(("hand-over", many.saturating_sub(few) / 20));
    let ((few, some), (many, more)) = (renewals(10, args)?, renewals(40, args)?);
    counts.push(("renewal", many.saturating_sub(few) / more.saturating_sub(some).max(1)));
    match in_server(true)? {
        0 => eprintln!("NOT COUNTED: this server does not name its function {SCRIPT}"),
        smallest => counts.push((SERVER_PAIR, in_server(false)? * 100 / smallest)),
    }
    Ok(counts)
}

/// Instructions of a server for pairs of the smallest scripts, or of a simple lock's.
fn in_server(smallest: bool) -> Done<u64> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let server = std::env::var("REDIS_SERVER_BIN").unwrap_or_else(|_| "redis-server".into());
    let args = [&*server, "--port", &port.to_string(), "--save", "", "--hz", "1"].map(str::to_owned);
    let counted = Counted::of(port, Some(SCRIPT), &args, &[])?;
    let url = format!("redis://127.0.0.1:{port}");
    let mut connection = None;
    wait_until(PATIENT, "the server listens", || {
        connection = redis::Client::open(&*url).and_then(|client| client.get_connection()).ok();
        connection.is_some()
    });
    let mut connection = connection.ok_or("no connection")?;
    if smallest {
        let [lock, unlock] = SMALLEST.map(redis::Script::new);
        for n in 0..PAIRS {
            // As long as the library's.
            let (key, owner) = ("rc:{stock}", format!("67e55044-10b1-426f-9247-bb680e5fe0c8:{n}"));
            lock.key(key).arg(&owner).arg(60_000).invoke::<()>(&mut connection)?;
            unlock.key(key).arg(owner).invoke::<()>(&mut connection)?;
        }
    } else {
        let client = patient(&url).connect()?;
        let simple = client.simple_lock("stock");
        (0..PAIRS).try_for_each(|_| simple.lock()?.unlock())?;
        client.close()?;
    }
    // It ends without a reply.
    let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
    counted.total()
}

/// Instructions of a client that so often waits for a lock, is handed it by this process, and releases it.
fn hand_over(times: u64, args: &[&str]) -> Done<u64> {
    let server = RedisServer::start()?;
    let locks = in_turn(&patient(&server.url()).connect()?);
    let mut guard = locks[0].lock()?;
    let child = Counted::start("hand-over", times, &server, args)?;
    for turn in 0..times as usize {
        let since = Instant::now();
        while locks[turn % 2].queue_length()? == 0 {
            if since.elapsed() > PATIENT {
                return Err("the child does not wait for the lock".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        // The child has released it, and will want it next.
        let next = locks[(turn + 1) % 2].lock()?;
        std::mem::replace(&mut guard, next).unlock()?;
    }
    child.total()
}

/// The locks that the child takes in turn, each while this process holds it.
fn in_turn(client: &Client) -> [SimpleLock; 2] {
    ["even", "odd"].map(|name| client.simple_lock(name))
}

/// Instructions of a client that holds a lock until so many requests were made, and how many there were.
fn renewals(times: u64, args: &[&str]) -> Done<(u64, u64)> {
    let server = RedisServer::start()?;
    let child = Counted::start("renewal", times, &server, args)?;
    let requests = || server.command_calls().map(|calls| calls.get("evalsha").copied().unwrap_or_default());
    wait_until(PATIENT, "renewals", || requests().is_ok_and(|made| made >= times));
    Ok((child.total()?, requests()?))
}

/// A child under callgrind.
struct Counted {
    child: Child,
    file: PathBuf,
}

impl Counted {
    fn start(operation: &str, n: u64, server: &RedisServer, args: &[&str]) -> Done<Counted> {
        let program = std::env::current_exe()?.display().to_string();
        let args: Vec<_> = [&*program].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        let role = [(ROLE, format!("{operation} {n}")), (URL, server.url())];
        Counted::of(server.port(), CALLS.contains(&operation).then_some(COUNTED), &args, &role)
    }

    /// Starts a program that counts its instructions: those of `only` this function, or all.
    fn of(port: u16, only: Option<&str>, program: &[String], env: &[(&str, String)]) -> Done<Counted> {
        let file = std::env::temp_dir().join(format!("instructions-{}-{port}", std::process::id()));
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .args(only.map(|only| format!("--toggle-collect={only}")))
            .args(program);
        // To callgrind each byte that `rep stosb` or `rep movsb` moves is an instruction.
        valgrind.env("GLIBC_TUNABLES", UNREPEATED).envs(env.iter().map(|(name, value)| (name, value)));
        let child = valgrind.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Counted { child, file })
    }

    /// Closes its input, and waits for its end. Returns how many instructions were counted.
    fn total(mut self) -> Done<u64> {
        let ended = self.child.wait()?;
        if !ended.success() {
            return Err(format!("the counted program: {ended}").into());
        }
        let text = fs::read_to_string(&self.file)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        Ok(total.ok_or("callgrind counted nothing")?.trim().parse()?)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.file);
    }
}

fn patient(url: &str) -> ClientBuilder {
    Client::builder().url(url).connect_timeout(PATIENT).command_timeout(PATIENT).lease(PATIENT)
}

/// In a child: does what its role says, if it has one. Returns whether it has.
pub(crate) fn play() -> Done<bool> {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) else { return Ok(false) };
    let (operation, n) = role.split_once(' ').ok_or("no number")?;
    let n = n.parse()?;
    let client = match operation {
        "pair-dropped" => patient(&url).drop_waits(false).connect()?,
        "renewal" => patient(&url).renew_every(Duration::from_millis(100)).connect()?,
        _ => patient(&url).connect()?,
    };
    let simple = client.simple_lock("stock");
    match operation {
        "pair" => repeated(n, || simple.lock()?.unlock())?,
        "pair-dropped" => repeated(n, || simple.lock().map(drop))?,
        "kept-pair" => {
            let kept = simple.linger(PATIENT);
            // Not before its client listens, on a thread for which callgrind may take long.
            wait_until(PATIENT, "the lock is kept", || {
                let before = client.request_count();
                kept.lock().and_then(|guard| guard.unlock()).is_ok() && client.request_count() == before
            });
            repeated(n, || kept.lock()?.unlock())?;
        }
        "re-entry" => {
            let reentrant = client.reentrant_lock("stock");
            let outer = reentrant.lock()?;
            repeated(n, || reentrant.lock()?.unlock())?;
            outer.unlock()?;
        }
        "hand-over" => {
            let locks = in_turn(&client);
            (0..n).try_for_each(|turn| locks[turn as usize % 2].lock()?.unlock())?;
        }
        _ => {
            let guard = simple.lock()?;
            io::stdin().read_to_end(&mut Vec::new())?;
            guard.unlock()?;
        }
    }
    client.close()?;
    Ok(true)
}

type Failed = redis_concurrent::Error;

fn repeated(times: u64, mut work: impl FnMut() -> Result<(), Failed>) -> Result<(), Failed> {
    // Makes the connection, and the scripts known.
    (0..10).try_for_each(|_| work())?;
    counted_by_callgrind(times, &mut work)
}

#[inline(never)]
fn counted_by_callgrind(times: u64, work: &mut dyn FnMut() -> Result<(), Failed>) -> Result<(), Failed> {
    // No closure here: its name would contain this function's.
    for _ in 0..times {
        black_box(&mut *work)()?;
    }
    Ok(())
}
