//! On a terminal: the command stays in the foreground, and what the terminal sends reaches it once.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use redis_concurrent_testkit::wait_until;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::stage::{LONG, PROGRAM, shared};

/// A program in a session of its own on a new terminal.
struct OnTerminal {
    child: std::process::Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl OnTerminal {
    /// `setsid --ctty` makes the terminal the controlling one of a new session, without unsafe code here.
    fn new(args: &[&str]) -> OnTerminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let open = || -> OwnedFd {
            rustix::fs::open(
                &*name,
                OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            )
            .unwrap()
        };
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "env", "--default-signal", PROGRAM])
            .args(args)
            .env("REDIS_URL", shared().url());
        command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        command.process_group(0);
        let child = command.spawn().unwrap();
        let keyboard = File::from(ours);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // The terminal ends with its last user, as an error.
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        OnTerminal { child, keyboard, screen }
    }

    fn shows(&self, what: &str) {
        wait_until(LONG, &format!("the terminal shows {what}"), || {
            self.screen.lock().unwrap().contains(what)
        });
    }

    fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    fn ends(mut self, code: i32) -> String {
        wait_until(LONG, "it ends", || self.child.try_wait().unwrap().is_some());
        let screen = self.screen.lock().unwrap().clone();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{screen}");
        screen
    }
}

#[test]
fn the_command_reads_from_it() {
    let mut it = OnTerminal::new(&[
        "run",
        "--lease",
        "1s",
        "tty",
        "sh",
        "-c",
        "echo ready; read x; echo got $x; exit 4",
    ]);
    it.shows("ready");
    it.types(b"hello\n");
    it.shows("got hello");
    it.ends(4);
}

#[test]
fn an_interrupt_from_it_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n + 1)); echo int $n' INT; echo ready; \
        while [ ! -e $0 ]; do sleep 0.02; done; echo total $n; exit 6";
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let mut it =
        OnTerminal::new(&["run", "--lease", "1s", "tty-int", "sh", "-c", script, go.to_str().unwrap()]);
    it.shows("ready");
    it.types(b"\x03");
    it.shows("int 1");
    std::fs::write(&go, "").unwrap();
    it.shows("total 1");
    it.ends(6);
}

#[test]
fn an_interrupt_while_it_waits_ends_it() {
    let lock = crate::stage::client(shared()).reentrant_lock("tty-wait");
    let guard = lock.lock().unwrap();
    let mut it = OnTerminal::new(&["run", "--lease", "1s", "tty-wait", "true"]);
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    it.types(b"\x03");
    it.ends(130);
    guard.unlock().unwrap();
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let mut it =
        OnTerminal::new(&["run", "--lease", "1s", "tty-gone", "sh", "-c", "echo ready; exec sleep 60"]);
    it.shows("ready");
    let lock = crate::stage::client(shared()).reentrant_lock("tty-gone");
    assert!(lock.is_locked().unwrap());
    // The session's leader is told that the line was cut.
    let pid: u32 = lock.holder().unwrap().unwrap().process.unwrap().pid;
    crate::stage::signal(pid, "HUP");
    it.types(b"");
    it.ends(129);
    assert!(!lock.is_locked().unwrap());
}
