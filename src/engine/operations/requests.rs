//! The operations as requests: each sends its script with its arguments and returns the reply.

use std::io;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands::{self, caller, over, own_record};
use crate::engine::operations::replies::{
    Left, Renewed, acquired, is_deaf, is_unfinished, left, renewed, unexpected_reply,
};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Pooled;
use crate::engine::redis::refusal::{refused_script, unanswered};
use crate::engine::redis::resp::{list, number, text};
use crate::engine::state::lock_state::{Answer, Asking, PendingRelease, Renewal};
use crate::error::{Error, ErrorKind};
use crate::script::Script;

/// Sends the request of the head of the entry's waiting threads, on the connection of the leave that it goes `behind`.
/// Returns the reply, and whether the request was sent twice to get it.
pub(crate) fn acquire(
    entry: &Arc<LockEntry>,
    asking: &Asking,
    mut behind: Option<Pooled>,
    limit: Moment,
) -> Result<(Answer, bool), Failure> {
    let command = [commands::acquire(entry, asking)];
    let mut resent = false;
    loop {
        let reply = entry.shared.route.ask(entry.hash_slot, &command, behind.take(), limit)?;
        if is_deaf(list(&reply.value)) {
            entry.is_deaf(entry.server(), reply.sent);
        }
        resent |= reply.resent();
        if !is_unfinished(&reply.value, asking, limit) {
            return Ok((acquired(&reply.value, asking.terms.lease)?, resent));
        }
    }
}

/// Leaves the lock and the queue, and in the same round trip sends the request of the next head. A hold that
/// stays for a while gets the rest of that time as its lease instead.
pub(crate) fn leave(
    entry: &Arc<LockEntry>,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    limit: Moment,
) -> Result<Left, Failure> {
    if let Some(rest) = leaving.rest(Moment::now) {
        let reply = entry.ask(&[commands::last_renew(entry, leaving.owner, rest)], limit)?;
        let inside = matches!(renewed(&reply.value)?, Renewal::Left(_));
        return Ok(Left { inside, resent: reply.first_by, next: None });
    }
    let reply = entry.ask(&[commands::leave(entry, leaving, next)], limit)?;
    if is_deaf(list(&reply.value).get(1..).unwrap_or_default()) {
        entry.is_deaf(entry.server(), reply.sent);
    }
    left(&reply.value, next, reply.first_by)
}

/// Reads the reply to a leave that was not waited for, on a connection `dialled` then.
pub(crate) fn left_unread(
    entry: &Arc<LockEntry>,
    reply: Result<Value, RedisError>,
    dialled: Moment,
) -> Result<Left, Failure> {
    let aborted = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionAborted));
    // The server that replied may no longer be the primary, without knowing it.
    let current = |_: &Value| dialled >= entry.server().backend.moved();
    match reply.and_then(|value| Some(value).filter(current).ok_or_else(aborted)) {
        Ok(Value::ServerError(e)) => Err(refused_script(Some(&entry.scripts.leave), e.into())),
        Ok(value @ Value::Int(_)) => left(&value, None, None),
        // It is no reply to a leave: one before it was lost on the way.
        Ok(_) => Err(Failure::Unanswered(unanswered(aborted(), Duration::ZERO))),
        Err(e) => Err(Failure::Unanswered(unanswered(e, entry.shared.config.command_timeout))),
    }
}

/// Renews a hold, setting its lease to `lease`.
pub(crate) fn renew(entry: &Arc<LockEntry>, owner: u64, lease: Duration, limit: Moment) -> Renewed {
    Renewed::of(entry.ask(&[commands::renew(entry, owner, lease)], limit))
}

/// Updates the kind's own state, once per `owner`: `what` is the update, with what the rule needs to know of
/// it. Returns the rule's reply.
pub(crate) fn change(
    entry: &Arc<LockEntry>,
    owner: u64,
    what: &[&str],
    limit: Moment,
) -> Result<Vec<Value>, Failure> {
    let command = commands::change(entry, owner, what).ok_or_else(no_update)?;
    Ok(list(&entry.ask(&[command], limit)?.value).to_vec())
}

/// Makes the hold of `from` that of `owner`. Returns the reply, and whether the request was sent twice to get
/// it.
pub(crate) fn adopt(
    entry: &Arc<LockEntry>,
    owner: u64,
    from: &str,
    lease: Duration,
    limit: Moment,
) -> Result<(Answer, bool), Failure> {
    let Some(script) = &entry.scripts.adopt else {
        return Err(Failure::Unsent(no_rule()));
    };
    let (mut args, no_args) = (caller(entry, owner, lease), String::new());
    args.extend([from.to_owned(), no_args, own_record(entry, 0)]);
    let reply = entry.ask(&[over(entry, script, &args)], limit)?;
    Ok((acquired(&reply.value, lease)?, reply.resent()))
}

/// The reply to one piece of a signal or a count.
pub(crate) struct Signalled {
    /// How many waiters were moved or counted; `None` if the owner does not hold the lock.
    pub(crate) how_many: Option<usize>,
    /// Where the next piece begins, if this was not the last.
    pub(crate) from: Option<String>,
}

/// Signals or counts a condition's waiters (`what`: `one`, `all`, `count`) for `owner`, which must hold the
/// lock. Begins where an earlier piece ended (`from`).
pub(crate) fn signal(
    entry: &Arc<LockEntry>,
    script: &Script,
    owner: u64,
    condition: &str,
    (what, from): (&str, &str),
    limit: Moment,
) -> Result<Signalled, Failure> {
    let mut args = caller(entry, owner, Duration::ZERO);
    args.extend([condition, what, from].map(str::to_owned));
    let reply = entry.ask(&[over(entry, script, &args)], limit)?;
    let items = list(&reply.value);
    let n = number(items.first().or(Some(&reply.value)))
        .ok_or_else(|| unexpected_reply(slice::from_ref(&reply.value)))?;
    Ok(Signalled { how_many: n.try_into().ok(), from: text(items.get(1)) })
}

/// Removes an owner by force, for good. Returns whether it held the lock.
pub(crate) fn force(entry: &Arc<LockEntry>, owner: &[u8], limit: Moment) -> Result<bool, Failure> {
    let shared = &entry.shared;
    let inbox = entry.inbox_prefix();
    let args = [owner, b"0", inbox.as_bytes(), shared.waiter_timeout.as_bytes(), b"1"];
    let reply = entry.ask(&[over(entry, &entry.scripts.leave, &args)], limit)?;
    let inside = number(Some(&reply.value)).ok_or_else(|| unexpected_reply(slice::from_ref(&reply.value)))?;
    Ok(inside == 1 || reply.resent())
}

/// Ends the renewals of an owner by force: it stays for the rest of its lease, and its id is never admitted
/// again. Returns that rest, if it held the lock.
pub(crate) fn let_expire(
    entry: &Arc<LockEntry>,
    owner: &[u8],
    limit: Moment,
) -> Result<Option<Duration>, Failure> {
    let shared = &entry.shared;
    let inbox = entry.inbox_prefix();
    let args = [owner, b"0", inbox.as_bytes(), shared.waiter_timeout.as_bytes(), b"2"];
    let reply = entry.ask(&[over(entry, &entry.scripts.renew, &args)], limit)?;
    Ok(match renewed(&reply.value)? {
        Renewal::Left(left) => Some(left),
        _ => None,
    })
}

pub(crate) fn no_update() -> Failure {
    Failure::Never(
        Error::new(ErrorKind::InvalidInput, "").because("the rule of this kind has no kind.update"),
    )
}

pub(crate) fn no_rule() -> Error {
    Error::new(ErrorKind::InvalidInput, "").because("the rule of this kind has no kind.transfer")
}
