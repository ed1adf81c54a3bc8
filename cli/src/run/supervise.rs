//! Supervises the running command: passes signals on to it, and ends it before another caller can hold its
//! lock.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use redis_concurrent::crossbeam_channel::{Receiver, after, at, bounded, never, select};
use redis_concurrent::{Client, MultiLock, OwnedGuard};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process,
    test_kill_process_group, waitid,
};

use super::signals::Signals;
use super::{grace, revoked, start};
use crate::args::{OnLoss, Run};
use crate::exit::Failure;
use crate::say::Say;

/// The longest time before the end of a hold at which the command is killed.
const KILLED_BEFORE: Duration = Duration::from_secs(2);

/// How often to check whether the rest of the command's process group has ended, too.
const LOOKED: Duration = Duration::from_millis(10);
/// How long that may take after a kill: a zombie that its parent does not wait for never goes away.
const DIES: Duration = Duration::from_secs(1);

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

/// Waits for the command to end, and ends it if its lock or its time ends first; then waits for all of its
/// process group, if it has one of its own. Called by the thread that started it, as the kernel kills the
/// command when that thread ends.
pub fn supervise(
    child: &mut Child,
    args: &Run,
    (client, guard): (&Client, &OwnedGuard<MultiLock>),
    signals: &Signals,
    say: Say,
) -> Result<Ended, Failure> {
    let mut command = Running::new(child, args)?;
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
            recv(command.exited) -> _ => {
                command.wait_for(child)?;
                if for_loss && args.on_loss == OnLoss::Kill && killed.is_none() {
                    kill_at = earliest(kill_at, grace);
                }
            },
            recv(command.looks()) -> _ => {},
            recv(signals.received) -> it => if let Ok(it) = it
                && (command.own_group || !it.is_from_terminal())
                && let Some(signal) = Signal::from_named_raw(it.signal)
            {
                command.send(signal);
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
                match guard.loss() {
                    Some(loss) => say.note(format!("COMMAND is stopped: {loss:#}")),
                    None => say.note(format!("COMMAND is stopped: less than {grace:?} of the lock are certain")),
                }
                command.end();
                (term, for_loss) = (never(), true);
            },
            recv(lost) -> _ => {
                say.note(format!("COMMAND goes on without its lock: {}", guard.loss().map_or_else(String::new, |it| format!("{it:#}"))));
                lost = never();
            },
            recv(limit) -> _ => {
                say.note("COMMAND is stopped: --at-most is over");
                command.end();
                kill_at = earliest(kill_at, grace);
                (limit, too_long) = (never(), true);
            },
            recv(kill_at.map_or_else(never, at)) -> _ => {
                let what = if command.status.is_some() { "what COMMAND has left behind" } else { "COMMAND" };
                say.note(format!("{what} is killed: {}", if for_loss { "its lock ends" } else { "it does not end" }));
                command.send(Signal::KILL);
                (kill_at, killed) = (None, killed.or_else(|| Some(Instant::now())));
            },
        }
        let goes_on = kill_at.is_some() || killed.is_some_and(|at| at.elapsed() < DIES);
        if let Some(status) = command.status
            && !(goes_on && command.has_left_some())
        {
            break status;
        }
    };
    Ok(Ended { status, for_loss, too_long })
}

/// Returns `at`, or `rest` from now if that is sooner.
fn earliest(at: Option<Instant>, rest: Duration) -> Option<Instant> {
    let then = Instant::now() + rest;
    Some(at.map_or(then, |at| at.min(then)))
}

/// A command that runs, or that has left running processes behind.
struct Running {
    pid: Pid,
    own_group: bool,
    /// Receives a message when the command has ended. It has not been waited for then, so its process id is
    /// still its own.
    exited: Receiver<()>,
    /// Set once the command was waited for.
    status: Option<ExitStatus>,
}

impl Running {
    fn new(child: &Child, args: &Run) -> Result<Running, Failure> {
        let failed =
            |why: String| Failure::internal(format!("the command's end cannot be waited for: {why}"));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed("no process id".to_owned()))?;
        let (sender, exited) = bounded(1);
        let wait = move || {
            while let Err(Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            let _ = sender.send(());
        };
        std::thread::Builder::new()
            .name("command".to_owned())
            .spawn(wait)
            .map_err(|e| failed(e.to_string()))?;
        Ok(Running { pid, own_group: start::has_own_group(args), exited, status: None })
    }

    /// Waits for the command, whose process id is no longer its own afterwards.
    fn wait_for(&mut self, child: &mut Child) -> Result<(), Failure> {
        let status =
            child.wait().map_err(|e| Failure::internal(format!("the command's end is not known: {e}")))?;
        (self.status, self.exited) = (Some(status), never());
        Ok(())
    }

    /// Receives a message when it is time to look for processes that the command has left behind.
    fn looks(&self) -> Receiver<Instant> {
        if self.status.is_some() { after(LOOKED) } else { never() }
    }

    /// Whether other processes of its group are alive after it was waited for. While they are, no other
    /// process has its id; if one has, the group with that id is a different one, too.
    fn has_left_some(&self) -> bool {
        // If this program is the first process of a container, no other process waits for them.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while self.own_group && matches!(waitid(WaitId::Pgid(Some(self.pid)), ended), Ok(Some(_))) {}
        self.own_group
            && test_kill_process_group(self.pid) != Err(Errno::SRCH)
            && test_kill_process(self.pid) == Err(Errno::SRCH)
    }

    /// Sends a signal to the command, and to its process group if it has its own. A command that has just
    /// ended needs none.
    fn send(&self, signal: Signal) {
        let _ = match self.own_group {
            _ if self.status.is_some() && !self.has_left_some() => Ok(()),
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }

    /// Asks the command to end, even if it is stopped.
    fn end(&self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }
}
