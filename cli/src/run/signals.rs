//! Signals to this program: those that end a wait, and those that are passed on to the command.

use std::fs;

use redis_concurrent::CancellationToken;
use redis_concurrent::crossbeam_channel::{Receiver, unbounded};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::exit::Failure;

/// The signals that are passed on.
const ALL: [i32; 8] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];

/// The signals that end a wait.
const ENDING: [i32; 4] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// A signal that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub signal: i32,
    /// Whether a process sent it, and not the terminal.
    pub by_process: bool,
}

impl Received {
    /// Whether the terminal has sent it to all of its foreground process group.
    pub fn is_from_terminal(self) -> bool {
        !self.by_process && matches!(self.signal, SIGINT | SIGQUIT)
    }
}

pub struct Signals {
    pub received: Receiver<Received>,
    /// Cancelled by the first signal that ends a wait.
    pub stop: CancellationToken,
}

impl Signals {
    /// Starts receiving signals, on a thread that ends with the process. A signal that the caller ignores (as
    /// nohup does) stays ignored, by the command too.
    pub fn listen() -> Result<Signals, Failure> {
        let wanted = ALL.into_iter().filter(|signal| !is_ignored(*signal));
        let failed = |e| Failure::internal(format!("signals cannot be received: {e}"));
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted).map_err(failed)?;
        let (sender, received) = unbounded();
        let stop = CancellationToken::new();
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let ends = stop.clone();
        let run = move || {
            for origin in &mut signals {
                // The receiver is gone when the program ends.
                let _ = sender.send(Received { signal: origin.signal, by_process: origin.process.is_some() });
                if ENDING.contains(&origin.signal) {
                    ends.cancel();
                }
            }
        };
        thread.spawn(run).map_err(failed)?;
        Ok(Signals { received, stop })
    }

    /// Returns the signal that ended a wait.
    pub fn ended_by(&self) -> u8 {
        self.ending().unwrap_or(SIGTERM as u8)
    }

    /// Returns the first received signal that ends a wait. If there is none, the others are discarded: a
    /// command that starts now has nothing to do with what came before it.
    pub fn ending(&self) -> Option<u8> {
        let ending = self.received.try_iter().find(|it| ENDING.contains(&it.signal));
        ending.and_then(|it| it.signal.try_into().ok())
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
        let signals = Signals { received, stop: CancellationToken::new() };
        let come = |all: &[i32]| {
            all.iter().for_each(|it| sender.send(Received { signal: *it, by_process: true }).unwrap());
        };
        come(&[SIGUSR1, SIGWINCH, SIGUSR2]);
        assert_eq!(signals.ending(), None);
        assert!(signals.received.is_empty());
        come(&[SIGUSR1, SIGINT, SIGTERM]);
        assert_eq!(signals.ending(), Some(2));
    }
}
