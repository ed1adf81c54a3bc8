//! One operation on several locks of one client and one kind, as one request.

use std::slice;
use std::sync::Arc;

use redis::Value;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands::{acquire_args, leave_args};
use crate::engine::operations::replies::{
    Left, acquired, is_in, is_unfinished, left, one_of, unexpected_reply,
};
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::{PackedCall, list};
use crate::engine::state::lock_state::{Answer, Asking, PendingRelease};

/// Asks for several locks of one client and one kind at once, all or nothing. Returns a reply for each up to
/// the first that was not granted, in which case those before it were released again. Also returns whether
/// the request was sent twice to get them.
pub(crate) fn acquire_all(
    all: &[(&Arc<LockEntry>, &Asking)],
    limit: Moment,
) -> Result<(Vec<Result<Answer, Failure>>, bool), Failure> {
    let asks = all.iter().map(|(entry, asking)| (*entry, acquire_args(PackedCall::default(), entry, asking)));
    let request = Several::of("acquire", asks);
    let mut resent = false;
    let reply = loop {
        let reply = request.send(limit)?;
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

/// Leaves several locks of one client and one kind at once, each with the request of its next head. Returns a
/// reply for each.
pub(crate) fn leave_all(
    all: &[(&Arc<LockEntry>, &PendingRelease, Option<&Asking>)],
    limit: Moment,
) -> Result<Vec<Result<Left, Failure>>, Failure> {
    let leaves =
        all.iter().map(|(at, leaving, next)| (*at, leave_args(PackedCall::default(), at, leaving, *next)));
    let request = Several::of("leave", leaves);
    let reply = request.send(limit)?;
    let answers = list(&reply.value);
    if answers.len() != all.len() {
        return Err(unexpected_reply(slice::from_ref(&reply.value)));
    }
    let answers = answers.iter().zip(all);
    Ok(answers.map(|(value, (entry, _, next))| left(one_of(entry, value)?, *next, reply.first_by)).collect())
}

struct Several<'a> {
    first: Option<&'a Arc<LockEntry>>,
    keys: Vec<[&'a str; 2]>,
    args: PackedCall,
}

impl<'a> Several<'a> {
    fn of(operation: &str, each: impl Iterator<Item = (&'a Arc<LockEntry>, PackedCall)>) -> Self {
        let (mut first, mut keys, mut args) = (None, Vec::new(), PackedCall::default().with(&[operation]));
        for (entry, its) in each {
            first.get_or_insert(entry);
            keys.extend(entry.names.keys());
            args.add_all(&its);
        }
        Several { first, keys, args }
    }

    fn send(&self, limit: Moment) -> Result<Reply, Failure> {
        let entry = self.first.ok_or_else(|| unexpected_reply(&[]))?;
        let script = entry.scripts.all();
        let mut call = PackedCall::over(&script.by_sha, &PackedCall::keys(&self.keys));
        call.add_packed(&self.args);
        let reply = entry.ask(&[Command::script(script, call)], limit)?;
        match &reply.value {
            Value::Array(answers) if !answers.is_empty() => Ok(reply),
            other => Err(unexpected_reply(slice::from_ref(other))),
        }
    }
}
