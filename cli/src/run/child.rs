//! The step from this program to the command: this program again, in the process that becomes the command. It
//! asks the kernel to kill it when its parent dies, and checks that the parent is still alive.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::exit::code;
use crate::say;

/// The first argument that tells this program to become a command. The parent's process id and the command
/// follow.
pub const BECOME: &str = "__become";

/// Becomes the command if this process was started for that. Returns `None` if it was not, and an exit status
/// if it cannot become the command.
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
    // The parent may have died before that.
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

/// Makes the kernel kill this process, and what it becomes, when its parent dies.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        say::error(format!("the command would survive this program: {error}"));
    }
}
