//! What a command has started: it is dead before another caller holds the lock, whichever process is killed.

use std::path::Path;

use redis_concurrent_testkit::wait_until;

use crate::fixture::{LONG, Started, client, done, is_alive, line_of, program, run, shared, signal};
use crate::signals::below;

/// Commands that write lines for ever, in a process that is not the command itself. `{}` stands for the loop.
const FORMS: [(&str, &str); 5] = [
    ("a pipe", "{} | cat"),
    ("a child that ignores SIGTERM", "(trap '' TERM; {}) & wait"),
    (
        "a child that ignores SIGHUP and has closed its descriptors",
        "(trap '' HUP; exec <&- >&- 2>&-; {}) & wait",
    ),
    ("a double fork", "( ({}) & ); sleep 60"),
    ("a daemon", "LOOP='{}'; setsid sh -c \"$LOOP\" & sleep 60"),
];

/// A lease that no machine outlasts by standing still.
const LASTS: &str = "60s";

/// Starts a command of this form that writes to `log`, and returns once it writes.
fn writes(name: &str, form: &str, log: &Path, lease: &str) -> Started {
    let _ = std::fs::remove_file(log);
    let text = form.replace("{}", &format!("while :; do echo x >> {}; sleep 0.01; done", log.display()));
    let args = ["run", "--trust-server", "--grace", "600ms", "--lease", lease, "-c", &text, name];
    let mut command = program(&shared().url(), &args);
    command.env("SHELL", "/bin/sh");
    let it = Started::new(command);
    line_of(log);
    it
}

/// The next holder counts the lines twice.
#[track_caller]
fn is_silent_when_another_begins(name: &str, form: &str, log: &Path) {
    let counts = format!("wc -l < {0}; sleep 0.2; wc -l < {0}", log.display());
    let args = ["run", "--trust-server", "-w", "30s", name, "sh", "-c", &counts];
    let it = done(&shared().url(), &args).ends(0);
    let lines: Vec<_> = it.out.lines().collect();
    assert_eq!(lines[0], lines[1], "{form}: it still writes");
}

/// `ROUNDS=100` repeats it as often.
#[test]
fn nothing_is_at_work_when_another_begins() {
    let rounds: u32 = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (i, (form, text)) in FORMS.into_iter().enumerate() {
            let (name, log) = (format!("leftovers-{i}"), folder.path().join(i.to_string()));
            scope.spawn(move || (0..rounds).for_each(|_| dies_with_its_lock(&name, form, text, &log)));
        }
    });
}

fn dies_with_its_lock(name: &str, form: &str, text: &str, log: &Path) {
    // The program is killed, and the lock is free as soon as all is dead;
    let it = writes(name, text, log, LASTS);
    it.signal("KILL");
    is_silent_when_another_begins(name, form, log);
    it.done().ends(137);
    // its part that holds the lock is, which ends with the lease;
    let it = writes(name, text, log, "4s");
    signal(below(it.pid()).unwrap(), "KILL");
    it.done().ends(137).says("COMMAND is killed: the process that held its lock was ended by signal 9");
    is_silent_when_another_begins(name, form, log);
    // it is asked to end;
    let it = writes(name, text, log, LASTS);
    it.signal("TERM");
    it.done().ends(143);
    is_silent_when_another_begins(name, form, log);
    // and the lock is taken away.
    let it = writes(name, text, log, LASTS);
    done(&shared().url(), &["break", "--yes", "--whoever", name]).ends(0);
    it.done().ends(80);
    is_silent_when_another_begins(name, form, log);
}

#[test]
fn what_a_command_that_ends_by_itself_has_started_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let [file, go] = ["pid", "go"].map(|name| folder.path().join(name));
    let child = format!(
        "exec <&- >&- 2>&-; while [ ! -e {0} ]; do sleep 0.02; done; echo x > {1}",
        go.display(),
        file.display()
    );
    run(&["daemon", "setsid", "-f", "sh", "-c", &child]).ends(0);
    run(&["-n", "daemon", "true"]).ends(0);
    std::fs::write(&go, "").unwrap();
    line_of(&file);
}

#[test]
fn a_reader_that_does_not_read_keeps_no_command_alive() {
    let (reader, writer) = std::io::pipe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("full");
    // Fills the pipe: of standard error only, so that the next write there blocks.
    let fills = format!(
        "trap '' TERM; echo $$ > {0}.pid; (head -c 60000 /dev/zero >&2; echo x > {0}; exec cat /dev/zero >&2)",
        file.display()
    );
    let args = ["run", "--lease", "4s", "--grace", "500ms", "unread-err", "--", "sh", "-c", &fills];
    let mut command = program(&shared().url(), &args);
    let mut child = command.stderr(writer).spawn().unwrap();
    drop(command);
    line_of(&file);
    done(&shared().url(), &["break", "--yes", "--whoever", "unread-err"]).ends(0);
    run(&["-w", "30s", "unread-err", "true"]).ends(0);
    let pid = std::fs::read_to_string(format!("{}.pid", file.display())).unwrap();
    assert!(!is_alive(pid.trim().parse().unwrap()), "it is at work");
    drop(reader);
    wait_until(LONG, "it ends", || child.try_wait().unwrap().is_some());
}

#[test]
fn a_stop_of_either_process_lets_no_lease_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let lock = client(shared()).reentrant_lock("still");
    for which in ["the program", "its holder"] {
        let it = writes("still", "{}; exit 1", &log, "4s");
        let pid = if which == "the program" { it.pid() } else { below(it.pid()).unwrap() };
        signal(pid, "STOP");
        for _ in 0..2 {
            let left = || lock.holder().unwrap().and_then(|it| it.remaining).unwrap_or_default();
            let mut before = left();
            wait_until(LONG, which, || {
                let grew = left() > before;
                before = left();
                grew
            });
        }
        it.signal("CONT");
        it.signal("TERM");
        it.done().ends(143);
    }
}
