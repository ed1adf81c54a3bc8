//! The operations as requests: each sends its script with its arguments and returns the reply.

use std::sync::Arc;
use std::time::Duration;
use std::{io, slice};

use redis::{RedisError, Value, cmd};

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands::{self, add_receiver, over};
use crate::engine::operations::replies::{
    Left, Renewed, acquired, is_deaf, is_unfinished, left, renewed, unexpected_reply,
};
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Given;
use crate::engine::redis::refusal::{refused_script, unanswered};
use crate::engine::redis::resp::{list, number};
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::state::grant::Grant;
use crate::engine::state::lock_state::{Answer, Asking, PendingRelease, Renewal};
use crate::kind::Sharing;

/// Sends the request of the head of the entry's waiting threads, on the connection of the leave that it goes `behind`.
/// Returns the reply, and whether the request was sent twice to get it.
pub(crate) fn acquire(
    entry: &Arc<LockEntry>,
    asking: &Asking,
    mut behind: Option<Given>,
    limit: Moment,
) -> Result<(Answer, bool), Failure> {
    let command = [commands::acquire(entry, asking)];
    let mut resent = false;
    loop {
        let reply = entry.shared.route.ask(entry.hash_slot, &command, behind.take(), limit)?;
        if is_deaf(list(&reply.value)) {
            entry.is_deaf(reply.sent);
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
        let reply = entry.ask(&[commands::renew(entry, leaving.owner, rest, true)], limit)?;
        let inside = matches!(renewed(&reply.value)?, Renewal::Left(_));
        return Ok(Left { inside, resent: reply.first_by, next: None });
    }
    let command = [commands::leave(entry, leaving, next)];
    let reply = entry.shared.route.ask(entry.hash_slot, &command, None, limit)?;
    if is_deaf(list(&reply.value).get(1..).unwrap_or_default()) {
        entry.is_deaf(reply.sent);
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
    let current = |_: &Value| dialled >= entry.server().backend.moved.get();
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
    Renewed::of(entry.ask(&[commands::renew(entry, owner, lease, false)], limit))
}

/// Updates the kind's own state, once per `owner`: `what` is the update, with what the rule needs to know of
/// it. Returns the rule's reply.
pub(crate) fn update(
    entry: &Arc<LockEntry>,
    owner: u64,
    what: &[&str],
    limit: Moment,
) -> Result<Vec<Value>, Failure> {
    let reply = entry.ask(&[commands::update(entry, owner, what)?], limit)?;
    Ok(list(&reply.value).to_vec())
}

/// Removes an owner by force, for good; or `gently`: ends its renewals, so that it stays for the rest of its lease. Returns
/// for how long it stays, if it held the lock.
pub(crate) fn force(
    entry: &Arc<LockEntry>,
    owner: &[u8],
    gently: bool,
    limit: Moment,
) -> Result<Option<Duration>, Failure> {
    let scripts = &entry.scripts;
    let (script, how) = if gently { (&scripts.renew, "2") } else { (&scripts.leave, "1") };
    let mut call = over(entry, script).with(&[owner, b"0"]);
    add_receiver(&mut call, &entry.shared, &entry.names);
    let reply = entry.ask(&[Command::script(script, call.with(&[how]))], limit)?;
    if gently {
        return Ok(match renewed(&reply.value)? {
            Renewal::Left(left) => Some(left),
            _ => None,
        });
    }
    let inside = number(Some(&reply.value)).ok_or_else(|| unexpected_reply(slice::from_ref(&reply.value)))?;
    Ok((inside == 1 || reply.resent()).then_some(Duration::ZERO))
}

/// What is known of a grant that is ending, for a leave that was sent twice and found its owner outside: either the first
/// copy took it out, or the hold was lost before. Redis keeps no record of that, as it would cost each leave a write.
/// Instead, when it happens, Redis is asked whether it is still the same server that knew of the hold, and whether there
/// has been another grant since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// For an exclusive lock, the grant number: if it is still the last one, there has been no grant since.
    number: Option<u64>,
    /// Since when this process had it.
    since: Moment,
    /// When it ended here: before its leave was sent.
    ended: Moment,
}

/// The outcome of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Released,
    Lost,
    Unknown,
}

impl Known {
    /// What is known of a hold of this lock that ends now, by its grant.
    pub(crate) fn of(entry: &LockEntry, grant: Option<&Grant>, now: Moment) -> Known {
        let (number, since) = grant.map_or((0, now), |t| (t.number, t.since));
        Known { number: (entry.shape.sharing == Sharing::Exclusive).then_some(number), since, ended: now }
    }

    /// Returns the outcome of the grant whose leave was first sent on a connection made at `first_by`. Asks Redis, and
    /// blocks until `limit` at most.
    pub(crate) fn fate(self, entry: &LockEntry, first_by: Moment, limit: Moment) -> Fate {
        let server = entry.server();
        let sent = Moment::now();
        // In a cluster, the first copy may have gone to another server.
        let answer =
            server.node.is_none().then(|| server.backend.command(&cmd("INFO"), limit).ok()).flatten();
        let received = Moment::now();
        if let Some(ServerInfo { run_id, up_since: Some(up_since), its_own: true, .. }) =
            answer.map(|answer| ServerInfo::read(&answer, received))
        {
            // In its first two seconds, the server's own count says little.
            let served_since = server.known.known_since(run_id.as_deref()).unwrap_or(received);
            // The server has forgotten nothing: the hold, which was valid, was there until the first copy
            // arrived.
            if served_since <= self.since {
                return Fate::Released;
            }
            // The first copy was sent to a server that no longer exists.
            let not_before = ServerInfo::not_before(up_since, received.since(sent));
            if first_by < not_before && served_since.min(up_since) <= self.ended {
                return Fate::Lost;
            }
        }
        let last = [Command::plain(cmd("GET").arg(entry.names.keys()[3].concat()))];
        let last = || number(Some(&entry.ask(&last, limit).ok()?.value))?.try_into().ok();
        if self.number.is_some() && self.number == last() { Fate::Released } else { Fate::Unknown }
    }
}
