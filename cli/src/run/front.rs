//! The process that the caller of `run` sees. It starts the *holder*, this program again, which holds the lock
//! and supervises COMMAND; passes signals on to it; and ends as it did.
//!
//! Each of the two kills COMMAND, and all that it has started, if the other is killed. The holder is in a
//! process group of its own: what stops or kills the caller's job does not stop renewals.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getpid, getppid, kill_current_process_group, kill_process};
use signal_hook::consts::{SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;

use super::signals::{self, Received};
use super::status::Exit;
use super::tree::{self, Place};
use crate::exit::Failure;
use crate::say;

/// The first argument that makes this program the holder. The process id of the one in front follows.
pub const HOLD: &str = "__hold";

/// Removes what makes this program the holder from its arguments, and returns the process in front.
pub fn taken_from(args: &mut Vec<OsString>) -> Option<i32> {
    args.get(1).filter(|it| *it == HOLD)?;
    let front = args.get(2)?.to_str()?.parse().ok()?;
    args.drain(1..3);
    Some(front)
}

/// Runs the holder with the arguments of this program.
pub fn run() -> Result<ExitCode, Failure> {
    let failed = |e: io::Error| Failure::internal(format!("signals cannot be received: {e}"));
    // The holder and COMMAND get an empty mask from `Command`.
    SigSet::empty().thread_set_mask().map_err(|e| failed(e.into()))?;
    let received =
        SignalsInfo::<WithOrigin>::new(signals::handled().chain([SIGTTIN, SIGTTOU])).map_err(failed)?;
    tree::adopt_orphans();
    let mut holder = Command::new(this_program());
    holder
        .arg0("redis-concurrent")
        .arg(HOLD)
        .arg(std::process::id().to_string())
        .args(env::args_os().skip(1));
    // The command must be able to come back to this group.
    if Place::of(getpid().as_raw_pid()).is_some_and(|it| it.group > 0) {
        holder.process_group(0);
    }
    let holder =
        holder.spawn().map_err(|e| Failure::internal(format!("this program cannot start itself: {e}")))?;
    let holder = Pid::from_child(&holder);
    // This thread started the holder, and must not end before it: the kernel would report a death.
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let ended = thread.spawn(move || until_ended(holder, received)).map_err(failed)?.join();
    ended.map(end_as).map_err(|_| Failure::internal("the thread that receives signals has panicked"))
}

/// Passes signals on until the holder has ended, and returns how.
fn until_ended(holder: Pid, mut received: SignalsInfo<WithOrigin>) -> ExitStatus {
    loop {
        for it in received.wait() {
            if it.signal != SIGCHLD {
                pass_on(holder, &it);
                continue;
            }
            let mut ended = None;
            tree::reap(|pid, status| {
                if pid == holder && !status.stopped() {
                    ended = Some(ExitStatus::from_raw(status.as_raw()));
                } else if pid == holder {
                    // Nobody else would continue it, and its command would go on without it.
                    let _ = kill_process(holder, Signal::CONT);
                }
            });
            if let Some(status) = ended {
                return status;
            }
        }
    }
}

/// Ends as the holder did; if it was killed, with all that it leaves behind.
fn end_as(status: ExitStatus) -> ExitCode {
    // One that the holder did not know yet may have ended it.
    let signal = status.signal().map(|it| Received::of(it).signal);
    let exit = signal.map_or_else(|| Exit::of(status), |it| Exit::of(ExitStatus::from_raw(it)));
    if let (Exit::Code(_), Some(signal)) = (exit, signal) {
        tree::kill();
        let _ = signals::block_ttou();
        say::error(format!("COMMAND is killed: the process that held its lock was ended by signal {signal}"));
    }
    exit.end()
}

/// Passes a signal on to the holder, and stops if that is what it asks for.
fn pass_on(holder: Pid, it: &Origin) {
    let by_terminal = it.process.is_none();
    let stops = [SIGTSTP, SIGTTIN, SIGTTOU].contains(&it.signal);
    // COMMAND has these from the terminal. One that wants the terminal in the background is stopped for
    // that; this process need not be, and so hears SIGTERM.
    if by_terminal && [SIGWINCH, SIGTTIN, SIGTTOU].contains(&it.signal) {
        return;
    }
    if stops && !is_a_job(getpid().as_raw_pid()) {
        if by_terminal {
            let _ = kill_current_process_group(Signal::CONT);
        }
        return;
    }
    let sent = match it.signal {
        it if by_terminal => signals::as_from_terminal(it),
        _ if stops => SIGTSTP,
        it => it,
    };
    if let Some(signal) = Signal::from_named_raw(sent) {
        let _ = kill_process(holder, signal);
    }
    if stops {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// Whether a shell can continue this process's group once it is stopped: one above it, in its session. The
/// kernel, which stops no other group, would take the holder for one.
pub fn is_a_job(pid: i32) -> bool {
    let Some(this) = Place::of(pid) else { return false };
    let mut up = this.parent;
    while let Some(above) = Place::of(up).filter(|it| it.session == this.session) {
        if above.group != this.group {
            return true;
        }
        up = above.parent;
    }
    false
}

/// Returns this program's own file: on Linux the running program itself, even if its file has been replaced,
/// unless there is no /proc.
pub fn this_program() -> OsString {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStringExt;
        let running = "/proc/self/exe";
        if std::fs::symlink_metadata(running).is_ok() {
            return running.into();
        }
        OsString::from_vec(rustix::param::linux_execfn().to_bytes().to_vec())
    }
    #[cfg(not(target_os = "linux"))]
    env::current_exe().map_or_else(|_| env::args_os().next().unwrap_or_default(), Into::into)
}

/// Makes the kernel send this process a signal when the one in front dies.
pub fn hear_of_its_death() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Signal::from_named_raw(signals::FRONT_DIED));
}

/// Does for a stopped job what the kernel does without the holder: once its shell is gone, it ends.
pub fn end_without_shell(front: i32) {
    if let Some(pid) = Pid::from_raw(front).filter(|_| !is_dead(front) && !is_a_job(front)) {
        let _ = kill_process(pid, Signal::HUP);
        let _ = kill_process(pid, Signal::CONT);
    }
}

/// Whether the process in front is dead.
pub fn is_dead(front: i32) -> bool {
    getppid().map(Pid::as_raw_pid) != Some(front)
}
