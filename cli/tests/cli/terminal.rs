//! On a terminal: the command stays in the foreground, and what the terminal sends reaches it once.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use redis_concurrent_testkit::wait_until;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::{LONG, PROGRAM, shared};

/// A program in a session of its own on a new terminal.
pub struct OnTerminal {
    child: std::process::Child,
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    /// The reader of the screen also keeps the terminal open until this is false.
    reads: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    fn new(args: &[&str]) -> OnTerminal {
        OnTerminal::of(&[&[PROGRAM], args].concat())
    }

    /// `setsid --ctty` makes the terminal the controlling one of a new session, without unsafe code here.
    pub fn of(program: &[&str]) -> OnTerminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&ours, size).unwrap();
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
            .args(["--ctty", "--wait", "env", "--default-signal"])
            .args(program)
            .env("REDIS_URL", shared().url());
        command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        command.process_group(0);
        let child = command.spawn().unwrap();
        let keyboard = File::from(ours);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (keyboard.try_clone().unwrap(), screen.clone());
        rustix::fs::fcntl_setfl(&from, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let reads = Arc::new(AtomicBool::new(true));
        let goes_on = reads.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while goes_on.load(Ordering::SeqCst) {
                match from.read(&mut bytes) {
                    Ok(n @ 1..) => to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n])),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        std::thread::park_timeout(Duration::from_millis(5));
                    }
                    // When its last user is gone, the terminal returns an error.
                    _ => break,
                }
            }
        });
        OnTerminal { child, keyboard: Some(keyboard), screen, reads, reader: Some(reader) }
    }

    /// Waits until the terminal shows this, and returns all that it shows.
    #[track_caller]
    pub fn shows(&self, what: &str) -> String {
        wait_until(LONG, &format!("the terminal shows {what}"), || {
            self.screen.lock().unwrap().contains(what)
        });
        self.screen.lock().unwrap().clone()
    }

    pub fn types(&mut self, keys: &[u8]) {
        self.keyboard.as_mut().unwrap().write_all(keys).unwrap();
    }

    /// Types, unless nobody is there any more.
    pub fn types_if_it_can(&mut self, keys: &[u8]) {
        let _ = self.keyboard.as_mut().map(|it| it.write(keys));
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; returns its exit status, and what the terminal shows.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        wait_until(LONG, "it ends", || self.has_ended());
        let screen = self.screen.lock().unwrap().clone();
        (self.child.wait().unwrap().code(), screen)
    }

    /// Closes all of the terminal that is open on this side.
    pub fn hangs_up(self) {
        drop(self);
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> String {
        let (ended, screen) = self.end();
        // Of a program that a signal has ended, setsid returns the signal.
        let signal = (code > 128).then_some(code - 128);
        assert!(ended == Some(code) || ended == signal, "{ended:?}: {screen}");
        screen
    }
}

/// Its session's leader gets SIGHUP.
impl Drop for OnTerminal {
    fn drop(&mut self) {
        self.reads.store(false, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        drop(self.keyboard.take());
        if !std::thread::panicking() {
            wait_until(LONG, "it ends", || self.child.try_wait().unwrap().is_some());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_command_reads_from_it() {
    let mut it = OnTerminal::new(&[
        "run",
        "--lease",
        "4s",
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
        OnTerminal::new(&["run", "--lease", "4s", "tty-int", "sh", "-c", script, go.to_str().unwrap()]);
    it.shows("ready");
    it.types(b"\x03");
    it.shows("int 1");
    std::fs::write(&go, "").unwrap();
    it.shows("total 1");
    it.ends(6);
}

#[test]
fn an_interrupt_while_it_waits_ends_it() {
    let lock = crate::fixture::client(shared()).reentrant_lock("tty-wait");
    let guard = lock.lock().unwrap();
    let mut it = OnTerminal::new(&["run", "--lease", "4s", "tty-wait", "true"]);
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    it.types(b"\x03");
    it.ends(130);
    guard.unlock().unwrap();
}

#[test]
fn a_lock_is_not_taken_away_before_that_is_confirmed() {
    let lock = crate::fixture::client(shared()).reentrant_lock("tty-break");
    let guard = lock.lock().unwrap();
    for (answer, code) in [(b"n\n", 1), (b"\n\n", 1), (b"y\n", 0)] {
        assert!(!guard.is_lost());
        let mut it = OnTerminal::new(&["break", "tty-break", "--whoever", "--now"]);
        it.shows("tty-break is held by");
        it.shows(&format!("token {:019}", guard.token()));
        it.shows("nobody waits for it");
        it.shows("take it away? [y/N]");
        it.types(answer);
        it.ends(code);
    }
    assert!(!lock.is_locked().unwrap());
    // There is nothing to ask about.
    OnTerminal::new(&["break", "tty-break", "--whoever"]).ends(1);
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", file.display());
    let it = OnTerminal::new(&["run", "--lease", "4s", "tty-gone", "sh", "-c", &script]);
    let command: u32 = crate::fixture::line_of(&file).parse().unwrap();
    let lock = crate::fixture::client(shared()).reentrant_lock("tty-gone");
    assert!(lock.is_locked().unwrap());
    // The session's leader, which is the program, gets SIGHUP.
    it.hangs_up();
    wait_until(LONG, "the command is dead", || !crate::fixture::is_alive(command));
    wait_until(LONG, "the lock is free", || !lock.is_locked().unwrap());
}

#[test]
fn lists_fit_into_it() {
    let server = redis_concurrent_testkit::RedisServer::start().unwrap();
    let client = redis_concurrent::Client::builder().url(&server.url()).client_name(&"label".repeat(10));
    let client = client.connect().unwrap();
    let ls = |more: &[&str], last: &str| {
        let url = server.url();
        let it = OnTerminal::new(&[&["ls", "--url", &url], more].concat());
        it.shows(last);
        it.ends(0)
    };
    ls(&[], "there is no such lock");
    let held = client.reentrant_lock("stock:42").lock_owned().unwrap();
    let token = format!("{:019}", held.token());
    let screen = ls(&[], &token);
    let line = screen.lines().find(|line| line.contains("stock:42")).unwrap();
    assert!(line.chars().count() <= 100 && line.contains(&format!("{}@", std::process::id())), "{screen}");
    assert!(line.contains('…'), "{screen}");
    assert!(ls(&["--wide"], &token).contains(&"label".repeat(10)));
}
