//! `run`: runs a command while a lock is held; the command is dead before another caller can hold the lock.

mod acquire;
pub mod child;
pub mod front;
mod revoked;
mod signals;
mod start;
mod status;
mod supervise;
mod tree;
mod trust;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use redis_concurrent::guard::LONGEST_STAY;
use redis_concurrent::{Client, Error, MultiLock, OwnedGuard};

use self::acquire::Acquired;
use self::signals::Signals;
use self::start::Group;
use self::status::{Exit, Status};
use self::supervise::Ended;
use crate::args::{Global, Run};
use crate::connect::Servers;
use crate::exit::{Failure, code};
use crate::say::Say;

/// Runs the command of `args`, below the process `front`. The exit status is the command's, or says why it did
/// not run.
pub fn run(global: &Global, args: &Run, front: i32, say: Say) -> Result<ExitCode, Failure> {
    check(args)?;
    let mut status = Status::open(args.status_fd)?;
    let signals = Signals::listen(front)?;
    tree::adopt_orphans();
    let began = Instant::now();
    let acquired = Servers::of(global).and_then(|servers| acquire::acquire(&servers, args, &signals, say));
    status.waited = began.elapsed();
    let done = acquired.and_then(|acquired| match acquired {
        Acquired::Busy => Ok(Exit::Code(if args.skip { 0 } else { args.busy_exit })),
        Acquired::Ended(signal) => Ok(Exit::Signal(signal)),
        Acquired::Held(client, guard, slot) => {
            let group = Group::of(args, front);
            hold((global, args, group), (&client, guard, slot), &signals, &mut status, say)
        }
    });
    let exit = done.as_ref().map_or_else(Failure::status, |exit| exit.code());
    if let Err(error) = status.write(exit) {
        // The command's own outcome matters more than a status that nobody reads.
        say.note(format!("--status-fd cannot be written: {error}"));
    }
    done.map(Exit::end)
}

/// Checks what clap cannot check.
fn check(args: &Run) -> Result<(), Failure> {
    if args.command.first().is_some_and(|it| it.is_empty()) {
        return Err(Failure::usage("the COMMAND is empty"));
    }
    if let Some(option) = args.command.first().filter(|it| it.as_encoded_bytes().starts_with(b"-")) {
        let option = option.to_string_lossy();
        return Err(Failure::usage(format!("{option} is neither an option of run nor a COMMAND")));
    }
    // The library would reject this only after COMMAND has ended.
    if args.once_for.is_some_and(|rest| rest > LONGEST_STAY) {
        let days = LONGEST_STAY.as_secs() / (24 * 3600);
        return Err(Failure::new(code::CONFIG, format!("--once-for must be at most {days} days")));
    }
    let grace = grace(args);
    if grace < LEAST_GRACE {
        return Err(Failure::new(
            code::CONFIG,
            format!("--grace must be at least {LEAST_GRACE:?}: COMMAND would not be dead in time"),
        ));
    }
    if grace >= args.lease / 2 {
        return Err(Failure::new(
            code::CONFIG,
            format!(
                "--grace, {grace:?}, must be less than half of --lease, {:?}: a healthy hold has that left",
                args.lease
            ),
        ));
    }
    Ok(())
}

/// The least `--grace`: half of it is for a process to be scheduled, and to die.
const LEAST_GRACE: Duration = Duration::from_millis(100);

/// Returns how much of the lease must be certain while the command runs.
fn grace(args: &Run) -> Duration {
    args.grace.unwrap_or_else(|| (args.lease / 6).max(LEAST_GRACE))
}

/// Runs the command, from the grant of the lock to its release.
fn hold(
    (global, args, group): (&Global, &Run, Group),
    (client, guard, slot): (&Client, OwnedGuard<MultiLock>, Option<u32>),
    signals: &Signals,
    status: &mut Status,
    say: Say,
) -> Result<Exit, Failure> {
    let began = Instant::now();
    status.acquired(&guard.tokens());
    say.detail(format!("{} was acquired after {:.3} s", guard.name(), status.waited.as_secs_f64()));
    let mut command = start::command(global, args, (&guard.tokens(), slot), group);
    if let Some(signal) = signals.ending() {
        release(guard, Stay::For(Duration::ZERO)).map_err(Failure::from)?;
        return Ok(Exit::Signal(signal));
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            release(guard, Stay::For(Duration::ZERO)).map_err(Failure::from)?;
            return Err(Failure::new(code::NOT_EXECUTABLE, format!("the command could not be started: {e}")));
        }
    };
    let ended = supervise::supervise(&child, (args, group), (client, &guard), signals, say);
    status.child = Some(ended.status);
    status.held = began.elapsed();
    let stay = match args.once_for {
        None => {
            Stay::Agreed(args.at_least.map_or(Duration::ZERO, |least| least.saturating_sub(began.elapsed())))
        }
        Some(rest) if ended.status.success() && !ended.stopped() => {
            // Less than a millisecond counts as none.
            let rest = rest.saturating_sub(began.elapsed());
            Stay::For(if rest.as_millis() > 0 { rest } else { Duration::ZERO })
        }
        Some(_) => Stay::For(Duration::ZERO),
    };
    let tokens = guard.tokens();
    // The release of several locks returns one error, which may be about another lock.
    let known = guard.loss();
    let (loss, failed) = match release(guard, stay) {
        Ok(()) => (known, None),
        Err(error) if error.is_lease_lost() => (Some(error), None),
        Err(error) => (known, Some(error)),
    };
    if loss.is_some() {
        revoked::free(client, args, &tokens);
    } else if failed.is_none() {
        status.stays = stay.rest();
    }
    Ok(conclude(args, &ended, (loss, failed), status, say))
}

/// Returns the exit status, given how the command ended, how a lock was lost, and why the release failed.
fn conclude(
    args: &Run,
    ended: &Ended,
    (loss, failed): (Option<Error>, Option<Error>),
    status: &mut Status,
    say: Say,
) -> Exit {
    if let Some(error) = loss {
        status.lost = true;
        say.note(format!("the lock was lost: {error:#}"));
    }
    if let Some(error) = failed {
        say.note(format!("the lock may stay held for a lease: {error:#}"));
    }
    match ended {
        Ended { for_loss: true, .. } => Exit::Code(args.lost_exit),
        _ if status.lost => Exit::Code(args.lost_exit),
        Ended { too_long: true, .. } => Exit::Code(code::TOO_LONG),
        _ => Exit::of(ended.status),
    }
}

/// What happens to the lock when the command has ended.
#[derive(Clone, Copy)]
enum Stay {
    /// It stays for the rest of --at-least.
    Agreed(Duration),
    /// Zero: it is free at once.
    For(Duration),
}

impl Stay {
    fn rest(self) -> Duration {
        match self {
            Stay::Agreed(rest) | Stay::For(rest) => rest,
        }
    }
}

fn release(guard: OwnedGuard<MultiLock>, stay: Stay) -> Result<(), Error> {
    match stay {
        Stay::Agreed(_) => guard.unlock(),
        Stay::For(rest) => guard.unlock_staying(rest),
    }
}
