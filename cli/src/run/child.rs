//! The way from this program to the command: once more this program, as the command's process before it becomes the
//! command. It asks the kernel for its own death when its parent dies, and looks whether that one lives still.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::exit::code;
use crate::say;

/// The first argument by which this program knows that it is to become a command: the parent's process id and the
/// command follow.
pub const BECOME: &str = "__become";

/// Becomes the command, where this process was started for that; returns only if it cannot.
pub fn become_command() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    if args.next()? != BECOME {
        return None;
    }
    let parent: Option<i32> = args.next().and_then(|pid| pid.to_str()?.parse().ok());
    let command: Vec<OsString> = args.collect();
    let (Some(parent), Some((program, arguments))) = (parent, command.split_first()) else {
        say::error("this is no command of yours");
        return Some(ExitCode::from(code::USAGE));
    };
    die_with_parent();
    // It may have died before.
    if rustix::process::getppid().map(rustix::process::Pid::as_raw_pid) != Some(parent) {
        return Some(ExitCode::from(128 + 9));
    }
    let error = Command::new(program).args(arguments).exec();
    say::error(format!("{}: {error}", program.to_string_lossy()));
    Some(ExitCode::from(match error.kind() {
        ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::NOT_EXECUTABLE,
    }))
}

/// The kernel kills this process, and what it becomes, when its parent dies.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        say::error(format!("the command would survive this program: {error}"));
    }
}
