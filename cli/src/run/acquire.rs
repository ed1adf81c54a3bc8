//! Acquires the lock: the kinds and terms of the options, and how long to wait.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::admin::Waiter;
use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::{
    CancellationToken, Client, Error, ErrorKind, Member, MultiLock, OwnedGuard, RedisLock, Wait,
};

use super::grace;
use super::signals::Signals;
use super::{start, trust};
use crate::args::{LockKind, Run};
use crate::connect::Servers;
use crate::exit::{Failure, code};
use crate::say::{self, Say};
use crate::target::Target;

/// The pause before an unreachable server is tried again.
const AGAIN: Duration = Duration::from_millis(250);

/// After this long, someone wonders who has the lock.
const SECOND: Duration = Duration::from_secs(1);

/// How many characters of a command its label has.
const LABEL: usize = 60;

/// The outcome of acquiring.
pub enum Acquired {
    /// With the number of its slot, if it has one.
    Held(Client, OwnedGuard<MultiLock>, Option<u32>),
    Busy,
    /// This signal ended the wait.
    Ended(i32),
}

/// Waits for the lock, or for all of the locks, as `args` says.
pub fn acquire(servers: &Servers, args: &Run, signals: &Signals, say: Say) -> Result<Acquired, Failure> {
    let began = Instant::now();
    let once = args.nonblock || args.skip;
    let end = if once { Some(began) } else { args.wait.map(|longest| began + longest) };
    let Some(client) = reach(servers, args, once, signals, say)? else {
        return Ok(Acquired::Ended(signals.ended_by()));
    };
    let mut locks = all_locks(&client, args, say)?;
    if !once {
        not_within_itself(&client, args)?;
    }
    loop {
        let wait = match end {
            _ if once => Wait::once(),
            Some(end) => Wait::until(end),
            None => Wait::forever(),
        };
        let asks = Asks { client: &client, locks: &locks, args, say };
        let guard = match asks.while_it_waits(|| locks.lock_owned_with(wait.cancelled_by(&signals.stop))) {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                asks.tell();
                return Ok(Acquired::Busy);
            }
            Err(error) if error.is_cancelled() => return Ok(Acquired::Ended(signals.ended_by())),
            // With its data the server lost the number of slots, too.
            Err(error) if args.slots.is_some() && error.kind() == ErrorKind::Refused => {
                locks = all_locks(&client, args, say)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (guard, slot) = match args.slots {
            None => (guard, None),
            Some(n) => match numbered(&client, guard, (args, n), end, signals)? {
                Some((guard, number)) => (guard, Some(number)),
                None if signals.stop.is_cancelled() => return Ok(Acquired::Ended(signals.ended_by())),
                None if is_over(end) => {
                    asks.tell();
                    return Ok(Acquired::Busy);
                }
                // The permit was lost.
                None => continue,
            },
        };
        // A holder that the server has forgotten may not know that yet.
        let distrust = trust::how_long(&client, servers.namespace(), (args, slot), say);
        if !distrust.is_zero() {
            say.note(format!(
                "the server was started, flushed or promoted a moment ago, and may have forgotten a holder: waiting {:.1} s, \
                 for --lease {:?} (--trust-server does not wait)",
                distrust.as_secs_f64(),
                args.lease
            ));
        }
        let mut failed = None;
        if trust::waited_out(distrust, &guard.lost(), signals) {
            match has_its_lease(&guard, args) {
                Ok(()) => return Ok(Acquired::Held(client, guard, slot)),
                Err(error) => failed = Some(error),
            }
        }
        if signals.stop.is_cancelled() {
            guard.unlock_staying(Duration::ZERO)?;
            return Ok(Acquired::Ended(signals.ended_by()));
        }
        // The lock was lost before the command started, or could not be renewed.
        let why = guard.unlock_staying(Duration::ZERO).err().or(failed);
        if once {
            return Err(why.map_or_else(|| Failure::internal("a loss without a reason"), Failure::from));
        }
    }
}

/// Who has the lock, for someone who waits for it.
struct Asks<'a> {
    client: &'a Client,
    locks: &'a MultiLock,
    args: &'a Run,
    say: Say,
}

impl Asks<'_> {
    /// Waits, and tells who has the lock once that has taken a second.
    fn while_it_waits<R>(&self, wait: impl FnOnce() -> R) -> R {
        if self.args.nonblock || self.args.skip || !self.say.hints() {
            return wait();
        }
        let over = CancellationToken::new();
        let cancel = CancelOnDrop(over.clone());
        thread::scope(|scope| {
            let tells = move || {
                if !over.wait_timeout(SECOND) {
                    self.tell();
                }
            };
            // Without the thread it waits all the same.
            let _ = thread::Builder::new().name("asks".to_owned()).spawn_scoped(scope, tells);
            let outcome = wait();
            drop(cancel);
            outcome
        })
    }

    /// Tells who has the lock, and how many wait before this process.
    fn tell(&self) {
        if !self.say.hints() {
            return;
        }
        let busy = self.locks.busy_error().to_string();
        let who = busy.split_once("timed out: ").map_or("it is busy", |(_, who)| who);
        // Several locks are not waited for in one queue. Nor does it matter if this user may not look.
        let target = Target::of(self.args.at, self.args.redisson);
        let found =
            target.inspect(self.client, &self.args.name).ok().flatten().filter(|_| self.args.and.is_empty());
        let own = |it: &Waiter| it.process.as_ref().is_some_and(|it| it.pid == std::process::id());
        let ahead = found.and_then(|it| it.waiters.iter().position(own));
        let ahead = ahead.map(|n| format!(", {n} ahead")).unwrap_or_default();
        say::error(format!("{who}{ahead}"));
    }
}

/// Ends the wait of another thread, even if this one panics.
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns an error if a command of a `run` waits for a lock that this `run` holds: it would wait for itself.
fn not_within_itself(client: &Client, args: &Run) -> Result<(), Failure> {
    let tokens = start::enclosing_tokens();
    // Of several slots another is free, or will be; and a permit has no token.
    let only_slot = (args.slots == Some(1)).then(|| number_name(&args.name, 0));
    for name in args.names().chain(&only_slot).filter(|_| !tokens.is_empty()) {
        // Without the right to look, it waits.
        let found = Target::of(args.at, args.redisson).inspect(client, name).ok().flatten();
        let holders = found.map(|it| it.holders).unwrap_or_default();
        if holders.iter().any(|it| it.token.is_some_and(|token| tokens.contains(&token))) {
            let why =
                format!("{name:?} is held by the run that has started this one: it would wait for itself");
            return Err(Failure::new(code::CONFIG, why));
        }
    }
    Ok(())
}

/// Returns an error if a command may not begin. It needs more than its grace: the hold may have ended while
/// the server was asked, and a hold that was waited for has only its first lease so far.
fn has_its_lease(guard: &OwnedGuard<MultiLock>, args: &Run) -> Result<(), Error> {
    if guard.remaining() >= 2 * grace(args) { Ok(()) } else { guard.renew() }
}

/// Adds to a permit the lowest number from 0 to `n`-1 that nobody holds: a lock of its own, which excludes
/// others however the hold ends. One is free, unless the lease of a holder that died lasts longer than its permit
/// did, or a caller with a larger `n` has it: then it is waited for. Returns `None` at the `end` of that wait, at a
/// signal, or if the permit is lost.
fn numbered(
    client: &Client,
    permit: OwnedGuard<MultiLock>,
    (args, n): (&Run, u32),
    end: Option<Instant>,
    signals: &Signals,
) -> Result<Option<(OwnedGuard<MultiLock>, u32)>, Failure> {
    let began = Instant::now();
    let number = |i: u32| {
        let lock = MultiLock::new(&[&client.simple_lock(&number_name(&args.name, i))]);
        lock.try_lock_owned().transpose().map(|it| it.map(|guard| (guard, i)))
    };
    loop {
        match (0..n).find_map(number) {
            Some(Ok((guard, i))) => return Ok(Some((permit.joined(guard), i))),
            Some(Err(error)) if is_over(end) || !error.is_retryable() || began.elapsed() >= args.bear => {
                return Err(error.into());
            }
            _ => {}
        }
        if is_over(end) || permit.lost().is_cancelled() || signals.stop.wait_timeout(AGAIN) {
            return Ok(None);
        }
    }
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// Returns the name of the lock that is the number `i` of a slot.
pub fn number_name(name: &str, i: u32) -> String {
    format!("{name}#slot{i}")
}

/// Returns the client once the server answers; `None` if a signal came first.
fn reach(
    servers: &Servers,
    args: &Run,
    once: bool,
    signals: &Signals,
    say: Say,
) -> Result<Option<Client>, Failure> {
    let bear = args.wait.map_or(args.bear, |wait| wait.min(args.bear));
    let end = Instant::now() + if once { Duration::ZERO } else { bear };
    let builder =
        || servers.builder().lease(args.lease).unreachable_timeout(args.bear).client_name(&label(args));
    loop {
        match servers.connected(builder()) {
            Ok(client) => return Ok(Some(client)),
            Err(failure) => {
                if failure.status() != code::UNAVAILABLE || Instant::now() + AGAIN > end {
                    return Err(failure);
                }
                say.detail("Redis cannot be reached, trying again");
            }
        }
        if signals.stop.wait_timeout(AGAIN) {
            return Ok(None);
        }
    }
}

/// Returns what others see of this holder.
fn label(args: &Run) -> String {
    let words = args.command.iter().map(|it| it.to_string_lossy());
    let all: String = match (&args.label, &args.shell) {
        (Some(label), _) => label.clone(),
        (None, Some(text)) => text.to_string_lossy().into_owned(),
        (None, None) => words.collect::<Vec<_>>().join(" "),
    };
    let plain = all.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LABEL).collect::<String>().trim().to_owned()
}

/// Returns all locks of `args`, as one.
fn all_locks(client: &Client, args: &Run, say: Say) -> Result<MultiLock, Failure> {
    let members: Vec<Box<dyn Member>> = match args.slots {
        Some(permits) => vec![slot(client, &args.name, permits, say)?],
        None => args.names().map(|name| member(client, args, name)).collect(),
    };
    Ok(MultiLock::new(&members.iter().map(|it| &**it).collect::<Vec<_>>()))
}

fn member(client: &Client, args: &Run, name: &str) -> Box<dyn Member> {
    let kind = match args.kind {
        Some(kind) => kind,
        None if args.exclusive => LockKind::Write,
        None if args.shared => LockKind::Read,
        None => LockKind::Reentrant,
    };
    match kind {
        _ if args.at => on_terms(client.simple_lock_at(name), args),
        _ if args.redisson => on_terms(client.redisson_lock(name), args),
        LockKind::Reentrant => on_terms(client.reentrant_lock(name), args),
        LockKind::Simple => on_terms(client.simple_lock(name), args),
        LockKind::Write => on_terms(client.read_write_lock(name).write_lock().clone(), args),
        LockKind::Read => on_terms(client.read_write_lock(name).read_lock().clone(), args),
    }
}

fn on_terms<K: Kind>(lock: RedisLock<K>, args: &Run) -> Box<dyn Member> {
    let lock = if args.fair { lock.fair() } else { lock };
    Box::new(match args.at_least {
        Some(least) => lock.min_hold(least),
        None => lock,
    })
}

/// Returns a permit of a semaphore, which is created if it is missing. The number that was asked for last counts.
fn slot(client: &Client, name: &str, permits: u32, say: Say) -> Result<Box<dyn Member>, Failure> {
    let semaphore = client.semaphore(name);
    if !semaphore.try_set_permits(permits)? {
        let there = semaphore.permits()?.unwrap_or_default();
        if there != permits {
            semaphore.set_permits(permits)?;
            say.note(format!("{name:?} had {there} slots, and has {permits} from now on"));
        }
    }
    Ok(Box::new(client.lock_with_kind(name, Permits::of(1)?)))
}
