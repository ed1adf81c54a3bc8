//! Runs this test binary again, as a child process that plays a named role.
//!
//! The test runner prints to the same output, with or without a newline at the end, so lines meant for the
//! parent are marked and start on a line of their own.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdout, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::process::Guarded;

/// The environment variable that tells the child its role.
const ROLE: &str = "REDIS_CONCURRENT_ROLE";

/// The prefix of each line that is meant for the parent.
const MARK: &str = "@parent ";

/// How many of the child's other output lines are kept for error messages.
const TAIL: usize = 20;

/// Returns whether this process was started by [`Child::spawn`] to play `role`.
pub fn is_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|it| it == role)
}

/// Sends a line to the parent, which reads it with [`Child::read_line_within`]. Blocks while the pipe is
/// full.
///
/// # Errors
///
/// If `line` contains a line break, or the parent has closed the pipe.
pub fn tell_parent(line: &str) -> io::Result<()> {
    if line.contains('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than one line"));
    }
    let mut out = io::stdout().lock();
    // One write, so that output of other threads cannot end up inside the line.
    out.write_all(format!("\n{MARK}{line}\n").as_bytes())?;
    out.flush()
}

/// Reads the next line that the parent sent with [`Child::say`]; blocks until there is one. Returns `None`
/// once the parent has closed the pipe.
///
/// # Errors
///
/// If standard input cannot be read or is not UTF-8.
pub fn hear_parent() -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// A child process that plays a role: this test binary again, running a single test function, so that no
/// second binary is needed.
///
/// ```ignore
/// #[test]
/// #[ignore = "a role, played by a child process"]
/// fn role_holder() {
///     if !is_role("role_holder") {
///         return; // somebody ran the ignored tests
///     }
///     tell_parent("ready").unwrap();
///     let order = hear_parent().unwrap();
/// }
/// ```
///
/// Dropping it kills and reaps the child, which is also killed if this process dies without dropping it.
#[derive(Debug)]
pub struct Child {
    process: Guarded,
    lines: Receiver<String>,
    noise: Arc<Mutex<VecDeque<String>>>,
}

impl Child {
    /// Starts the current test binary again to run only the test function `role` (with its module path, if it
    /// is in a module), with `env` added to the environment. Does not wait for the role to begin: let the
    /// role report that. The child inherits standard error.
    ///
    /// # Errors
    ///
    /// If a process or a thread cannot be started.
    pub fn spawn(role: &str, env: &[(&str, &str)]) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut process = Guarded::spawn(&program, None, |command| {
            // Whether the role is marked #[ignore] or not, --include-ignored runs it.
            command
                .args([role, "--exact", "--nocapture", "--include-ignored"])
                .env(ROLE, role)
                .envs(env.iter().copied())
                .stdout(Stdio::piped());
        })?;
        let output =
            process.take_stdout().ok_or_else(|| io::Error::other("the child's output was not piped"))?;
        let noise = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, lines) = channel();
        let kept = Arc::clone(&noise);
        // Not joined: the thread ends with the pipe, which a grandchild could keep open for longer.
        thread::Builder::new()
            .name(format!("output of {role}"))
            .spawn(move || read_lines(output, &sender, &kept))?;
        Ok(Self { process, lines, noise })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the next line that the child sent with [`tell_parent`]; blocks for at most `limit`.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no line arrives in time, `UnexpectedEof` if the child has closed its output; both carry
    /// the last lines of the child's other output.
    pub fn read_line_within(&self, limit: Duration) -> io::Result<String> {
        let (kind, what) = match self.lines.recv_timeout(limit) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Timeout) => (io::ErrorKind::TimedOut, "said nothing in time"),
            Err(RecvTimeoutError::Disconnected) => (io::ErrorKind::UnexpectedEof, "has ended"),
        };
        let noise = Vec::from(self.noise.lock().clone()).join("\n");
        Err(io::Error::new(kind, format!("child {} {what}; it printed:\n{noise}", self.pid())))
    }

    /// Sends one line to the child, which reads it with [`hear_parent`]. Blocks while the pipe is full.
    ///
    /// # Errors
    ///
    /// If the child has closed its input.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.process.say(line)
    }

    /// Kills the child (SIGKILL) and waits for it to end, even if it is stopped or has already ended.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn kill9(&mut self) -> io::Result<ExitStatus> {
        self.process.kill()
    }

    /// Stops the child (SIGSTOP), and returns once it has stopped.
    ///
    /// # Errors
    ///
    /// If the child has ended, or has not stopped within 30 s.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.stop()
    }

    /// Resumes a stopped child (SIGCONT).
    ///
    /// # Errors
    ///
    /// If the child has ended.
    pub fn cont(&mut self) -> io::Result<()> {
        self.process.cont()
    }

    /// Waits for the child to end by itself, for at most `limit`. A role that panicked has failed its test,
    /// so its exit status is not a success.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the child is still running after `limit`.
    pub fn wait_within(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        self.process.wait_within(limit)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("child {} still runs after {limit:?}", self.pid()),
            )
        })
    }
}

/// Separates lines meant for the parent from other output, until the pipe ends.
fn read_lines(output: ChildStdout, lines: &Sender<String>, noise: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(message) = line.strip_prefix(MARK) {
            // Once the Child is dropped there is no receiver, but the pipe must still be drained.
            let _ = lines.send(message.to_owned());
        } else if !line.is_empty() {
            let mut noise = noise.lock();
            if noise.len() == TAIL {
                noise.pop_front();
            }
            noise.push_back(line);
        }
    }
}
