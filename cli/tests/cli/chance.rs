//! A randomized test: programs contend for one lock, while Redis is stopped, killed and flushed, the lock is
//! broken, and programs are killed, stopped, continued, told to end, and lose their terminal. A draw combines a
//! caller's condition (what it ignores and blocks, no /proc, a pid namespace), a job (without a terminal, in its
//! foreground, in its background), a standard input and a command (what it ignores, starts, reads and closes).
//! Two commands never run at once; of several slots, never two with one number. Nothing is left at the end.
//!
//! Each command takes a file lock of the kernel, one for each number, which ends with the last process that it has
//! started: the kernel is the judge.
//! `RUNS=1000 SEED=7 cargo test --package redis-concurrent-cli --test cli by_chance -- --nocapture`

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{LONG, PROGRAM, Started, done, kill};
use crate::inherits::namespaces;
use crate::terminal::OnTerminal;

const LEASE: &str = "3s";
const LEASE_TIME: Duration = Duration::from_secs(3);
/// The status of a command that was not alone.
const TWO: i32 = 99;
/// Those that no draw explains: usage, a bug, a right, a setting, a command that is not executed.
const STRANGE: [i32; 7] = [64, 70, 77, 78, TWO, 126, 127];

/// Commands that run for `$0` seconds, or with something that they have started for `$1` at most; none ends by
/// itself before what it has started.
const COMMANDS: [&str; 12] = [
    "exec sleep $0",
    "exec <&- >&- 2>&-; exec sleep $0",
    "trap '' TERM HUP INT; sleep $0",
    "sleep $0 & trap 'wait; exit 3' TERM HUP INT; wait",
    "sleep $0 | cat",
    "cat /dev/zero | sleep $0",
    "(trap '' TERM HUP INT; exec sleep $0) & wait",
    "( (trap '' TERM; exec sleep $0) & ); exec sleep $1",
    "setsid sleep $0 & exec sleep $1",
    "head -c 100000 /dev/zero >&2; exec <&- >&- 2>&-; sleep $0",
    // What would leave it stopped is ignored by the one that continues it.
    "(trap '' TERM HUP INT QUIT USR1 USR2 ALRM PIPE VTALRM; sleep 0.2; kill -STOP $$; sleep 0.5; kill -CONT $$) & \
        sleep $0; wait",
    "read x < /dev/tty; sleep $0",
];

/// How many of them, the first ones, start nothing: without /proc nothing else is found when they are killed.
const ALONE: u64 = 2;

/// What callers do to the program that they start; the last two only where namespaces can be made.
const CALLERS: [&[&str]; 8] = [
    &[],
    &["setsid", "--wait"],
    &["nohup"],
    &["env", "--ignore-signal=TERM", "--ignore-signal=CHLD"],
    &["env", "--block-signal=TERM", "--block-signal=CHLD", "--block-signal=CONT"],
    &["env", "--ignore-signal=INT", "--block-signal=HUP", "--ignore-signal=PIPE"],
    &["unshare", "-r", "--pid", "--fork", "--kill-child", "--mount-proc"],
    &WITHOUT_PROC,
];
const WITHOUT_PROC: [&str; 7] =
    ["unshare", "-r", "--mount", "sh", "-c", "mount -t tmpfs none /proc; exec \"$@\"", "sh"];

/// What a shell does with it: without a terminal by itself, and as a job; on one in its foreground, and in its
/// background, from which it comes to the foreground. `{}` stands for its standard input.
const JOBS: [&str; 4] = [
    "exec \"$@\" {}",
    "set -m; \"$@\" {} & while [ -n \"$(jobs -r; jobs -s)\" ]; do sleep 0.2; done; wait $!",
    "set -m; \"$@\" {}; s=$?; while [ -n \"$(jobs -s)\" ]; do sleep 0.3; fg; s=$?; done; exit $s",
    "set -m; \"$@\" {} & sleep 1; s=0; while [ -n \"$(jobs -r; jobs -s)\" ]; do fg; s=$?; sleep 0.3; done; exit $s",
];

/// Its own, which is the terminal where there is one; a file; none.
const INPUTS: [&str; 3] = ["", "< /dev/null", "<&-"];

const SIGNALS: [&str; 14] = [
    "KILL", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "PIPE", "CHLD", "WINCH", "VTALRM", "URG",
    "CONT",
];
const STOPS: [&str; 4] = ["STOP", "TSTP", "TTIN", "TTOU"];
/// Ctrl-C, Ctrl-Z, Ctrl-\.
const KEYS: [&[u8]; 3] = [b"\x03", b"\x1a", b"\x1c"];

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.below(2 * LEASE_TIME.as_millis() as u64))
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The processes in whose environment this is.
fn processes(variable: &str) -> Vec<u32> {
    let has = |environ: Vec<u8>| String::from_utf8_lossy(&environ).contains(&format!("{variable}\0"));
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter(|it| fs::read(it.path().join("environ")).is_ok_and(has));
    all.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

enum Place {
    Plain(Started),
    Terminal(OnTerminal),
}

/// A program that was started, by whatever caller.
struct Drawn {
    /// In the environment of all of its processes.
    mark: String,
    place: Place,
}

impl Drawn {
    /// Its process that begins with these arguments: the one in front, or the holder.
    fn process(&self, first: [&str; 2]) -> Option<u32> {
        let begins = |pid: &u32| {
            let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            args.starts_with(format!("{}\0{}\0", first[0], first[1]).as_bytes())
        };
        processes(&self.mark).into_iter().find(begins)
    }

    /// The process in front, or all of its group, as `kill` calls it.
    fn target(&self, group: bool) -> Option<String> {
        let pid = self.process([PROGRAM, "-v"])?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of_group = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2));
        Some(of_group.filter(|_| group).map_or(pid.to_string(), |id| format!("-{id}")))
    }

    fn signal(&self, name: &str, group: bool) {
        if let Some(target) = self.target(group) {
            // It may have ended meanwhile.
            kill(name, &target);
        }
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.place {
            Place::Plain(it) => it.has_ended(),
            Place::Terminal(it) => {
                // Whoever reads from it shall go on.
                it.types_if_it_can(b"\n");
                it.has_ended()
            }
        }
    }

    /// How it ended, and what it printed.
    fn end(self) -> (Option<i32>, String) {
        match self.place {
            Place::Plain(it) => {
                let it = it.done();
                (it.code, format!("{it:?}"))
            }
            Place::Terminal(it) => it.end(),
        }
    }
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
    let writes = |what: &str| format!("echo {what}:$REDIS_CONCURRENT_SLOT >> {log}");
    let alone = format!(
        r#"exec 9>> {lock}$REDIS_CONCURRENT_SLOT; flock -n 9 || {{ {}; exit {TWO}; }}; {}; exec sh -c "$0" $1 $2"#,
        writes("two"),
        writes("ran")
    );
    let url = server.url();
    let callers = &CALLERS[..CALLERS.len() - if namespaces() { 0 } else { 2 }];
    // What happened, and when, to be printed on a failure.
    let (began, mut diary) = (Instant::now(), Vec::new());
    let mut started = 0;
    let mut start = |chance: &mut Chance, diary: &mut Vec<String>| {
        started += 1;
        let (seconds, tenths) = (chance.below(3), chance.below(10));
        let [length, longer] = [0, 2].map(|more| format!("{}.{tenths}", seconds + more));
        // Without /proc no more namespaces can be made.
        let (outer, inner) = (chance.of(&callers[..6]), chance.of(callers));
        let commands = if inner == WITHOUT_PROC { ALONE } else { COMMANDS.len() as u64 };
        let what = COMMANDS[chance.below(commands) as usize];
        let job = chance.below(4) as usize;
        let (input, to) = (chance.of(&INPUTS), folder.path().display());
        let shell = format!("cd {to}; ulimit -c 0; {}", JOBS[job].replace("{}", input));
        diary.push(format!("{:?}: {started} is {shell} {outer:?} {inner:?} {what}", began.elapsed()));
        let mark = format!("CHANCE={url}#{started}");
        let redis = format!("REDIS_URL={url}");
        let run = ["-v", "run", "-w", "60s", "--lease", LEASE, "--grace", "1400ms", "--status-fd", "1"];
        let command = ["job", "--", "sh", "-c", &alone, what, &length, &longer];
        let shell = ["env", "--default-signal", &mark, &redis, "bash", "--norc", "-c", &shell, "bash"];
        let all = [&shell, outer, inner, &[PROGRAM], &run, options, &command].concat();
        let place = if job < 2 {
            let mut command = Command::new("setsid");
            command.arg("--wait").args(all).stdin(Stdio::null());
            Place::Plain(Started::new(command))
        } else {
            Place::Terminal(OnTerminal::of(&all))
        };
        Drawn { mark, place }
    };
    let mut crowd: Vec<Drawn> = (0..size).map(|_| start(&mut chance, &mut diary)).collect();
    let mut faults = [0usize; 9];
    let mut ended = 0;
    while ended + size < runs.max(size) {
        thread::park_timeout(Duration::from_millis(200 + chance.below(1500)));
        let fault = chance.below(9) as usize;
        faults[fault] += 1;
        let one = chance.below(size as u64) as usize;
        let group = chance.below(2) == 0;
        diary.push(format!("{:?}: fault {fault} (of {}, group: {group})", began.elapsed(), crowd[one].mark));
        match fault {
            0 => {
                server.stop().unwrap();
                thread::park_timeout(chance.pause());
                server.cont().unwrap();
            }
            1 => {
                server.kill().unwrap();
                server.restart().unwrap();
            }
            2 => drop(redis::cmd("FLUSHALL").exec(&mut server.connection().unwrap())),
            3 => drop(done(&url, &["break", "--yes", "job", "--whoever", "--reason", "chance"])),
            4 => crowd[one].signal(chance.of(&SIGNALS[..4]), false),
            5 => crowd[one].signal(chance.of(&SIGNALS), group),
            // The part that holds the lock, if it has been started and not ended yet.
            6 => {
                if let Some(holder) = crowd[one].process(["redis-concurrent", "__hold"]) {
                    kill("KILL", &holder.to_string());
                }
            }
            7 => {
                let (target, stop, pause) = (crowd[one].target(group), chance.of(&STOPS), chance.pause());
                target.iter().for_each(|it| _ = kill(stop, it));
                thread::park_timeout(pause);
                // The process in front may have ended meanwhile, and its caller still be stopped.
                target.iter().for_each(|it| _ = kill("CONT", it));
            }
            _ => match &mut crowd[one].place {
                Place::Plain(_) => crowd[one].signal(chance.of(&["INT", "HUP"]), group),
                Place::Terminal(it) if group => it.types_if_it_can(chance.of(&KEYS)),
                Place::Terminal(_) => {
                    let next = start(&mut chance, &mut diary);
                    if let Place::Terminal(it) = std::mem::replace(&mut crowd[one], next).place {
                        it.hangs_up();
                    }
                    ended += 1;
                }
            },
        }
        for it in &mut crowd {
            if it.has_ended() {
                let before = std::mem::replace(it, start(&mut chance, &mut diary));
                let mark = before.mark.clone();
                diary.push(format!("{:?}: {mark} ended: {:?}", began.elapsed(), before.end()));
                ended += 1;
            }
        }
    }
    let end = Instant::now() + 3 * LONG;
    while Instant::now() < end && crowd.iter_mut().any(|it| !it.has_ended()) {
        thread::park_timeout(Duration::from_millis(50));
    }
    for mut it in crowd {
        let (mark, ended) = (it.mark.clone(), it.has_ended());
        if !ended {
            let args = processes(&mark).into_iter().map(|pid| {
                let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
                format!("{} {}", read("stat"), read("cmdline").replace('\0', " "))
            });
            let args = args.collect::<Vec<_>>().join("\n");
            panic!("SEED={seed}: {mark} does not end:\n{}\n{args}", diary.join("\n"));
        }
        diary.push(format!("{:?}: {mark} ended: {:?}", began.elapsed(), it.end()));
    }
    let log = fs::read_to_string(log).unwrap_or_default();
    let ran = log.lines().filter(|line| line.starts_with("ran:")).count();
    println!(
        "{} programs, {ran} commands ran, faults {faults:?} (stop, kill, flush, break, KILL, TERM, INT or HUP, any \
        signal, KILL of the holder, stopped and continued, a key or the terminal closed)",
        ended + size
    );
    let failed = |what: &str, at: usize| -> ! {
        let around = diary[at.saturating_sub(20)..diary.len().min(at + 5)].join("\n");
        panic!("SEED={seed}: {what}:\n{around}")
    };
    for code in STRANGE {
        if let Some(at) = diary.iter().position(|it| it.contains(&format!("ended: (Some({code}),"))) {
            failed(&format!("one ended with {code}"), at);
        }
    }
    let expected = |line: &str| numbers.iter().any(|it| line == format!("ran:{it}"));
    if let Some(line) = log.lines().find(|line| !expected(line)) {
        failed(&format!("two commands ran at once, or with another number: {line}"), diary.len());
    }
    assert!(ran > 0, "SEED={seed}: no command ran");
    // A program that is deaf to the end of its terminal waits for as long as its -w says.
    wait_until(3 * LONG, "no process is left", || processes(&format!("REDIS_URL={url}")).is_empty());
}
