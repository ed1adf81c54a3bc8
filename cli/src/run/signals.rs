//! Signals to this program: those that end a wait, and those that are passed on to the command.

use std::fs;
use std::time::Duration;

use nix::sys::signal::SigSet;
use redis_concurrent::CancellationToken;
use redis_concurrent::crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP, SIGURG, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGWINCH,
};
use signal_hook::iterator::Signals as Incoming;

use super::front;
use crate::exit::Failure;

/// The signals that are passed on.
const ALL: [i32; 9] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP];

/// The signals that end a wait, and mostly a command.
pub const ENDING: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// Signals from the terminal, and those with which the process in front reports them: the command has the
/// former, too.
const FROM_TERMINAL: [(i32, i32); 3] = [(SIGINT, SIGVTALRM), (SIGQUIT, SIGIO), (SIGTSTP, SIGURG)];

/// What the kernel sends when the process in front dies.
pub const FRONT_DIED: i32 = SIGALRM;

/// Returns the signals that are passed on, and that of children. One that the caller ignores (as nohup does)
/// stays ignored, by the command too; but not SIGTERM, by which a command is told that its lock ends.
pub fn handled() -> impl Iterator<Item = i32> {
    ALL.into_iter().filter(|signal| *signal == SIGTERM || !is_ignored(*signal)).chain([SIGCHLD])
}

/// Lets this process write to its terminal from the background.
pub fn block_ttou() -> nix::Result<()> {
    SigSet::from(nix::sys::signal::SIGTTOU).thread_block()
}

/// Returns the signal that reports this one as the terminal's.
pub fn as_from_terminal(signal: i32) -> i32 {
    FROM_TERMINAL.iter().find(|(it, _)| *it == signal).map_or(signal, |(_, report)| *report)
}

/// A signal that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// SIGKILL if the process in front was killed.
    pub signal: i32,
    /// Whether the terminal has sent it to all of its foreground process group.
    pub by_terminal: bool,
}

impl Received {
    pub fn of(signal: i32) -> Received {
        match FROM_TERMINAL.iter().find(|(_, report)| *report == signal) {
            Some((signal, _)) => Received { signal: *signal, by_terminal: true },
            None => Received { signal, by_terminal: false },
        }
    }
}

/// How often to look whether a stopped job, or command, can go on.
pub const TENDED: Duration = Duration::from_millis(200);

pub struct Signals {
    pub front: i32,
    pub received: Receiver<Received>,
    /// Cancelled by the first signal that ends a wait.
    pub stop: CancellationToken,
}

impl Signals {
    /// Starts receiving signals, on a thread that ends with the process. They come from the process `front`.
    pub fn listen(front: i32) -> Result<Signals, Failure> {
        let handled = handled().chain(FROM_TERMINAL.map(|(_, report)| report)).chain([FRONT_DIED]);
        let failed = |e| Failure::internal(format!("signals cannot be received: {e}"));
        let mut signals = Incoming::new(handled).map_err(failed)?;
        block_ttou().map_err(|e| failed(e.into()))?;
        front::hear_of_its_death();
        let (sender, received) = unbounded();
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let ends = stop.clone();
        let run = move || {
            // It may have died before that.
            let first = front::is_dead(front).then_some(FRONT_DIED);
            for signal in first.into_iter().chain(&mut signals) {
                let is_ours = signal == SIGCHLD || !front::is_dead(front);
                let it = Received::of(if is_ours { signal } else { SIGKILL });
                // The receiver is gone when the program ends.
                let _ = sender.send(it);
                if it.signal == SIGKILL || ENDING.contains(&it.signal) {
                    ends.cancel();
                }
            }
        };
        thread.spawn(run).map_err(failed)?;
        Ok(Signals { front, received, stop })
    }

    /// Returns the signal that ended a wait.
    pub fn ended_by(&self) -> i32 {
        self.ending().unwrap_or(SIGTERM)
    }

    /// Returns the first received signal that ends a wait. If there is none, the others are discarded: a
    /// command that starts now has nothing to do with what came before it. Blocks while this job is stopped.
    pub fn ending(&self) -> Option<i32> {
        let mut stopped = false;
        loop {
            let patience = if stopped { TENDED } else { Duration::ZERO };
            match self.received.recv_timeout(patience).map(|it| it.signal) {
                Ok(SIGTSTP) => stopped = true,
                Ok(SIGCONT) => stopped = false,
                Ok(it) if it == SIGKILL || ENDING.contains(&it) => return Some(it),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if stopped => front::end_without_shell(self.front),
                Err(_) => return None,
            }
        }
    }
}

/// Whether the process that started this one made it ignore the signal; false if that cannot be known.
fn is_ignored(signal: i32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_starts_without_what_came_before_it_and_not_after_what_ends_a_wait() {
        let (sender, received) = unbounded();
        let signals = Signals { front: 0, received, stop: CancellationToken::new() };
        let come = |all: &[i32]| {
            all.iter().for_each(|it| sender.send(Received { signal: *it, by_terminal: false }).unwrap());
        };
        come(&[SIGUSR1, SIGWINCH, SIGUSR2]);
        assert_eq!(signals.ending(), None);
        assert!(signals.received.is_empty());
        come(&[SIGUSR1, SIGINT, SIGTERM]);
        assert_eq!(signals.ending(), Some(SIGINT));
        come(&[SIGTSTP, SIGUSR1, SIGCONT]);
        assert_eq!((signals.ending(), signals.ending()), (Some(SIGTERM), None));
    }
}
