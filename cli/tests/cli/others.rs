//! What other programs that run a command do in the same place, beside this one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use redis_concurrent_testkit::wait_until;

use crate::fixture::{LONG, PROGRAM, Started, is_alive, kill, line_of, shared, signal};
use crate::signals::says_its_pid;

/// In this order: the wrapper is killed; it gets SIGTERM; it gets it while the command is stopped; the command is
/// stopped, and then the wrapper is; the command's death by SIGTERM; the same, if the caller ignores SIGCHLD.
const TABLE: [(&str, &[&str], [&str; 6]); 6] = [
    (
        "redis-concurrent run",
        &[PROGRAM, "run", "--lease", "4s", "others"],
        ["dies", "dies", "dies", "runs", "15", "15"],
    ),
    // timeout of coreutils 9, flock and setsid of util-linux 2.38, sudo 1.9, dumb-init 1.2
    ("timeout", &["timeout", "60"], ["lives", "dies", "dies", "runs", "15", "15"]),
    ("flock", &["flock", "/dev/null"], ["lives", "lives", "lives", "runs", "143", "143"]),
    // It becomes the command.
    ("setsid", &["setsid", "--wait"], ["dies", "dies", "lives", "stops", "15", "15"]),
    ("sudo", &["sudo", "-n"], ["lives", "dies", "lives", "stops", "15", "15"]),
    ("dumb-init", &["dumb-init"], ["lives", "dies", "lives", "runs", "143", "143"]),
];

/// Whether the state comes, for others' programs within a moment: `expected` says which is expected.
fn comes(expected: bool, state: impl Fn() -> bool) -> bool {
    if expected {
        wait_until(LONG, "what the table says", state);
        return true;
    }
    thread::park_timeout(Duration::from_millis(500));
    state()
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn begins(wrapper: &[&str], ignores: &str, file: &Path) -> (Started, u32) {
    let mut command = Command::new("env");
    command.args(["--default-signal", ignores]).args(wrapper);
    command.args(["sh", "-c", &says_its_pid(file, "exec sleep 60")]);
    command.env("REDIS_URL", shared().url()).stdin(Stdio::null());
    let it = Started::new(command);
    let pid = line_of(file).parse().unwrap();
    std::fs::remove_file(file).unwrap();
    (it, pid)
}

/// Returns the row of this wrapper.
fn seen(wrapper: &[&str], row: [&str; 6]) -> [String; 6] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let none = "--default-signal=TERM";
    let row_of = |stop: bool, name: &str, says: &str| {
        let (it, pid) = begins(wrapper, none, &file);
        if stop {
            signal(pid, "STOP");
            wait_until(LONG, "it is stopped", || is_stopped(pid));
        }
        it.signal(name);
        let dies = comes(says == "dies", || !is_alive(pid));
        kill("KILL", &pid.to_string());
        if dies { "dies" } else { "lives" }.to_owned()
    };
    let stopped = {
        let (it, pid) = begins(wrapper, none, &file);
        signal(pid, "STOP");
        let stops = comes(row[3] == "stops", || is_stopped(it.pid()));
        it.signal("CONT");
        kill("KILL", &pid.to_string());
        if stops { "stops" } else { "runs" }.to_owned()
    };
    let death = |ignores: &str| {
        let (it, pid) = begins(wrapper, ignores, &file);
        signal(pid, "TERM");
        it.ends_with()
    };
    let rows = [row_of(false, "KILL", row[0]), row_of(false, "TERM", row[1]), row_of(true, "TERM", row[2])];
    let [killed, ended, continued] = rows;
    [killed, ended, continued, stopped, death(none), death("--ignore-signal=CHLD")]
}

/// Those of others are facts about them, which may change: only a note says so.
#[test]
fn a_table_of_what_they_do() {
    for (name, wrapper, row) in TABLE {
        let ours = wrapper[0] == PROGRAM;
        if !ours && Command::new(wrapper[0]).arg("--version").output().is_err() {
            println!("{name} is not here");
            continue;
        }
        let seen =
            if ours { Ok(seen(wrapper, row)) } else { std::panic::catch_unwind(|| seen(wrapper, row)) };
        match seen {
            Ok(seen) if ours => assert_eq!(seen, row, "{name}"),
            Ok(seen) if seen == row => {}
            seen => println!("{name}: the table says {row:?}, it was {seen:?}"),
        }
    }
}
