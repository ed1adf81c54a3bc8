//! A Java process that locks as it is told. Needs Java and, for the first time, Maven (`ci/java.sh`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::redisson::fixture::{Fixture, KEY};
use crate::support::LONG;

/// The class path, or why there is none.
pub fn class_path() -> &'static Result<String, String> {
    static PATH: OnceLock<Result<String, String>> = OnceLock::new();
    PATH.get_or_init(|| output_of("ci/java.sh", &[]))
}

/// What a script of the project prints, or why it failed.
pub fn output_of(script: &str, args: &[&str]) -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(script).args(args).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

pub struct Jvm {
    process: Child,
    input: Mutex<ChildStdin>,
    lines: Receiver<String>,
    /// Answers that nobody has asked for yet.
    early: Vec<String>,
}

impl Jvm {
    /// A process that runs this class of `tests/foreign/redisson/java/`; what it is to lock is told by the arguments.
    /// `None`, and says so loudly, where there is no Java.
    pub fn start(class: &str, args: &[&str], test: &str) -> Option<Jvm> {
        let path = match class_path() {
            Ok(path) => path,
            Err(why) => {
                // Not by eprintln!, of which a test that passes shows nothing.
                let mut all = std::io::stderr();
                writeln!(all, "\nSKIPPED, AND SHOWS NOTHING: {test}, as ci/java.sh says: {why}\n").unwrap();
                return None;
            }
        };
        let mut process = Command::new("java")
            .args([
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Xshare:auto",
                "-Xmx128m",
                "-cp",
                path,
                class,
            ])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = Mutex::new(process.stdin.take().unwrap());
        let output = process.stdout.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut jvm = Jvm { process, input, lines, early: Vec::new() };
        assert_eq!(jvm.receives(0), "ready");
        Some(jvm)
    }

    /// Redisson, with this watchdog timeout.
    pub fn redisson(fixture: &Fixture, watchdog: Duration, test: &str) -> Option<Jvm> {
        let (port, watchdog) = (fixture.server.port().to_string(), watchdog.as_millis().to_string());
        Jvm::start("Peer", &[&port, KEY, &watchdog], test)
    }

    /// Tells one of its threads to do something.
    #[track_caller]
    pub fn say(&self, thread: u32, what: &str) {
        writeln!(self.input.lock(), "{thread} {what}").unwrap();
    }

    /// What that thread answers.
    #[track_caller]
    pub fn receives(&mut self, thread: u32) -> String {
        let is_its = |line: &String| line.split_once(' ').is_some_and(|(by, _)| by == thread.to_string());
        let line = match self.early.iter().position(is_its) {
            Some(at) => self.early.remove(at),
            None => loop {
                let line = self.lines.recv_timeout(3 * LONG).expect("Java says something");
                if is_its(&line) {
                    break line;
                }
                self.early.push(line);
            },
        };
        line.split_once(' ').map(|(_, answer)| answer.to_owned()).unwrap_or_default()
    }

    #[track_caller]
    pub fn does(&mut self, thread: u32, what: &str) -> String {
        self.say(thread, what);
        self.receives(thread)
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
