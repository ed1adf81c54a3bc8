//! What the program inherits from its caller: signals that are ignored or blocked, no /proc, being the first
//! process of a container.

use std::path::PathBuf;
use std::process::Command;

use redis_concurrent_testkit::wait_until;

use crate::fixture::{Done, LONG, PROGRAM, Started, is_alive, line_of, shared, signal};
use crate::signals::{below, says_its_pid};

const SIGNALS: [&str; 17] = [
    "HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CHLD", "PIPE", "ALRM", "TSTP", "TTIN", "TTOU", "CONT",
    "WINCH", "VTALRM", "URG", "IO",
];

fn under(caller: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(caller[0]);
    command.args(&caller[1..]).args([PROGRAM, "run", "--lease", "4s"]).args(args);
    command.env("REDIS_URL", shared().url()).stdin(std::process::Stdio::null());
    command
}

#[test]
fn signals_that_the_caller_ignores_or_blocks() {
    let folder = tempfile::tempdir().unwrap();
    // In a few rounds: each is a process or three.
    for how in ["ignore", "block"] {
        for some in SIGNALS.chunks(6) {
            let all: Vec<(Started, Started, PathBuf)> = some
                .iter()
                .map(|name| {
                    let option = format!("--{how}-signal={name}");
                    let caller = ["env", "--default-signal", &option];
                    let file = folder.path().join(format!("{how}-{name}"));
                    let lives = says_its_pid(&file, "exec sleep 60");
                    let (ends, goes) = (format!("{how}-{name}"), format!("{how}-{name}-2"));
                    let ends = Started::new(under(&caller, &[&ends, "sh", "-c", "exit 7"]));
                    (ends, Started::new(under(&caller, &[&goes, "sh", "-c", &lives])), file)
                })
                .collect();
            for ((ends, goes, file), name) in all.into_iter().zip(some) {
                println!("{how} {name}");
                ends.done().ends(7);
                let pid: u32 = line_of(&file).parse().unwrap();
                goes.signal("TERM");
                goes.done().ends(143);
                assert!(!is_alive(pid));
            }
        }
    }
}

/// Whether namespaces can be made here; the tests that need them prove nothing otherwise.
pub fn namespaces() -> bool {
    let can = Command::new("unshare").args(["-r", "--pid", "--fork", "--mount-proc", "true"]).output();
    let can = can.is_ok_and(|it| it.status.success());
    if !can {
        println!("skipped: no namespaces here");
    }
    can
}

#[test]
fn without_proc() {
    if !namespaces() {
        return;
    }
    let caller = ["unshare", "-r", "--mount", "sh", "-c", "mount -t tmpfs none /proc; exec \"$@\"", "sh"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    Done::of(under(&caller, &["no-proc", "sh", "-c", "exit 7"]).output().unwrap()).ends(7);
    Done::of(under(&caller, &["no-proc", "no-such-command"]).output().unwrap())
        .ends(127)
        .says("no-such-command");
    let lives = says_its_pid(&file, "sleep 60; exit 1");
    for (name, code) in [("TERM", 143), ("KILL", 137)] {
        let it = Started::new(under(&caller, &["no-proc", "sh", "-c", &lives]));
        let pid: u32 = line_of(&file).parse().unwrap();
        std::fs::remove_file(&file).unwrap();
        it.signal(name);
        it.done().ends(code);
        wait_until(LONG, "the command is dead", || !is_alive(pid));
        Done::of(under(&caller, &["-w", "30s", "no-proc", "true"]).output().unwrap()).ends(0);
    }
}

#[test]
fn as_the_first_process_of_a_container() {
    if !namespaces() {
        return;
    }
    let caller = ["env", "--default-signal", "unshare", "-r", "--pid", "--fork", "--mount-proc"];
    // Orphans are waited for while the command runs.
    let orphans = "for i in 1 2 3 4 5; do (sleep 0.01 &); done; n=0; \
        while sleep 0.05; [ $n -lt 200 ]; do n=$((n + 1)); \
        [ \"$(cat /proc/[0-9]*/stat | grep -c ') Z ')\" = 0 ] && [ $n -gt 10 ] && exit 7; done; exit 1";
    Done::of(under(&caller, &["first", "sh", "-c", orphans]).output().unwrap()).ends(7);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for (name, code) in [("TERM", 143), ("INT", 130), ("KILL", 137)] {
        let lives = format!("echo up > {0}; exec sleep 60", file.display());
        let it = Started::new(under(&caller, &["first", "sh", "-c", &lives]));
        line_of(&file);
        std::fs::remove_file(&file).unwrap();
        // As `docker stop`: from outside, to its first process.
        signal(below(it.pid()).unwrap(), name);
        let it = it.done();
        // Some versions of unshare exit 1 if it was killed.
        assert!(it.code == Some(code) || name == "KILL" && it.code == Some(1), "{name}: {it:?}");
        Done::of(under(&caller, &["-w", "30s", "first", "true"]).output().unwrap()).ends(0);
    }
}
