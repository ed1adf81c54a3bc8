//! What `--status-fd` receives at the end.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Resource, Rlimit, getpid, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::low_level::emulate_default_handler;

use super::signals::ENDING;
use crate::exit::Failure;
use crate::shown::{seconds, token as spelled};

#[derive(Default)]
pub struct Status {
    to: Option<File>,
    acquired: bool,
    tokens: Vec<Option<u64>>,
    pub waited: Duration,
    pub held: Duration,
    pub child: Option<ExitStatus>,
    pub lost: bool,
    pub stays: Duration,
}

impl Status {
    /// Returns a status to be written to this file descriptor, if there is one.
    pub fn open(fd: Option<u32>) -> Result<Status, Failure> {
        let open = |fd| shared(fd).map_err(|e| Failure::usage(format!("--status-fd {fd}: {e}")));
        Ok(Status { to: fd.map(open).transpose()?, ..Status::default() })
    }

    pub fn acquired(&mut self, tokens: &[Option<u64>]) {
        self.acquired = true;
        self.tokens = tokens.to_vec();
    }

    /// Writes the status, with the program's own exit status.
    pub fn write(&mut self, exit: u8) -> io::Result<()> {
        let Some(to) = &mut self.to else { return Ok(()) };
        let child = self.child.map(|status| json!({"code": status.code(), "signal": status.signal()}));
        let token = self.tokens.first().copied().flatten().map(spelled);
        let tokens: Vec<_> = self.tokens.iter().map(|it| it.map(spelled)).collect();
        let line = json!({
            "acquired": self.acquired, "token": token, "tokens": tokens, "waited_s": seconds(self.waited),
            "held_s": seconds(self.held), "child": child, "lost": self.lost, "stays_s": seconds(self.stays),
            "exit": exit,
        });
        writeln!(to, "{line}")
    }
}

/// Returns the caller's open file itself, so that what the caller and COMMAND write there comes before and
/// after the line.
fn shared(fd: u32) -> io::Result<File> {
    match fd {
        1 => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        2 => Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        _ => duplicate(fd),
    }
}

#[cfg(target_os = "linux")]
fn duplicate(fd: u32) -> io::Result<File> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let number = i32::try_from(fd).map_err(io::Error::other)?;
    let this = pidfd_open(getpid(), PidfdFlags::empty());
    // The caller has not opened it.
    if this.as_ref().is_ok_and(|this| this.as_raw_fd() == number) {
        return Err(rustix::io::Errno::BADF.into());
    }
    match this.and_then(|this| pidfd_getfd(this, number, PidfdGetfdFlags::empty())) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::BADF) => Err(rustix::io::Errno::BADF.into()),
        // Containers may forbid it.
        Err(_) => open_again(fd),
    }
}

#[cfg(not(target_os = "linux"))]
fn duplicate(fd: u32) -> io::Result<File> {
    open_again(fd)
}

/// The same on BSDs. On Linux this opens the file again, and writes at its end.
fn open_again(fd: u32) -> io::Result<File> {
    // Otherwise, opening a pipe that nobody reads would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).custom_flags(flags).open(format!("/dev/fd/{fd}"))?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// How the program ends.
#[derive(Clone, Copy, Debug)]
pub enum Exit {
    Code(u8),
    /// By this signal, so that a shell that runs it in a loop ends, too.
    Signal(i32),
}

impl Exit {
    /// Returns how to end as the command did.
    pub fn of(status: ExitStatus) -> Exit {
        match status.signal() {
            Some(signal) if ENDING.contains(&signal) => Exit::Signal(signal),
            _ => Exit::Code(code_of(status)),
        }
    }

    /// Returns the exit status that a shell shows.
    pub fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => code_of(ExitStatus::from_raw(signal)),
        }
    }

    /// Ends the program so, if a signal is to do that and can; otherwise returns the exit status.
    pub fn end(self) -> ExitCode {
        // The first process of a container is not ended by its own signals.
        if let Exit::Signal(signal) = self
            && !getpid().is_init()
        {
            let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum };
            let _ = setrlimit(Resource::Core, none);
            let _ = emulate_default_handler(signal);
        }
        ExitCode::from(self.code())
    }
}

/// Returns the exit status that a shell shows of a command that ended so.
pub fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
