//! One operation on locks of one client and one kind, as one request.

use std::slice;
use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands::{acquire_args, leave_args};
use crate::engine::operations::replies::{
    Left, acquired, is_in, is_unfinished, left, one_of, unexpected_reply,
};
use crate::engine::operations::requests;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::{PackedCall, list};
use crate::engine::state::lock_state::{Answer, Asking, PendingRelease};

/// Asks for locks of one client and one kind at once, all or nothing. Returns a reply for each up to the first that
/// was not granted, in which case those before it were released again. Also returns whether the request was sent
/// twice to get them.
pub(crate) fn acquire_all(
    all: &[(&Arc<LockEntry>, &Asking)],
    limit: Moment,
) -> Result<(Vec<Result<Answer, Failure>>, bool), Failure> {
    if let [(entry, asking)] = all {
        return requests::acquire(entry, asking, None, limit)
            .map(|(answer, resent)| (vec![Ok(answer)], resent));
    }
    let asks = all.iter().map(|(entry, asking)| (*entry, acquire_args(PackedCall::default(), entry, asking)));
    let (entry, command) = over_all("acquire", asks)?;
    let mut resent = false;
    let reply = loop {
        let reply = entry.ask(slice::from_ref(&command), limit)?;
        resent |= reply.resent();
        let last = list(&reply.value).iter().zip(all).next_back();
        if !last.is_some_and(|(answer, (_, asking))| is_unfinished(answer, asking, limit)) {
            break reply;
        }
    };
    let answers = list(&reply.value).iter().zip(all);
    let answers: Vec<_> =
        answers.map(|(value, (entry, asking))| acquired(one_of(entry, value)?, asking.terms.lease)).collect();
    // All were granted, or the last one that was asked for was not.
    match answers.iter().position(|answer| !is_in(answer)) {
        None if answers.len() == all.len() => Ok((answers, resent)),
        Some(out) if out + 1 == answers.len() => Ok((answers, resent)),
        _ => Err(unexpected_reply(slice::from_ref(&reply.value))),
    }
}

/// Leaves locks of one client and one kind at once, each with the request of its next head. Returns a reply for each.
pub(crate) fn leave_all(
    all: &[(&Arc<LockEntry>, &PendingRelease, Option<&Asking>)],
    limit: Moment,
) -> Result<Vec<Result<Left, Failure>>, Failure> {
    if let [(entry, leaving, next)] = all {
        return Ok(vec![requests::leave(entry, leaving, *next, limit)]);
    }
    let leaves =
        all.iter().map(|(at, leaving, next)| (*at, leave_args(PackedCall::default(), at, leaving, *next)));
    let (entry, command) = over_all("leave", leaves)?;
    let reply = entry.ask(&[command], limit)?;
    let answers = list(&reply.value);
    if answers.len() != all.len() {
        return Err(unexpected_reply(slice::from_ref(&reply.value)));
    }
    let answers = answers.iter().zip(all);
    Ok(answers.map(|(value, (entry, _, next))| left(one_of(entry, value)?, *next, reply.first_by)).collect())
}

/// The operation on all of these locks as one command, and one of them.
fn over_all<'a>(
    operation: &str,
    each: impl Iterator<Item = (&'a Arc<LockEntry>, PackedCall)>,
) -> Result<(&'a Arc<LockEntry>, Command<'a>), Failure> {
    let (mut one, mut keys, mut args) = (None, Vec::new(), PackedCall::default().with(&[operation]));
    for (entry, its) in each {
        one = Some(entry);
        keys.extend(entry.names.keys());
        args.add_all(&its);
    }
    let entry = one.ok_or_else(|| unexpected_reply(&[]))?;
    let script = entry.scripts.all();
    let mut call = PackedCall::over(&script.by_sha, &PackedCall::keys(&keys));
    call.add_packed(&args);
    Ok((entry, Command::script(script, call)))
}
