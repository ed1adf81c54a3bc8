//! A randomized test: programs contend for one lock, while Redis is stopped, killed and flushed, the lock is
//! broken and programs are killed. Two commands never run at once.
//!
//! Each command takes a file lock of the kernel, which ends with its process: the kernel is the judge. A
//! command that is refused it exits with a status of its own, which the program passes on in its last line.
//! `RUNS=1000 SEED=7 cargo test --package redis-concurrent-cli --test cli by_chance -- --nocapture`

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redis_concurrent_testkit::RedisServer;

use crate::stage::{Started, done, program};

/// How many programs contend for it at a time.
const CROWD: usize = 3;
const LEASE: &str = "3s";
const LEASE_TIME: Duration = Duration::from_secs(3);
/// The status of a command that was not alone.
const TWO: &str = "99";

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn by_chance_never_two_commands_run_at_once() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("SEED").unwrap_or(u64::from(now.subsec_nanos())).max(1);
    let runs = number("RUNS").unwrap_or(12) as usize;
    println!("SEED={seed} RUNS={runs}");
    let mut chance = Chance(seed);
    let server = RedisServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (lock, log) = (path("lock"), path("log"));
    let script = format!("echo ran >> {log}; exec sleep $0");
    let url = server.url();
    let start = |chance: &mut Chance| {
        let length = format!("{}.{}", chance.below(3), chance.below(10));
        let args = [
            "-v",
            "run",
            "-w",
            "60s",
            "--lease",
            LEASE,
            "--grace",
            "1400ms",
            "--status-fd",
            "1",
            "job",
            "--",
            "flock",
            "--no-fork",
            "-n",
            "-E",
            TWO,
            &lock,
            "sh",
            "-c",
            &script,
            &length,
        ];
        Started::new(program(&url, &args))
    };
    let mut crowd: Vec<Started> = (0..CROWD).map(|_| start(&mut chance)).collect();
    let mut started = CROWD;
    let mut faults = [0usize; 6];
    // What happened, and when, to be printed on a failure.
    let (began, mut diary) = (Instant::now(), Vec::new());
    while started < runs.max(CROWD) {
        thread::park_timeout(Duration::from_millis(200 + chance.below(1500)));
        let fault = chance.below(6) as usize;
        faults[fault] += 1;
        let one = chance.below(CROWD as u64) as usize;
        diary.push(format!("{:?}: fault {fault} (of {})", began.elapsed(), crowd[one].pid()));
        match fault {
            0 => {
                server.stop().unwrap();
                thread::park_timeout(Duration::from_millis(chance.below(2 * LEASE_TIME.as_millis() as u64)));
                server.cont().unwrap();
            }
            1 => {
                server.kill().unwrap();
                server.restart().unwrap();
            }
            2 => drop(redis::cmd("FLUSHALL").exec(&mut server.connection().unwrap())),
            3 => drop(done(&url, &["break", "job", "--whoever", "--reason", "chance"])),
            4 => crowd[one].signal_if_running("KILL"),
            _ => crowd[one].signal_if_running("TERM"),
        }
        for it in &mut crowd {
            if it.has_ended() {
                let before = std::mem::replace(it, start(&mut chance));
                diary.push(format!("{:?}: {} ended: {:?}", began.elapsed(), before.pid(), before.done()));
                started += 1;
            }
        }
    }
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end && crowd.iter_mut().any(|it| !it.has_ended()) {
        thread::park_timeout(Duration::from_millis(50));
    }
    for it in crowd {
        diary.push(format!("{:?}: {} ended: {:?}", began.elapsed(), it.pid(), it.done()));
    }
    let log = fs::read_to_string(log).unwrap_or_default();
    let ran = log.lines().filter(|line| *line == "ran").count();
    println!(
        "{started} programs, {ran} commands ran, faults {faults:?} (stop, kill, flush, break, KILL, TERM)"
    );
    assert!(ran > 0, "SEED={seed}: no command ran");
    let two = diary.iter().position(|it| it.contains(&format!("\\\"code\\\":{TWO}")));
    let around = |at: usize| diary[at.saturating_sub(20)..diary.len().min(at + 5)].join("\n");
    assert!(
        two.is_none(),
        "SEED={seed}: two commands ran at once:\n{}",
        two.map_or_else(String::new, around)
    );
}
