//! The holders of a lock: the first thing an operator asks for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use crate::clock::Moment;
use crate::engine::call::several::Part;
use crate::engine::entries::entry::LockEntry;
use crate::engine::hearing::messages::dispatch;
use crate::engine::operations::requests;
use crate::engine::redis::resp::{number, text};
use crate::engine::state::grant::{first_token, number_of};
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::lock::inspect::{HeldRow, Holder, inspect};

/// The result of a [`force_unlock`](crate::RedisLock::force_unlock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ForcedUnlock {
    /// The number of holds that were removed; for an exclusive lock at most one.
    pub holders: usize,
    /// The number of their holders that are known to have been notified, as their processes were listening.
    /// Another holder may work on until its next renewal, or with a fixed lease until its release.
    pub notified: usize,
    /// The number of holders left alone, as they did not meet the precondition.
    pub skipped: usize,
    /// The longest time for which [revoked](crate::RedisLock::force_unlock_if) holds may still keep others out: the
    /// rest of their leases. Zero after a forced unlock.
    pub remaining: Duration,
}

/// The precondition of a [forced unlock](crate::RedisLock::force_unlock_if): whose hold it removes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldBy {
    /// Any holder: all holds are removed.
    Anyone,
    /// Only the holder with this [owner id](Holder::owner): one grant to one process.
    Owner(String),
    /// Only the grant with this fencing [token](crate::Guard::token), or with one that it had before a local
    /// hand-off. For an exclusive lock: other locks have no tokens.
    Token(u64),
}

impl HeldBy {
    /// Whether this names the owner `owner`, whose grant has this number (0: none).
    pub(crate) fn is(&self, owner: &str, number: u64) -> bool {
        match self {
            HeldBy::Anyone => true,
            HeldBy::Owner(named) => named == owner,
            HeldBy::Token(token) => number > 0 && number_of(*token) == number,
        }
    }
}

/// The longest reason of a forced unlock, in bytes.
const LONGEST_REASON: usize = 1024;

/// Takes the lock in these modes from the holders that are meant: see
/// [`force_unlock_if`](crate::RedisLock::force_unlock_if). Each mode with whether its last grant number is that of its
/// holder.
pub(crate) fn take_away(
    entry: &Arc<LockEntry>,
    modes: &[(&str, bool)],
    held_by: &HeldBy,
    reason: &str,
    gently: bool,
) -> Result<ForcedUnlock, Error> {
    if reason.len() > LONGEST_REASON {
        let why = format!("a reason must have at most {LONGEST_REASON} bytes, got {}", reason.len());
        return Err(entry.error(ErrorKind::InvalidInput.because(why)));
    }
    // In the form in which a holder receives it: on one line.
    let reason = reason.replace(char::is_control, " ");
    let mut forced = ForcedUnlock::default();
    for (mode, ordered) in modes {
        for held in inspect(entry, mode)?.holders {
            if !held_by.is(&held.holder.owner, if *ordered && held.is_ours { held.last } else { 0 }) {
                forced.skipped += 1;
                continue;
            }
            let limit = Moment::now().after(entry.shared.config.command_timeout);
            let gently = gently && held.is_ours && held.holder.remaining.is_some();
            let stays =
                requests::force(entry, &held.raw, gently, limit).map_err(|e| entry.error(e.error()))?;
            // Otherwise it left by itself.
            if let Some(stays) = stays {
                forced.holders += 1;
                forced.remaining = forced.remaining.max(stays);
                // A foreign holder cannot be notified.
                let notified = held.is_ours && notify(entry, &held.holder.owner, reason.trim(), limit);
                forced.notified += usize::from(notified);
            }
        }
    }
    Ok(forced)
}

/// Notifies the holder, whose hold was taken away. Returns whether that is known to have succeeded; if not, the
/// holder's next renewal reports the loss.
fn notify(entry: &Arc<LockEntry>, owner: &str, reason: &str, limit: Moment) -> bool {
    let uuid = owner.split(':').next().unwrap_or_default();
    let text = format!("no:forced 0 0 {reason}");
    if uuid == entry.shared.uuid {
        dispatch(&entry.shared, owner, text.trim_end(), Moment::now());
        return true;
    }
    let receivers = entry.publish(uuid, format!("{owner} {text}").trim_end(), limit).inspect_err(|failure| {
        tracing::debug!(lock = entry.name(), ?failure, "could not notify a holder of a forced unlock");
    });
    receivers.is_ok_and(|n| number(Some(&n)).is_some_and(|n| n > 0))
}

/// The holders that may block a caller: for either half of a read/write lock, also those of the other half.
pub(crate) fn holders_of_either_half(part: &Part) -> Result<Vec<Holder>, Error> {
    let args = &part.terms.args;
    let mut holders = holders_in(&part.entry, args)?;
    if let Some(other_mode) = &part.other_mode {
        let mode = if args.starts_with("read") { "write" } else { "read" };
        holders.extend(holders_in(other_mode, mode)?);
    }
    Ok(holders)
}

/// The holders, as [`RedisLock::holders`](crate::RedisLock::holders) describes them.
pub(super) fn holders_in(entry: &Arc<LockEntry>, mode: &str) -> Result<Vec<Holder>, Error> {
    let exclusive = entry.shape.sharing == Sharing::Exclusive;
    Ok(holders_of(inspect(entry, mode)?.holders, exclusive, &[]))
}

/// The holders. The last number of a shared kind belongs to some grant, but perhaps not to this holder's: only where
/// the kind is `exclusive` it is the holder's. For holders of permits, `shares` has each one's owner, its number of
/// permits, and its grant number.
pub(crate) fn holders_of(held: Vec<HeldRow>, exclusive: bool, shares: &[Value]) -> Vec<Holder> {
    let shares = shares.chunks(3).filter_map(|it| Some((text(it.first())?, it)));
    let shares: HashMap<String, &[Value]> = shares.collect();
    let holder = |held: HeldRow| {
        let of = |i: usize| u64::try_from(number(shares.get(&held.holder.owner)?.get(i))?).ok();
        let permits = of(1).map(|n| n.try_into().unwrap_or(u32::MAX));
        let number = of(2).unwrap_or(if exclusive { held.last } else { 0 });
        Holder { permits, ..held.granted(number) }
    };
    held.into_iter().map(holder).collect()
}

/// The error of a caller that timed out; `by` says what is known about the holders.
pub(crate) fn busy(name: &str, by: Result<String, Error>) -> Error {
    let error = Error::new(ErrorKind::Timeout, name);
    match by {
        Ok(by) => error.because(by),
        Err(why) => error.because("the holder could not be determined").caused_by(why),
    }
}

/// Describes the holders in a few words.
pub(crate) fn held_by(holders: &[Holder]) -> String {
    /// Nobody would read more than these.
    const NAMED: usize = 3;
    let each = holders.iter().take(NAMED).map(|holder| {
        let permits = match holder.permits {
            Some(1) => " (1 permit)".to_owned(),
            Some(n) => format!(" ({n} permits)"),
            None => String::new(),
        };
        // The server's clock may be ahead of ours.
        let held = holder.since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default());
        let held = held.map(|held| format!(" for {:.1} s", held.as_secs_f64())).unwrap_or_default();
        format!("{holder}{permits}{held}")
    });
    let named = each.collect::<Vec<_>>().join("; ");
    match holders.len() {
        0 => "it was held, but is free now".to_owned(),
        n if n > NAMED => format!("held by {named}; and {} more", n - NAMED),
        _ => format!("held by {named}"),
    }
}

/// Returns the error of a call that found several locks busy, by what `text` says of each that is held, after
/// its label. If not all are known, the first error is its cause.
pub(crate) fn several_busy(
    name: &str,
    each: impl Iterator<Item = (String, Result<Vec<Holder>, Error>)>,
    text: impl FnOnce(&[String]) -> String,
) -> Error {
    let (mut held, mut unknown) = (Vec::new(), None);
    for (label, holders) in each {
        match holders {
            Ok(holders) if holders.is_empty() => {}
            Ok(holders) => held.push(label + &held_by(&holders)),
            Err(why) => unknown = unknown.or(Some(why)),
        }
    }
    match unknown {
        None => busy(name, Ok(text(&held))),
        Some(why) if held.is_empty() => busy(name, Err(why)),
        Some(why) => {
            let text = format!("{}; the holders of the others are not known", text(&held));
            busy(name, Ok(text)).caused_by(why)
        }
    }
}

/// Returns the first fencing token of a grant.
pub(crate) fn token_of(number: u64) -> u64 {
    first_token(number)
}
