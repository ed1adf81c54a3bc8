//! What `--status-fd` is told at the end.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::json;

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
    /// To be written to this file descriptor, if there is one.
    pub fn open(fd: Option<u32>) -> Result<Status, Failure> {
        let open = |fd| {
            // A pipe that nobody reads would be waited for.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = File::options().write(true).custom_flags(flags).open(format!("/dev/fd/{fd}"));
            let blocking = file.and_then(|file| {
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                Ok(file)
            });
            blocking.map_err(|e| Failure::usage(format!("--status-fd {fd}: {e}")))
        };
        Ok(Status { to: fd.map(open).transpose()?, ..Status::default() })
    }

    pub fn acquired(&mut self, tokens: &[Option<u64>]) {
        self.acquired = true;
        self.tokens = tokens.to_vec();
    }

    /// Writes it, with the program's own exit status.
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

/// The exit status of a program that ends as its command did.
pub fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
