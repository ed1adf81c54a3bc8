//! A randomized test: programs contend for one lock, while Redis is stopped, killed and flushed, the lock is
//! broken, and programs are killed, stopped and told to end. Callers differ in the signals that they ignore and
//! block, commands in what they ignore and start. Two commands never run at once; of several slots, never
//! two with one number. Nothing is left at the end.
//!
//! Each command takes a file lock of the kernel, one for each number, which ends with the last process that it has
//! started: the kernel is the judge. A command that is refused it exits with a status of its own, which the program
//! passes on in its last line.
//! `RUNS=1000 SEED=7 cargo test --package redis-concurrent-cli --test cli by_chance -- --nocapture`

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::signals::below;
use crate::stage::{LONG, PROGRAM, Started, done, program};

const LEASE: &str = "3s";
const LEASE_TIME: Duration = Duration::from_secs(3);
/// The status of a command that was not alone.
const TWO: &str = "99";

/// Commands that run for `$0` seconds, or with something that they have started for `$1` at most; none ends by
/// itself before what it has started.
const COMMANDS: [&str; 9] = [
    "exec sleep $0",
    "trap '' TERM HUP INT; sleep $0",
    "sleep $0 & trap 'wait; exit 3' TERM HUP INT; wait",
    "sleep $0 | cat",
    "(trap '' TERM HUP INT; exec sleep $0) & wait",
    "( (trap '' TERM; exec sleep $0) & ); exec sleep $1",
    "setsid sleep $0 & exec sleep $1",
    "head -c 100000 /dev/zero >&2; exec <&- >&- 2>&-; sleep $0",
    "(sleep 0.2; kill -STOP $$; sleep 0.5; kill -CONT $$) & sleep $0; wait",
];

/// What callers do to the program that they start.
const CALLERS: [&[&str]; 6] = [
    &[],
    &["setsid"],
    &["nohup"],
    &["env", "--ignore-signal=TERM", "--ignore-signal=CHLD"],
    &["env", "--block-signal=TERM", "--block-signal=CHLD", "--block-signal=CONT"],
    &["env", "--ignore-signal=INT", "--block-signal=HUP", "--ignore-signal=PIPE"],
];

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

/// Whether there are processes, other than this one's and the server's, in whose environment the URL is.
fn has_processes(url: &str) -> bool {
    let has = |environ: Vec<u8>| String::from_utf8_lossy(&environ).contains(&format!("REDIS_URL={url}\0"));
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.into_iter().any(|it| fs::read(it.path().join("environ")).is_ok_and(has))
}

#[test]
fn by_chance_never_two_commands_run_at_once() {
    contend(3, &[], &[""]);
}

#[test]
fn by_chance_never_two_commands_have_one_number() {
    contend(8, &["--slots", "3"], &["0", "1", "2"]);
}

/// Has so many programs at a time contend for it, whose commands may have these numbers.
fn contend(size: usize, options: &[&str], numbers: &[&str]) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("SEED").unwrap_or(u64::from(now.subsec_nanos())).max(1);
    let runs = number("RUNS").unwrap_or(4 * size as u64) as usize;
    println!("SEED={seed} RUNS={runs}");
    let mut chance = Chance(seed);
    let server = RedisServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (lock, log) = (path("lock"), path("log"));
    let alone = format!(r#"exec flock --no-fork -n -E {TWO} {lock}$REDIS_CONCURRENT_SLOT sh -c "$0" $1 $2"#);
    let url = server.url();
    let start = |chance: &mut Chance| {
        let (seconds, tenths) = (chance.below(3), chance.below(10));
        let [length, longer] = [0, 2].map(|more| format!("{}.{tenths}", seconds + more));
        let what = COMMANDS[chance.below(COMMANDS.len() as u64) as usize];
        let script = format!("echo ran:$REDIS_CONCURRENT_SLOT >> {log}; {what}");
        let caller = CALLERS[chance.below(CALLERS.len() as u64) as usize];
        let args = ["-v", "run", "-w", "60s", "--lease", LEASE, "--grace", "1400ms", "--status-fd", "1"];
        let job = ["job", "--", "sh", "-c", &alone, &script, &length, &longer];
        let mut command = program(&url, &[]);
        if let [first, rest @ ..] = caller {
            command = Command::new(first);
            command.args(rest).arg(PROGRAM).env("REDIS_URL", &url).stdin(Stdio::null());
        }
        command.args(args).args(options).args(job);
        Started::new(command)
    };
    let mut crowd: Vec<Started> = (0..size).map(|_| start(&mut chance)).collect();
    let mut started = size;
    let mut faults = [0usize; 9];
    // What happened, and when, to be printed on a failure.
    let (began, mut diary) = (Instant::now(), Vec::new());
    while started < runs.max(size) {
        thread::park_timeout(Duration::from_millis(200 + chance.below(1500)));
        let fault = chance.below(9) as usize;
        faults[fault] += 1;
        let one = chance.below(size as u64) as usize;
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
            3 => drop(done(&url, &["break", "--yes", "job", "--whoever", "--reason", "chance"])),
            4 => crowd[one].signal_if_running("KILL"),
            5 => crowd[one].signal_if_running("TERM"),
            6 => {
                // The part that holds the lock, if it has been started and not ended yet.
                if !crowd[one].has_ended()
                    && let Some(holder) = below(crowd[one].pid())
                {
                    drop(Command::new("kill").args(["-KILL", &holder.to_string()]).output());
                }
            }
            7 => {
                crowd[one].signal_if_running("STOP");
                thread::park_timeout(Duration::from_millis(chance.below(2 * LEASE_TIME.as_millis() as u64)));
                crowd[one].signal_if_running("CONT");
            }
            _ => crowd[one].signal_if_running(["INT", "HUP"][chance.below(2) as usize]),
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
    let ran = log.lines().count();
    println!(
        "{started} programs, {ran} commands ran, faults {faults:?} \
        (stop, kill, flush, break, KILL, TERM, KILL of the holder, STOP, INT or HUP)"
    );
    assert!(ran > 0, "SEED={seed}: no command ran");
    let strange = log.lines().find(|line| !numbers.iter().any(|it| *line == format!("ran:{it}")));
    assert_eq!(strange, None, "SEED={seed}");
    wait_until(LONG, "no process is left", || !has_processes(&url));
    let two = diary.iter().position(|it| it.contains(&format!("\\\"code\\\":{TWO}")));
    let around = |at: usize| diary[at.saturating_sub(20)..diary.len().min(at + 5)].join("\n");
    assert!(
        two.is_none(),
        "SEED={seed}: two commands ran at once:\n{}",
        two.map_or_else(String::new, around)
    );
}
