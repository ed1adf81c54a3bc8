//! Signals to the program, and its death.

use std::path::{Path, PathBuf};

use redis_concurrent_testkit::wait_until;

use crate::fixture::{LONG, PROGRAM, Started, client, done, is_alive, kill, line_of, program, run, shared};

/// A script that writes its process id to this file.
pub fn says_its_pid(file: &Path, then: &str) -> String {
    format!("echo $$ > {0}.new; mv {0}.new {0}; {then}", file.display())
}

fn started(name: &str, file: &Path, then: &str) -> (Started, u32) {
    let script = says_its_pid(file, then);
    let it =
        Started::new(program(&shared().url(), &["run", "--lease", "4s", name, "--", "sh", "-c", &script]));
    let pid = line_of(file).parse().unwrap();
    (it, pid)
}

#[test]
fn they_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT"] {
        let file = folder.path().join(name);
        let trap = format!(
            "trap 'exit 42' {name}; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.02; done",
            file.display()
        );
        let it = Started::new(program(&shared().url(), &["run", "--lease", "4s", name, "sh", "-c", &trap]));
        line_of(&file);
        it.signal(name);
        it.done().ends(42);
    }
}

#[test]
fn a_wait_is_given_up() {
    let lock = client(shared()).reentrant_lock("given-up");
    let guard = lock.lock().unwrap();
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let it = Started::new(program(&shared().url(), &["run", "--lease", "4s", "given-up", "echo", "no"]));
        wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
        it.signal(name);
        assert_eq!(it.done().ends(code).out, "");
        wait_until(LONG, "its queue position is free", || lock.queue_length().unwrap() == 0);
    }
    guard.unlock().unwrap();
}

/// Returns the process below this one: of the program, the one that holds the lock.
pub fn below(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Returns how often the program's signal thread has slept: once more when it has received a signal.
fn sleeps(pid: u32) -> u64 {
    let read = |file: PathBuf| std::fs::read_to_string(file).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|it| it.unwrap().path());
    let status =
        threads.map(|it| read(it.join("status"))).find(|it| it.contains("Name:\tsignals\n")).unwrap();
    let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    slept.unwrap().trim().parse().unwrap()
}

#[test]
fn what_came_while_it_waited_is_not_for_the_command() {
    let lock = client(shared()).reentrant_lock("early");
    let guard = lock.lock().unwrap();
    let args = ["run", "--lease", "4s", "early", "--", "sh", "-c", "sleep 0.3; exit 7"];
    let it = Started::new(program(&shared().url(), &args));
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    for name in ["USR1", "USR2"] {
        let before = sleeps(it.pid());
        it.signal(name);
        wait_until(LONG, "it has received it", || sleeps(it.pid()) > before);
    }
    guard.unlock().unwrap();
    it.done().ends(7);
}

#[test]
fn what_the_caller_ignores_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = says_its_pid(&file, "while [ ! -e $0 ]; do sleep 0.02; done; exit 5");
    let go = folder.path().join("go");
    let program = crate::fixture::PROGRAM;
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        &format!("trap '' HUP; exec {program} run --lease 4s ignored sh -c \"$1\" \"$2\""),
        "sh",
        &script,
    ]);
    command.arg(&go).env("REDIS_URL", shared().url());
    let it = Started::new(command);
    let pid: u32 = line_of(&file).parse().unwrap();
    it.signal("HUP");
    crate::fixture::signal(pid, "HUP");
    std::fs::write(go, "").unwrap();
    it.done().ends(5);
}

#[test]
fn a_killed_program_takes_its_command_along() {
    let folder = tempfile::tempdir().unwrap();
    let (it, pid) = started("killed", &folder.path().join("pid"), "exec sleep 60");
    assert!(is_alive(pid));
    it.signal("KILL");
    wait_until(LONG, "the command is dead", || !is_alive(pid));
    run(&["-w", "30s", "killed", "true"]).ends(0);
}

/// To the program alone, and to its process group, which is not the command's.
#[test]
fn whatever_signal_it_gets_it_ends_with_its_command_or_neither_does() {
    let folder = tempfile::tempdir().unwrap();
    let ends = [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31];
    // The runtime receives SIGBUS and SIGSEGV, for stack overflows, and ignores SIGPIPE.
    let does_not = [7, 11, 13, 17, 18, 20, 21, 22, 23, 28];
    let all: Vec<_> = ends.into_iter().chain(does_not).flat_map(|n| [(n, ""), (n, "-")]).collect();
    for some in all.chunks(6) {
        let begun = some.iter().map(|(n, group)| {
            let (file, name) = (folder.path().join(format!("{group}{n}")), format!("kill{group}{n}"));
            let script = says_its_pid(&file, "exec sleep 60");
            // What is killed leaves its lock to its lease, which a busy machine must have time to renew before.
            let args = ["run", "--trust-server", "--lease", "8s", &name, "--", "sh", "-c", &script];
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "ulimit -c 0; exec setsid env --default-signal \"$@\"", "sh", PROGRAM]);
            command.args(args).env("REDIS_URL", shared().url()).stdin(std::process::Stdio::null());
            (Started::new(command), file, name)
        });
        let begun: Vec<_> = begun.collect();
        for ((mut it, file, name), (n, group)) in begun.into_iter().zip(some) {
            println!("{name}");
            let pid: u32 = line_of(&file).parse().unwrap();
            let to = format!("{group}{}", it.pid());
            assert!(kill(&n.to_string(), &to));
            if does_not.contains(n) {
                assert!(is_alive(pid) && !it.has_ended());
                it.signal("TERM");
                it.done().ends(143);
            } else {
                it.done().ends(128 + n);
            }
            wait_until(LONG, "the command is dead", || !is_alive(pid));
            run(&["-w", "30s", &name, "true"]).ends(0);
        }
    }
}

#[test]
fn a_process_group_ends_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grandchild");
    let script = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60'; true", file.display());
    let it = Started::new(program(&shared().url(), &["run", "--lease", "4s", "group", "sh", "-c", &script]));
    let grandchild: u32 = line_of(&file).parse().unwrap();
    it.signal("TERM");
    it.done().ends(143);
    wait_until(LONG, "its child is dead", || !is_alive(grandchild));
}

#[test]
fn what_a_command_leaves_behind_ends_before_its_lock_is_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let [file, clean, go_on] = ["pid", "clean", "go-on"].map(|name| folder.path().join(name));
    std::fs::write(&go_on, "").unwrap();
    // The shell ends at once on SIGTERM; its child runs `at_term`.
    let begin = |terms: &[&str], at_term: &str| {
        let lives = format!("while [ -e {} ]; do sleep 0.02; done", go_on.display());
        let child = says_its_pid(&file, &lives).replacen("echo", &format!("trap '{at_term}' TERM; echo"), 1);
        let command = ["behind", "--", "sh", "-c", "sh -c \"$1\"; true", "sh", &child];
        let it = Started::new(program(&shared().url(), &[&["run"], terms, &command].concat()));
        let pid: u32 = line_of(&file).parse().unwrap();
        std::fs::remove_file(&file).unwrap();
        (it, pid)
    };
    let take_away = || done(&shared().url(), &["break", "--yes", "--whoever", "behind"]).ends(0);
    let next = |command: &[&str]| run(&[&["-w", "30s", "behind"], command].concat()).ends(0);
    // It is killed if it ignores SIGTERM,
    let (it, pid) = begin(&["--lease", "4s"], ":");
    take_away();
    next(&["true"]);
    assert!(!is_alive(pid));
    it.done().ends(80).says("what COMMAND has left behind is killed: its lock ends");
    let (mut it, pid) = begin(&["--lease", "4s", "--at-most", "2s"], ":");
    it.ended();
    assert!(!is_alive(pid));
    it.done().ends(124).says("what COMMAND has left behind is killed: it does not end");
    // and otherwise has its grace.
    let cleans = format!("sleep 0.5; echo clean > {}; exit", clean.display());
    let (it, pid) = begin(&["--lease", "12s", "--grace", "5s"], &cleans);
    take_away();
    next(&["test", "-e", clean.to_str().unwrap()]);
    assert!(!is_alive(pid));
    let it = it.done().ends(80);
    assert!(!it.err.contains("killed"), "{it:?}");
}

#[test]
fn two_hundred_at_once_run_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (marks, busy) = (folder.path().join("marks"), folder.path().join("busy"));
    // mkdir is atomic: a second one at a time fails, and says so.
    let script =
        format!("mkdir {0} || echo two >> {1}; echo in >> {1}; rmdir {0}", busy.display(), marks.display());
    let all: usize = std::env::var("RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(24).min(200);
    let started: Vec<_> = (0..all)
        .map(|_| {
            Started::new(program(
                &shared().url(),
                &["run", "-n", "--lease", "5s", "crowd", "sh", "-c", &script],
            ))
        })
        .collect();
    let codes: Vec<_> = started.into_iter().map(|it| it.done().code.unwrap()).collect();
    assert!(codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}");
    let ran = codes.iter().filter(|code| **code == 0).count();
    let marks = std::fs::read_to_string(marks).unwrap();
    assert_eq!(marks, "in\n".repeat(ran), "one at a time");
}
