//! A child process that cannot outlive this one.
//!
//! A test process that is killed runs no destructor, so a second process, the watchdog, holds the reading end
//! of a pipe whose other end is ours. The pipe closes when this process dies, for whatever reason, and the
//! watchdog then kills the child. The child itself waits at a gate (one line on its standard input) until the
//! watchdog knows its process id, so it is never without a watchdog. The gate then turns into the wanted
//! program by `exec`, which keeps the process id.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::wait::poll;

/// `read` consumes nothing beyond its line, so the program gets the rest of the pipe as its input.
const GATE: &str = r#"read -r _ && exec "$@""#;

/// If the input ends before a process id arrives, no child has passed the gate.
const WATCHDOG: &str = r#"read -r pid || exit 0
read -r _
kill -9 "$pid" 2>/dev/null
if [ -n "$1" ]; then rm -rf -- "$1"; fi"#;

/// How long a signal may take to show in a process's state.
const SIGNAL_LIMIT: Duration = Duration::from_secs(30);

/// The process that kills the child once this process has died.
#[derive(Debug)]
struct Watchdog(Child);

impl Watchdog {
    /// `remove` is a folder for the watchdog to delete as well, since nothing else would.
    fn start(remove: Option<&Path>) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(remove.map_or(OsStr::new(""), Path::as_os_str))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C signals the terminal's process group, which the watchdog has to outlive.
            .process_group(0)
            .spawn()
            .map(Self)
    }

    fn watch(&mut self, pid: u32) -> io::Result<()> {
        match self.0.stdin.as_mut() {
            Some(pipe) => writeln!(pipe, "{pid}"),
            None => Err(io::Error::other("the watchdog has no standard input")),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before its pipe closes, so that it never signals a process id that has been reused.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running program with its watchdog; killed and reaped on drop.
#[derive(Debug)]
pub(super) struct Guarded {
    child: Child,
    /// Only while the program runs: once that is reaped, its process id may be another's.
    watchdog: Option<Watchdog>,
}

impl Guarded {
    /// Starts `program`. `configure` adds arguments, output and environment, but not the input, which is
    /// always a pipe. The folder `remove` is deleted if this process dies abnormally.
    pub(super) fn spawn(
        program: &Path,
        remove: Option<&Path>,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut watchdog = Watchdog::start(remove)?;
        let mut command = Command::new("sh");
        command.args(["-c", GATE, "gate"]).arg(program);
        configure(&mut command);
        let child = command.stdin(Stdio::piped()).spawn()?;
        watchdog.watch(child.id())?;
        let mut guarded = Self { child, watchdog: Some(watchdog) };
        guarded.say("go")?;
        Ok(guarded)
    }

    /// The program's own process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line to the program's standard input.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        let pipe: &mut ChildStdin = match self.child.stdin.as_mut() {
            Some(pipe) => pipe,
            None => return Err(io::Error::other("the standard input is closed")),
        };
        pipe.write_all(format!("{line}\n").as_bytes())?;
        pipe.flush()
    }

    /// The reading end of the program's output, if it was piped and has not been taken before.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// `Some` once the program has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.watchdog = None;
        }
        Ok(status)
    }

    /// Waits for the program to end by itself; returns `None` once `limit` has passed.
    pub(super) fn wait_within(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        poll(limit, || self.try_wait().transpose()).transpose()
    }

    /// Sends SIGSTOP, and returns once the process has stopped.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.signal("STOP")?;
        self.await_state(|state| state == 'T')
    }

    /// Sends SIGCONT, and returns once the process is no longer stopped.
    pub(super) fn cont(&mut self) -> io::Result<()> {
        self.signal("CONT")?;
        self.await_state(|state| state != 'T')
    }

    /// Sends SIGKILL, which also ends a stopped process, and waits for the end.
    pub(super) fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.watchdog = None;
        self.child.wait()
    }

    /// Sends a signal by name, with the shell's built-in `kill`: it is available wherever `sh` is.
    fn signal(&mut self, name: &str) -> io::Result<()> {
        // The id of a reaped process may already belong to another process.
        if let Some(status) = self.try_wait()? {
            return Err(io::Error::other(format!("the process has ended already: {status}")));
        }
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "signal", name])
            .arg(self.pid().to_string())
            .stdin(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -s {name}: {status}"))) }
    }

    /// Waits for a signal to take effect, which it does some time after it was sent. Without `/proc` there is
    /// no way to see that.
    fn await_state(&self, is: impl Fn(char) -> bool) -> io::Result<()> {
        let pid = self.pid();
        poll(SIGNAL_LIMIT, || state(pid).is_none_or(&is).then_some(())).ok_or_else(|| {
            io::Error::new(io::ErrorKind::TimedOut, format!("process {pid} has not taken a signal"))
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // There is nobody to report a failure to.
        let _ = self.kill();
    }
}

/// The state letter of a process, as in `ps`.
fn state(pid: u32) -> Option<char> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character, even parentheses.
    line.rsplit_once(") ")?.1.chars().next()
}
