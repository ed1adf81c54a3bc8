//! The operations as requests: arguments in, replies out.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::answers::{list, number, text};
use super::backend::{Idempotent, Reply};
use super::failure::Failure;
use super::refusal::refused;
use super::resp::call;
use crate::clock::Moment;
use crate::engine::entry::LockEntry;
use crate::engine::state::lock_state::{AcquireMode, Answer, Asking, PendingRelease, Renewal};
use crate::error::{Error, ErrorKind};
use crate::script::Script;

fn ms(d: Duration) -> String {
    d.as_millis().to_string()
}

/// What a waiter or a hold says about itself: threads waiting, pid, host, client name.
fn record(entry: &LockEntry, threads: usize) -> String {
    format!("{threads} {}", entry.shared.identity)
}

/// Sends the request of the head of the entry's waiting threads. Returns the reply, and whether the request
/// was sent twice to get it.
pub(crate) fn acquire(
    entry: &Arc<LockEntry>,
    asking: &Asking,
    limit: Moment,
) -> Result<(Answer, bool), Failure> {
    let mut resent = false;
    loop {
        let asked = Moment::now();
        let reply = with_acquire_args(entry, asking, |args| {
            entry.server().backend.script(&entry.scripts.acquire, &entry.names, args, limit)
        })?;
        resent |= reply.resent;
        mind_deafness(entry, list(&reply.value), asked);
        // Only a waiter with a queue position is asked for again by itself.
        if asking.how != AcquireMode::Try || !is_unfinished(&reply.value) || Moment::now() >= limit {
            return Ok((acquired(&reply.value, asking.terms.lease)?, resent));
        }
    }
}

/// Whether an acquire was answered busy by a script that has left some work to the next one.
fn is_unfinished(answer: &Value) -> bool {
    matches!(list(answer), [Value::Int(0), _, _, _, Value::Int(2)])
}

/// A busy reply to what was sent at `asked` may say that nobody listens for us at the server that has the
/// lock.
fn mind_deafness(entry: &LockEntry, answer: &[Value], asked: Moment) {
    let is = |i: usize, n: i64| number(answer.get(i)) == Some(n);
    match answer {
        [_, busy @ ..] if is(0, 2) => mind_deafness(entry, busy, asked),
        _ if is(0, 0) && is(4, 1) => entry.server().inbox.is_deaf(asked),
        _ => {}
    }
}

/// Makes `send` send an acquire with these arguments.
fn with_acquire_args<R>(entry: &LockEntry, asking: &Asking, send: impl FnOnce(&[&str]) -> R) -> R {
    let shared = &entry.shared;
    let (owner, lease) = (entry.owner_id(asking.owner), ms(asking.terms.lease));
    let how = match asking.how {
        AcquireMode::Try => "try",
        AcquireMode::Wait => "wait",
        AcquireMode::Keep => "keep",
        AcquireMode::Share => "share",
        AcquireMode::Back => "back",
    };
    let record = record(entry, asking.threads);
    let from = asking.from.map(|from| entry.owner_id(from)).unwrap_or_default();
    let last = entry.room.as_ref().map_or("1", |room| &room.condition);
    let args = [
        &*owner,
        &lease,
        &shared.inbox_prefix,
        &shared.waiter_timeout,
        how,
        &asking.terms.args,
        &record,
        &from,
        &asking.arrival,
        last,
    ];
    // Empty arguments at the end are left out.
    send(match () {
        () if entry.room.is_some() || asking.instead => &args[..],
        () if asking.arrival.is_empty() && from.is_empty() => &args[..7],
        () => &args[..9],
    })
}

/// The reply to an acquire for `lease`.
pub(crate) fn acquired(value: &Value, lease: Duration) -> Result<Answer, Failure> {
    match value {
        // No one was in the way: the number alone.
        Value::Int(n) => match (*n).try_into() {
            Ok(number) if number > 0 => Ok(Answer::In { number, left: lease, value: 0 }),
            _ => Err(strange(slice::from_ref(value))),
        },
        several => answer(list(several), lease),
    }
}

/// The contents of the list that answers an acquire for `lease`.
pub(crate) fn answer(items: &[Value], lease: Duration) -> Result<Answer, Failure> {
    if number(items.first()) == Some(2) {
        return Ok(Answer::Back(Box::new(answer(&items[1..], lease)?)));
    }
    let read = || {
        Some(match number(items.first())? {
            1 => Answer::In {
                number: number(items.get(1))?.try_into().ok()?,
                // Negative: another client took the key's expiry away. Ours stands.
                left: number(items.get(2))?.try_into().map_or(lease, Duration::from_millis),
                value: number(items.get(3)).and_then(|n| n.try_into().ok()).unwrap_or(0),
            },
            0 => Answer::Busy {
                floor: number(items.get(1))?.try_into().ok()?,
                again: Duration::from_millis(number(items.get(2))?.try_into().unwrap_or(0)),
                arrival: text(items.get(3))?,
            },
            _ => match text(items.get(1))?.as_str() {
                "gone" => Answer::Gone,
                "over" => Answer::Over,
                why => Answer::Refused(why.to_owned()),
            },
        })
    };
    read().ok_or_else(|| strange(items))
}

fn strange(items: &[Value]) -> Failure {
    Failure::Never(Error::new(ErrorKind::Protocol, "").because(format!("a script answered {items:?}")))
}

/// The reply to a leave.
#[derive(Debug)]
pub(crate) struct Left {
    /// The owner held the lock.
    pub(crate) inside: bool,
    /// Sent twice, so that `inside` may be the second copy's view: when the connection was made that the
    /// first one went by.
    pub(crate) resent: Option<Moment>,
    /// The reply for the next owner.
    pub(crate) next: Option<Answer>,
}

/// Updates the kind's own state, once by `owner`: `what`, with what the rule needs to know of it. Returns the
/// rule's reply.
pub(crate) fn change(
    entry: &Arc<LockEntry>,
    owner: u64,
    what: &[&str],
    limit: Moment,
) -> Result<Vec<Value>, Failure> {
    let shared = &entry.shared;
    let Some(script) = &entry.scripts.change else {
        let error = Error::new(ErrorKind::InvalidInput, "");
        return Err(Failure::Never(error.because("the rule of this kind has no kind.update")));
    };
    let owner = entry.owner_id(owner);
    let mut args = vec![&*owner, "0", &shared.inbox_prefix, &shared.waiter_timeout];
    args.extend(what);
    let reply = entry.server().backend.script(script, &entry.names, &args, limit)?;
    Ok(list(&reply.value).to_vec())
}

/// Makes the hold `from` that of `owner`. Returns the reply, and whether the request was sent twice to get
/// it.
pub(crate) fn adopt(
    entry: &Arc<LockEntry>,
    owner: u64,
    from: &str,
    lease: Duration,
    limit: Moment,
) -> Result<(Answer, bool), Failure> {
    let shared = &entry.shared;
    let Some(script) = &entry.scripts.adopt else {
        return Err(Failure::Unsent(no_rule()));
    };
    let (id, ms, record) = (entry.owner_id(owner), ms(lease), record(entry, 0));
    let args = [&*id, &*ms, &*shared.inbox_prefix, &*shared.waiter_timeout, from, "", &*record];
    let reply = entry.server().backend.script(script, &entry.names, &args, limit)?;
    Ok((acquired(&reply.value, lease)?, reply.resent))
}

/// A piece of a signal or of a count.
pub(crate) struct Signalled {
    /// How many were moved or wait; `None` if the owner is not inside.
    pub(crate) how_many: Option<usize>,
    /// Where the next piece begins, if this was not all.
    pub(crate) from: Option<String>,
}

/// Signals or counts a condition's waiters (`what`: `one`, `all`, `count`), for `owner`, which must hold the
/// lock, beginning where an earlier piece ended.
pub(crate) fn signal(
    entry: &Arc<LockEntry>,
    script: &Script,
    owner: u64,
    condition: &str,
    (what, from): (&str, &str),
    limit: Moment,
) -> Result<Signalled, Failure> {
    let shared = &entry.shared;
    let args =
        [&entry.owner_id(owner), "0", &shared.inbox_prefix, &shared.waiter_timeout, condition, what, from];
    let reply = entry.server().backend.script(script, &entry.names, &args, limit)?;
    let items = list(&reply.value);
    let n =
        number(items.first().or(Some(&reply.value))).ok_or_else(|| strange(slice::from_ref(&reply.value)))?;
    Ok(Signalled { how_many: n.try_into().ok(), from: text(items.get(1)) })
}

/// Out of the lock and the queue, and in the same round trip the request of the next head; or, for one that
/// stays, what is left of its time as its lease.
pub(crate) fn leave(
    entry: &Arc<LockEntry>,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    limit: Moment,
) -> Result<Left, Failure> {
    if let Some(rest) = leaving.rest(Moment::now()) {
        let reply = send_renewal(entry, leaving.owner, rest, true, limit)?;
        let inside = matches!(renewed(&reply.value)?, Renewal::Left(_));
        return Ok(Left { inside, resent: reply.first_by, next: None });
    }
    let asked = Moment::now();
    let reply = with_leave_args(entry, leaving, next, |args| {
        entry.server().backend.script(&entry.scripts.leave, &entry.names, args, limit)
    })?;
    mind_deafness(entry, list(&reply.value).get(1..).unwrap_or_default(), asked);
    left(&reply.value, next, reply.first_by)
}

/// The reply to a leave that `next` asked along with.
pub(crate) fn left(value: &Value, next: Option<&Asking>, resent: Option<Moment>) -> Result<Left, Failure> {
    let items = list(value);
    let inside = number(items.first().or(Some(value))).ok_or_else(|| strange(slice::from_ref(value)))? == 1;
    let next = next.map(|n| answer(items.get(1..).unwrap_or_default(), n.terms.lease)).transpose()?;
    Ok(Left { inside, resent, next })
}

/// Asks for several locks of one client and one kind at once, all or nothing. Returns a reply for each up to
/// the first that was not granted, in which case those before it were given back; and whether the request was
/// sent twice to get them.
pub(crate) fn acquire_all(
    all: &[(&Arc<LockEntry>, &Asking)],
    limit: Moment,
) -> Result<(Vec<Result<Answer, Failure>>, bool), Failure> {
    let mut packed = Several::of("acquire");
    for (entry, asking) in all {
        with_acquire_args(entry, asking, |args| packed.add(entry, args));
    }
    let reply = packed.send(limit)?;
    let answers = list(&reply.value).iter().zip(all);
    let answers: Vec<_> =
        answers.map(|(value, (_, asking))| acquired(one_of(value)?, asking.terms.lease)).collect();
    // All are in, or the last one that was asked for is not.
    match answers.iter().position(|answer| !is_in(answer)) {
        None if answers.len() == all.len() => Ok((answers, reply.resent)),
        Some(out) if out + 1 == answers.len() => Ok((answers, reply.resent)),
        _ => Err(strange(slice::from_ref(&reply.value))),
    }
}

/// Whether it is in.
pub(crate) fn is_in(answer: &Result<Answer, Failure>) -> bool {
    matches!(answer, Ok(Answer::In { .. }))
}

/// Leaves several locks of one client and one kind at once, each with the request of its next head. Returns a
/// reply for each.
pub(crate) fn leave_all(
    all: &[(&Arc<LockEntry>, &PendingRelease, Option<&Asking>)],
    limit: Moment,
) -> Result<Vec<Result<Left, Failure>>, Failure> {
    let mut packed = Several::of("leave");
    for (entry, leaving, next) in all {
        with_leave_args(entry, leaving, *next, |args| packed.add(entry, args));
    }
    let reply = packed.send(limit)?;
    let answers = list(&reply.value);
    if answers.len() != all.len() {
        return Err(strange(slice::from_ref(&reply.value)));
    }
    let answers = answers.iter().zip(all);
    Ok(answers.map(|(value, (_, _, next))| left(one_of(value)?, *next, reply.first_by)).collect())
}

/// One operation on several locks of one client and one kind, as one request.
struct Several<'a> {
    entries: Vec<&'a Arc<LockEntry>>,
    keys: Vec<[&'a str; 2]>,
    args: Vec<String>,
}

impl<'a> Several<'a> {
    fn of(operation: &str) -> Self {
        Several { entries: Vec::new(), keys: Vec::new(), args: vec![operation.to_owned()] }
    }

    fn add(&mut self, entry: &'a Arc<LockEntry>, args: &[&str]) {
        self.entries.push(entry);
        self.keys.extend(entry.names.keys());
        self.args.push(args.len().to_string());
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    fn send(&self, limit: Moment) -> Result<Reply, Failure> {
        let entry = self.entries.first().ok_or_else(|| strange(&[]))?;
        let (backend, script) = (&entry.server().backend, entry.scripts.all());
        let reply = backend.eval(script, &self.keys, &self.args, limit, Idempotent::Yes)?;
        match &reply.value {
            Value::Array(answers) if !answers.is_empty() => Ok(reply),
            other => Err(strange(slice::from_ref(other))),
        }
    }
}

/// The reply for one of several locks.
fn one_of(value: &Value) -> Result<&Value, Failure> {
    match value {
        Value::ServerError(e) => Err(refused(e.clone().into())),
        value => Ok(value),
    }
}

/// Removes an owner that is not ours, for good. Returns whether it was inside.
pub(crate) fn force(entry: &Arc<LockEntry>, owner: &[u8], limit: Moment) -> Result<bool, Failure> {
    let shared = &entry.shared;
    let args = [owner, b"0", shared.inbox_prefix.as_bytes(), shared.waiter_timeout.as_bytes(), b"1"];
    let reply = entry.server().backend.script(&entry.scripts.leave, &entry.names, &args, limit)?;
    let inside = number(Some(&reply.value)).ok_or_else(|| strange(slice::from_ref(&reply.value)))?;
    Ok(inside == 1 || reply.resent)
}

/// Makes `send` send a leave with these arguments.
fn with_leave_args<R>(
    entry: &LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    send: impl FnOnce(&[&str]) -> R,
) -> R {
    let shared = &entry.shared;
    let lease = ms(next.map_or(leaving.lease, |n| n.terms.lease));
    let owner = entry.owner_id(leaving.owner);
    let unsettled = if leaving.unsettled { "1" } else { "0" };
    let (prefix, waiter_timeout) = (&*shared.inbox_prefix, &*shared.waiter_timeout);
    if let Some(room) = &entry.room {
        return send(&[&owner, &lease, prefix, waiter_timeout, unsettled, &room.condition]);
    }
    match next {
        Some(next) => {
            let (record, id) = (record(entry, next.threads), entry.owner_id(next.owner));
            send(&[&owner, &lease, prefix, waiter_timeout, unsettled, &next.terms.args, &record, &id])
        }
        None if leaving.unsettled => send(&[&owner, &lease, prefix, waiter_timeout, unsettled]),
        None => send(&[&owner, &lease, prefix, waiter_timeout]),
    }
}

/// The result of a renewal.
pub(crate) struct Renewed {
    /// As the lock state knows it.
    pub(crate) renewal: Renewal,
    /// Sent twice, so that a copy may run yet.
    pub(crate) resent: bool,
    pub(crate) error: Option<Error>,
}

/// Sets the lease of a hold anew.
pub(crate) fn renew(entry: &Arc<LockEntry>, owner: u64, lease: Duration, limit: Moment) -> Renewed {
    let reply = send_renewal(entry, owner, lease, false, limit);
    let resent = reply.as_ref().is_ok_and(|reply| reply.resent);
    Renewed::of(reply.map(|reply| reply.value), resent)
}

impl Renewed {
    /// According to the reply.
    pub(crate) fn of(answer: Result<Value, Failure>, resent: bool) -> Renewed {
        let (renewal, error) = match answer.and_then(|value| renewed(&value)) {
            Ok(renewal) => (renewal, None),
            // A key that is no longer of this kind is not our hold either.
            Err(failure) if failure.is_wrong_kind() => (Renewal::NotInside, Some(failure.error())),
            Err(Failure::Unsent(e) | Failure::Later(e) | Failure::Denied(e)) => (Renewal::Failed, Some(e)),
            Err(Failure::Unanswered(e) | Failure::Never(e)) => (Renewal::Unanswered, Some(e)),
        };
        Renewed { renewal, resent, error }
    }
}

fn send_renewal(
    entry: &Arc<LockEntry>,
    owner: u64,
    lease: Duration,
    bars: bool,
    limit: Moment,
) -> Result<Reply, Failure> {
    with_renew_args(entry, owner, lease, bars, |args| {
        entry.server().backend.script(&entry.scripts.renew, &entry.names, args, limit)
    })
}

/// Makes `send` send a renewal with these arguments; one that `bars` is its owner's last one.
fn with_renew_args<R>(
    entry: &LockEntry,
    owner: u64,
    lease: Duration,
    bars: bool,
    send: impl FnOnce(&[&str]) -> R,
) -> R {
    let shared = &entry.shared;
    let args = [&*entry.owner_id(owner), &ms(lease), &shared.inbox_prefix, &shared.waiter_timeout, "1"];
    send(if bars { &args } else { &args[..4] })
}

/// What a reply to a renewal says.
pub(crate) fn renewed(value: &Value) -> Result<Renewal, Failure> {
    match value {
        Value::Int(left) => Ok(match (*left).try_into() {
            Ok(left) => Renewal::Left(Duration::from_millis(left)),
            Err(_) => Renewal::NotInside,
        }),
        other => Err(strange(slice::from_ref(other))),
    }
}

/// Adds an acquire to what is sent to several servers at once.
pub(crate) fn pack_acquire(out: &mut Vec<u8>, entry: &LockEntry, asking: &Asking, eval: bool) {
    let (verb, text) = spelling(&entry.scripts.acquire, eval);
    with_acquire_args(entry, asking, |args| call(out, verb, text, &entry.names.keys(), args));
}

/// Adds a renewal to what the renewer sends.
pub(crate) fn pack_renew(out: &mut Vec<u8>, entry: &LockEntry, owner: u64, lease: Duration, eval: bool) {
    pack_renewal(out, entry, owner, lease, false, eval);
}

fn pack_renewal(out: &mut Vec<u8>, entry: &LockEntry, owner: u64, lease: Duration, bars: bool, eval: bool) {
    let (verb, text) = spelling(&entry.scripts.renew, eval);
    with_renew_args(entry, owner, lease, bars, |args| call(out, verb, text, &entry.names.keys(), args));
}

/// Adds a leave to what the renewer or `close` sends; or, for one that stays, the renewal that makes it
/// expire by itself.
pub(crate) fn pack_leave(out: &mut Vec<u8>, entry: &LockEntry, leaving: &PendingRelease, eval: bool) {
    if let Some(rest) = leaving.rest(Moment::now()) {
        return pack_renewal(out, entry, leaving.owner, rest, true, eval);
    }
    pack_leave_for(out, entry, leaving, None, eval);
}

/// Adds a leave, with the request of its next head, to what is sent to several servers at once.
pub(crate) fn pack_leave_for(
    out: &mut Vec<u8>,
    entry: &LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    eval: bool,
) {
    let (verb, text) = spelling(&entry.scripts.leave, eval);
    with_leave_args(entry, leaving, next, |args| call(out, verb, text, &entry.names.keys(), args));
}

/// By its SHA1, or in full (`eval`) if Redis does not know it.
fn spelling(script: &Script, eval: bool) -> (&'static str, &str) {
    if eval { ("EVAL", &script.source) } else { ("EVALSHA", &script.sha) }
}

pub(crate) fn no_rule() -> Error {
    Error::new(ErrorKind::InvalidInput, "").because("the rule of this kind has no kind.transfer")
}
