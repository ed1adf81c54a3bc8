//! Job control: what a shell, or anyone, stops and continues.

use std::path::Path;

use redis_concurrent_testkit::wait_until;

use crate::fixture::{LONG, PROGRAM, Started, client, line_of, program, shared, signal};
use crate::signals::says_its_pid;
use crate::terminal::OnTerminal;

/// The state of a process, as `T` for stopped.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

#[track_caller]
fn until_stopped(pid: u32, is: bool) {
    // `D`: a shell that waits for a child which was stopped before it became another program (vfork).
    wait_until(LONG, &format!("{pid} is stopped, or continued"), || "TD".contains(state(pid)) == is);
}

/// A shell with job control that runs this script; `$RUN` starts the program.
fn shell(script: &str) -> OnTerminal {
    let script = format!("set -m; RUN='{PROGRAM} run --lease 4s'; {script}");
    OnTerminal::of(&["bash", "--norc", "--noprofile", "-c", &script])
}

fn pid_of(file: &Path) -> u32 {
    let pid = line_of(file).parse().unwrap();
    std::fs::remove_file(file).unwrap();
    pid
}

/// The command of a stopped job does not run on, and the lock is not another's when it continues.
#[test]
fn control_z_stops_the_command_and_keeps_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let [file, go] = ["pid", "go"].map(|name| folder.path().join(name));
    let lock = client(shared()).reentrant_lock("job");
    for input in ["", "< /dev/null", "<&-"] {
        let _ = std::fs::remove_file(&go);
        let lives = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", go.display());
        let command = says_its_pid(&file, &lives).replace('$', "\\$");
        let mut it = shell(&format!(
            "$RUN job -- sh -c \"{command}\" {input}; echo stopped $?; read x; fg; echo ended $?"
        ));
        let pid = pid_of(&file);
        it.types(b"\x1a");
        it.shows("stopped 147");
        until_stopped(pid, true);
        // It is renewed while the job is stopped.
        for _ in 0..2 {
            let left = || lock.holder().unwrap().and_then(|it| it.remaining).unwrap_or_default();
            let mut before = left();
            wait_until(LONG, "the lock is renewed", || {
                let grew = left() > before;
                before = left();
                grew
            });
        }
        until_stopped(pid, true);
        it.types(b"\n");
        until_stopped(pid, false);
        std::fs::write(&go, "").unwrap();
        it.shows("ended 6");
        it.ends(0);
    }
}

#[test]
fn a_stopped_job_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let command = says_its_pid(&file, "exec sleep 60").replace('$', "\\$");
    let mut it = shell(&format!("$RUN job-gone -- sh -c \"{command}\"; echo stopped; read x"));
    let pid = pid_of(&file);
    it.types(b"\x1a");
    it.shows("stopped");
    until_stopped(pid, true);
    it.hangs_up();
    wait_until(LONG, "the command is dead", || !crate::fixture::is_alive(pid));
    let lock = client(shared()).reentrant_lock("job-gone");
    wait_until(LONG, "the lock is free", || !lock.is_locked().unwrap());
}

/// A job in the background that asks the terminal is stopped, and says so; it can be continued and ended.
#[test]
fn a_command_that_wants_the_terminal_in_the_background_is_not_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    for input in ["", "< /dev/null"] {
        let command = says_its_pid(&file, "read x < /dev/tty; echo got $x; exit 3").replace('$', "\\$");
        let begin = format!("$RUN job-tty -- sh -c \"{command}\" {input} & echo job $!;");
        let mut it = shell(&format!("{begin} read x; fg; echo ended $?"));
        let pid = pid_of(&file);
        it.shows("COMMAND is stopped by SIGTTIN, and keeps its lock");
        until_stopped(pid, true);
        it.types(b"\n");
        until_stopped(pid, false);
        it.types(b"hello\n");
        it.shows("got hello");
        it.shows("ended 3");
        it.ends(0);
        let it = shell(&format!("{begin} wait $!; echo ended $?"));
        let pid = pid_of(&file);
        until_stopped(pid, true);
        let screen = it.shows("job ");
        let job = screen.split("job ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        signal(job, "TERM");
        it.shows("ended 143");
        it.ends(0);
    }
}

/// Nobody could continue it.
#[test]
fn control_z_without_a_shell_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [file, go] = ["pid", "go"].map(|name| folder.path().join(name));
    let lives = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", go.display());
    let command = says_its_pid(&file, &lives);
    let mut it = OnTerminal::of(&[PROGRAM, "run", "--lease", "4s", "no-shell", "--", "sh", "-c", &command]);
    let pid = pid_of(&file);
    it.types(b"\x1a");
    it.shows("^Z");
    until_stopped(pid, false);
    std::fs::write(&go, "").unwrap();
    it.ends(6);
}

#[test]
fn control_c_ends_the_loop_of_a_script() {
    for input in ["", "< /dev/null"] {
        let script = format!(
            "for i in 1 2 3; do {PROGRAM} run --lease 4s loop sh -c 'echo up; exec sleep 60' {input}; done; echo behind"
        );
        let mut it = OnTerminal::of(&["bash", "--norc", "-c", &script]);
        it.shows("up");
        it.types(b"\x03");
        let screen = it.ends(130);
        assert!(!screen.contains("behind"), "{screen}");
    }
}

/// What others stop: a stop is passed on where a shell can continue it, and SIGTERM ends a stopped command.
#[test]
fn a_stopped_command_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let command = says_its_pid(&file, "exec sleep 60");
    for (stop, end, code) in
        [("STOP", "TERM", 143), ("TSTP", "HUP", 129), ("TTIN", "INT", 130), ("TTOU", "TERM", 143)]
    {
        let args = ["run", "--lease", "4s", "stopped", "--", "sh", "-c", &command];
        let it = Started::new(program(&shared().url(), &args));
        let pid = pid_of(&file);
        signal(pid, stop);
        until_stopped(pid, true);
        it.signal(end);
        it.done().ends(code);
    }
}

#[test]
fn a_stop_of_the_job_stops_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    for stop in ["TSTP", "TTIN", "TTOU"] {
        let command = says_its_pid(&file, "exec sleep 60").replace('$', "\\$");
        // `wait`, with `-f` too, returns now and then for a job that is only stopped.
        let it = shell(&format!(
            "$RUN job-{stop} -- sh -c \"{command}\" & echo job $!; \
             while [ -n \"$(jobs -r; jobs -s)\" ]; do sleep 0.05; done; wait $!; echo ended $?"
        ));
        let pid = pid_of(&file);
        let screen = it.shows("job ");
        let job = screen.split("job ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        signal(job, stop);
        until_stopped(pid, true);
        until_stopped(job, true);
        signal(job, "CONT");
        until_stopped(pid, false);
        signal(job, "TERM");
        it.shows("ended 143");
        it.ends(0);
    }
}
