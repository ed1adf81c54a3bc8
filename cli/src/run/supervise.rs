//! Supervises the running command: passes signals on to it, and ends it before another caller can hold its
//! lock.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use redis_concurrent::crossbeam_channel::{Receiver, Sender, after, at, bounded, never, select, unbounded};
use redis_concurrent::{Client, MultiLock, OwnedGuard};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGKILL, SIGTSTP, SIGTTIN, SIGTTOU};
use signal_hook::low_level::signal_name;

use super::signals::{ENDING, Signals, TENDED};
use super::start::Group;
use super::tree::{self, DIES, LOOKED};
use super::{front, grace, revoked};
use crate::args::{OnLoss, Run};
use crate::say::Say;

/// The longest time before the end of a hold at which the command is killed.
const KILLED_BEFORE: Duration = Duration::from_secs(2);

/// How the command ended.
pub struct Ended {
    pub status: ExitStatus,
    /// Whether it was told to end because its lock was lost or about to be lost.
    pub for_loss: bool,
    /// Whether it was told to end because it took too long.
    pub too_long: bool,
}

impl Ended {
    /// Whether it was told to end.
    pub fn stopped(&self) -> bool {
        self.for_loss || self.too_long
    }
}

/// Waits for the command to end, and ends it if its lock or its time ends first. If it was ended by a signal, or
/// because of its lock or time, all that it leaves behind is ended, too. Called by the thread that started it,
/// as the kernel kills the command when that thread ends.
pub fn supervise(
    child: &Child,
    (args, group): (&Run, Group),
    (client, guard): (&Client, &OwnedGuard<MultiLock>),
    signals: &Signals,
    say: Say,
) -> Ended {
    let mut command = Running { pid: Pid::from_child(child), group, status: None, wants_terminal: false };
    let mut job_is_stopped = false;
    let notes = Notes::to(say);
    let grace = grace(args);
    // Keeps the token and not only its channel, which receives nothing once the token is dropped.
    let killed_before = KILLED_BEFORE.min(grace / 2);
    let (soon, at_last) = (guard.ends_within(grace), guard.ends_within(killed_before));
    let gone = guard.lost();
    let (mut term, mut kill, mut lost): (Receiver<()>, Receiver<()>, Receiver<()>) = match args.on_loss {
        OnLoss::Kill => (soon.receiver(), at_last.receiver(), never()),
        OnLoss::Term => (soon.receiver(), never(), never()),
        OnLoss::Warn => (never(), never(), gone.receiver()),
    };
    let mut limit = args.at_most.map_or_else(never, after);
    let (mut kill_at, mut killed): (Option<Instant>, Option<Instant>) = (None, None);
    let (mut for_loss, mut too_long) = (false, false);
    // Until when others are certainly kept out, unless the lock is taken away.
    let mut until = Instant::now();
    let status = loop {
        let now = Instant::now();
        let left = guard.remaining();
        if !left.is_zero() {
            until = now + left;
        }
        select! {
            recv(if left.is_zero() { never() } else { after(left / 2) }) -> _ => {},
            recv(command.looks()) -> _ => {},
            recv(if job_is_stopped || command.wants_terminal { after(TENDED) } else { never() }) -> _ => {
                if job_is_stopped {
                    front::end_without_shell(signals.front);
                }
                if command.wants_terminal && group.has_the_terminal() {
                    command.wants_terminal = false;
                    command.send(Signal::CONT);
                }
            },
            recv(signals.received) -> it => match it {
                Ok(it) if it.signal == SIGCHLD => {
                    let is_over = command.reap(&notes) && command.was_ended(for_loss, args.on_loss);
                    if is_over {
                        tree::send(Signal::TERM);
                        tree::send(Signal::CONT);
                        kill_at = earliest(kill_at, grace);
                    }
                },
                Ok(it) if it.signal == SIGKILL => kill_at = Some(Instant::now()),
                Ok(it) => {
                    job_is_stopped = it.signal == SIGTSTP || job_is_stopped && it.signal != SIGCONT;
                    if group == Group::Own || !it.by_terminal {
                        command.pass_on(it.signal);
                    }
                },
                Err(_) => {},
            },
            recv(kill) -> _ => {
                // What the clock has ended is not asked about: meanwhile another caller might begin.
                let may_ask = until.saturating_duration_since(Instant::now()).saturating_sub(killed_before);
                let rest = match guard.loss() {
                    Some(_) => revoked::keeps_others_out(client, args, &guard.tokens(), may_ask),
                    None => Duration::ZERO,
                };
                kill_at = earliest(kill_at, rest.saturating_sub(killed_before).min(grace));
                (kill, for_loss) = (never(), true);
            },
            recv(term) -> _ => {
                command.end();
                notes.note(match guard.loss() {
                    Some(loss) => format!("COMMAND is ended: {loss:#}"),
                    None => format!("COMMAND is ended: less than {grace:?} of the lock are certain"),
                });
                (term, for_loss) = (never(), true);
            },
            recv(lost) -> _ => {
                let why = guard.loss().map_or_else(String::new, |it| format!("{it:#}"));
                notes.note(format!("COMMAND goes on without its lock: {why}"));
                lost = never();
            },
            recv(limit) -> _ => {
                command.end();
                notes.note("COMMAND is ended: --at-most is over".to_owned());
                kill_at = earliest(kill_at, grace);
                (limit, too_long) = (never(), true);
            },
            recv(kill_at.map_or_else(never, at)) -> _ => {
                command.kill();
                let what = if command.status.is_some() { "what COMMAND has left behind" } else { "COMMAND" };
                let why = if for_loss { "its lock ends" } else { "it does not end" };
                notes.note(format!("{what} is killed: {why}"));
                (kill_at, killed) = (None, killed.or_else(|| Some(Instant::now())));
            },
        }
        let goes_on = kill_at.is_some() || killed.is_some_and(|at| at.elapsed() < DIES);
        if let Some(status) = command.status
            && !(goes_on && command.has_left_some(killed.is_some()))
        {
            break status;
        }
    };
    notes.are_written();
    Ended { status, for_loss, too_long }
}

/// Returns `at`, or `rest` from now if that is sooner.
fn earliest(at: Option<Instant>, rest: Duration) -> Option<Instant> {
    let then = Instant::now() + rest;
    Some(at.map_or(then, |at| at.min(then)))
}

/// A command that runs, or that has left running processes behind.
struct Running {
    pid: Pid,
    group: Group,
    /// Set once the command was waited for.
    status: Option<ExitStatus>,
    /// Whether it was stopped as it asks the terminal in the background.
    wants_terminal: bool,
}

impl Running {
    /// Waits for all children that have ended, also those that the command has left; says if the command was
    /// stopped. Returns whether the command has ended now.
    fn reap(&mut self, notes: &Notes) -> bool {
        let before = self.status;
        tree::reap(|pid, status| match status.stopping_signal() {
            _ if pid != self.pid => {}
            None => self.status = Some(ExitStatus::from_raw(status.as_raw())),
            Some(signal) => {
                self.wants_terminal = [SIGTTIN, SIGTTOU].contains(&signal);
                let name = signal_name(signal).unwrap_or("a signal");
                notes.note(format!("COMMAND is stopped by {name}, and keeps its lock"));
            }
        });
        before.is_none() && self.status.is_some()
    }

    /// Whether it has not ended by itself, so that what it leaves behind must end, too.
    fn was_ended(&self, for_loss: bool, on_loss: OnLoss) -> bool {
        match on_loss {
            OnLoss::Term | OnLoss::Warn if for_loss => false,
            _ => for_loss || self.status.is_some_and(|it| it.signal().is_some()),
        }
    }

    /// Receives a message when it is time to look for processes that the command has left behind.
    fn looks(&self) -> Receiver<Instant> {
        if self.status.is_some() { after(LOOKED) } else { never() }
    }

    /// Whether processes that it has started are alive; `kills` them all if they are.
    fn has_left_some(&mut self, kills: bool) -> bool {
        let some = tree::reap(|_, _| {}) || self.has_left_its_group();
        if some && kills {
            self.kill();
        }
        some
    }

    /// Whether others of its group are alive after it was waited for. While they are, no other process has
    /// its id; if one has, the group with that id is a different one, too.
    fn has_left_its_group(&self) -> bool {
        self.group == Group::Own
            && test_kill_process_group(self.pid) != Err(Errno::SRCH)
            && test_kill_process(self.pid) == Err(Errno::SRCH)
    }

    /// Sends a signal to the command, and to its process group if it has its own. A command that has ended
    /// needs none.
    fn send(&self, signal: Signal) {
        let _ = match self.group {
            _ if self.status.is_some() && !self.has_left_its_group() => Ok(()),
            Group::Own => kill_process_group(self.pid, signal),
            Group::Callers(_) | Group::Inherited => kill_process(self.pid, signal),
        };
    }

    /// Passes a signal on; one that may end the command reaches it even if it is stopped.
    fn pass_on(&self, signal: i32) {
        if let Some(it) = Signal::from_named_raw(signal) {
            self.send(it);
        }
        if ENDING.contains(&signal) {
            self.send(Signal::CONT);
        }
    }

    /// Asks the command to end, even if it is stopped.
    fn end(&self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    /// Kills it, and all that it has started.
    fn kill(&self) {
        self.send(Signal::KILL);
        tree::send(Signal::KILL);
    }
}

/// Writes notes on a thread of its own, which ends with them: a reader of standard error that does not read must
/// not keep the command from being killed.
struct Notes {
    notes: Sender<String>,
    written: Receiver<()>,
}

impl Notes {
    fn to(say: Say) -> Notes {
        let ((notes, all), (done, written)) = (unbounded::<String>(), bounded(1));
        let write = move || {
            all.iter().for_each(|note| say.note(note));
            let _ = done.send(());
        };
        // Without a thread, there are no notes.
        let _ = std::thread::Builder::new().name("notes".to_owned()).spawn(write);
        Notes { notes, written }
    }

    fn note(&self, what: String) {
        let _ = self.notes.send(what);
    }

    /// Waits until they are written, for a second at most.
    fn are_written(self) {
        drop(self.notes);
        let _ = self.written.recv_timeout(DIES);
    }
}
