//! How the program ends: its exit status, and its message about a failure.

use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

use redis_concurrent::{Error, ErrorKind};

use crate::say;

/// The program's own exit statuses: those of sysexits.h where one fits.
pub mod code {
    pub const USAGE: u8 = 64;
    pub const UNAVAILABLE: u8 = 69;
    pub const INTERNAL: u8 = 70;
    pub const IO: u8 = 74;
    pub const BUSY: u8 = 75;
    pub const DENIED: u8 = 77;
    pub const CONFIG: u8 = 78;
    pub const LOST: u8 = 80;
    pub const TOO_LONG: u8 = 124;
    pub const NOT_EXECUTABLE: u8 = 126;
    pub const NOT_FOUND: u8 = 127;
    pub const BROKEN_PIPE: u8 = 141;
}

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// Empty if no message is needed.
    why: String,
}

impl Failure {
    pub fn new(code: u8, why: impl Display) -> Failure {
        Failure { code, why: why.to_string() }
    }

    pub fn usage(why: impl Display) -> Failure {
        Failure::new(code::USAGE, why)
    }

    pub fn internal(why: impl Display) -> Failure {
        Failure::new(code::INTERNAL, format!("{why}: this should not be, please report it"))
    }

    /// Standard output cannot be written. There is no message if its reader has closed it.
    pub fn unwritten(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(code::BROKEN_PIPE, ""),
            _ => Failure::new(code::IO, format!("standard output cannot be written: {error}")),
        }
    }

    /// Adds the server's address, if the failure is that it cannot be reached.
    pub fn at(self, server: impl Display) -> Failure {
        match self.code {
            code::UNAVAILABLE => Failure { why: format!("{server}: {}", self.why), ..self },
            _ => self,
        }
    }

    pub fn report(&self) {
        say::error(self);
    }

    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    pub fn status(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&say::without_passwords(&self.why))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let why = format!("{error:#}");
        let code = match error.kind() {
            // Its text has a reason that an operator gave, in any words.
            ErrorKind::LeaseLost => code::LOST,
            // A key has the lock's name in it, and the others' texts have it in quotes.
            ErrorKind::WrongType => code::CONFIG,
            _ if is_denied(&why.replace(&format!("{:?}", error.name()), "")) => code::DENIED,
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => code::UNAVAILABLE,
            ErrorKind::InvalidInput | ErrorKind::Refused => code::CONFIG,
            _ => return Failure::internal(why),
        };
        Failure { code, why }
    }
}

impl From<redis_concurrent::redis::RedisError> for Failure {
    fn from(error: redis_concurrent::redis::RedisError) -> Self {
        let why = error.to_string();
        Failure { code: if is_denied(&why) { code::DENIED } else { code::UNAVAILABLE }, why }
    }
}

/// Whether Redis reports a missing right, which the error kinds do not tell.
fn is_denied(why: &str) -> bool {
    let words = ["NOPERM", "NoPerm", "WRONGPASS", "NOAUTH", "AuthenticationFailed"];
    words.iter().any(|word| why.contains(word))
}

/// Prints what clap returned: help on standard output, or what is wrong on standard error.
pub fn of_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return error.print().map_or_else(
            |e| {
                let failure = Failure::unwritten(&e);
                failure.report();
                failure.code()
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let text = error.render().to_string();
    say::error(say::without_passwords(text.strip_prefix("error: ").unwrap_or(&text)));
    ExitCode::from(code::USAGE)
}
