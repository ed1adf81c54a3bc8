//! The replies to the operations, translated for the lock state. Their format is in `lua/README.md`.

use std::slice;
use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::exchange::Reply;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::refused_script;
use crate::engine::redis::resp::{list, number, text};
use crate::engine::state::grant::MOST_NUMBER;
use crate::engine::state::lock_state::{AcquireMode, Answer, Asking, Renewal};
use crate::error::{Error, ErrorKind};

/// Reads the reply to an acquire for `lease`.
pub(crate) fn acquired(value: &Value, lease: Duration) -> Result<Answer, Failure> {
    match value {
        // Nobody was in the way: the reply is the number alone.
        Value::Int(_) => match granted(Some(value)) {
            Some(number) => Ok(Answer::In { number, left: lease, value: 0 }),
            None => Err(unexpected_reply(slice::from_ref(value))),
        },
        several => answer(list(several), lease),
    }
}

/// Reads the number of a grant, from which tokens are made.
fn granted(value: Option<&Value>) -> Option<u64> {
    number(value)?.try_into().ok().filter(|number| (1..=MOST_NUMBER).contains(number))
}

/// Reads the items of a list that replies to an acquire for `lease`.
pub(crate) fn answer(items: &[Value], lease: Duration) -> Result<Answer, Failure> {
    if number(items.first()) == Some(2) {
        return Ok(Answer::Back(Box::new(answer(&items[1..], lease)?)));
    }
    let read = || {
        Some(match number(items.first())? {
            1 => Answer::In {
                number: granted(items.get(1))?,
                // Negative if another client removed the key's expiry: our lease still counts.
                left: number(items.get(2))?.try_into().map_or(lease, Duration::from_millis),
                value: number(items.get(3)).and_then(|n| n.try_into().ok()).unwrap_or(0),
            },
            0 => Answer::Busy {
                last_number: number(items.get(1))?.try_into().ok()?,
                again: Duration::from_millis(number(items.get(2))?.try_into().unwrap_or(0)),
                arrival: text(items.get(3))?,
                others: number(items.get(5)).and_then(|n| n.try_into().ok()).unwrap_or(0),
            },
            _ => match text(items.get(1))?.as_str() {
                "gone" => Answer::Gone,
                "over" => Answer::Ended,
                why => Answer::Refused(why.to_owned()),
            },
        })
    };
    read().ok_or_else(|| unexpected_reply(items))
}

/// Whether an attempt was answered busy by a script that left some work to the next one, and there is time
/// until `limit` to send that. (Only waiters with a queue position ask again by themselves.)
pub(crate) fn is_unfinished(answer: &Value, asking: &Asking, limit: Moment) -> bool {
    let has_left_work = matches!(list(answer), [Value::Int(0), _, _, _, Value::Int(2), ..]);
    has_left_work && asking.how == AcquireMode::Try && Moment::now() < limit
}

/// Whether a busy reply says that nobody is subscribed for us at the server that has the lock.
pub(crate) fn is_deaf(answer: &[Value]) -> bool {
    let is = |i: usize, n: i64| number(answer.get(i)) == Some(n);
    match answer {
        [_, busy @ ..] if is(0, 2) => is_deaf(busy),
        _ => is(0, 0) && is(4, 1),
    }
}

/// Whether the lock was granted.
pub(crate) fn is_in(answer: &Result<Answer, Failure>) -> bool {
    matches!(answer, Ok(Answer::In { .. }))
}

/// The reply to a leave.
#[derive(Debug)]
pub(crate) struct Left {
    /// Whether the owner held the lock.
    pub(crate) inside: bool,
    /// If the leave was sent twice, so that `inside` may be the reply to the second copy: when the connection
    /// of the first copy was made.
    pub(crate) resent: Option<Moment>,
    /// The reply to the next owner's request.
    pub(crate) next: Option<Answer>,
}

/// Reads the reply to a leave, and to the request `next` that was sent along.
pub(crate) fn left(value: &Value, next: Option<&Asking>, resent: Option<Moment>) -> Result<Left, Failure> {
    let items = list(value);
    let inside =
        number(items.first().or(Some(value))).ok_or_else(|| unexpected_reply(slice::from_ref(value)))? == 1;
    let next = next.map(|n| answer(items.get(1..).unwrap_or_default(), n.terms.lease)).transpose()?;
    Ok(Left { inside, resent, next })
}

/// The reply to one piece of a signal or a count.
pub(crate) struct Signalled {
    /// How many waiters were moved or counted; `None` if the owner does not hold the lock.
    pub(crate) how_many: Option<usize>,
    /// Where the next piece begins, if this was not the last.
    pub(crate) from: Option<String>,
}

pub(crate) fn signalled(value: &Value) -> Result<Signalled, Failure> {
    let items = list(value);
    let n = number(items.first().or(Some(value))).ok_or_else(|| unexpected_reply(slice::from_ref(value)))?;
    Ok(Signalled { how_many: n.try_into().ok(), from: text(items.get(1)) })
}

/// The result of a renewal.
pub(crate) struct Renewed {
    /// As the lock state understands it.
    pub(crate) renewal: Renewal,
    /// It was sent twice, so a copy may still run.
    pub(crate) resent: bool,
    pub(crate) error: Option<Error>,
}

impl Renewed {
    /// Reads the reply.
    pub(crate) fn of(reply: Result<Reply, Failure>) -> Renewed {
        let resent = reply.as_ref().is_ok_and(Reply::resent);
        let (renewal, error) = renewal(reply.map(|reply| reply.value));
        Renewed { renewal, resent, error }
    }
}

/// Returns the outcome of a renewal for the lock state, and the error for the thread, if any.
pub(crate) fn renewal(reply: Result<Value, Failure>) -> (Renewal, Option<Error>) {
    match reply.and_then(|value| renewed(&value)) {
        Ok(renewal) => (renewal, None),
        // A key that is no longer of this kind is not our hold either.
        Err(Failure::WrongKind(e)) => (Renewal::NotInside, Some(e)),
        Err(failure) if failure.may_have_run() => (Renewal::Unanswered, Some(failure.error())),
        Err(failure) => (Renewal::Failed, Some(failure.error())),
    }
}

/// Reads the reply to a renewal.
pub(crate) fn renewed(value: &Value) -> Result<Renewal, Failure> {
    match value {
        Value::Int(left) => Ok(match (*left).try_into() {
            Ok(left) => Renewal::Left(Duration::from_millis(left)),
            Err(_) if *left == -2 => Renewal::Tombstone,
            Err(_) => Renewal::NotInside,
        }),
        other => Err(unexpected_reply(slice::from_ref(other))),
    }
}

/// Returns the reply for one of several locks, or the error that it is.
pub(crate) fn one_of<'a>(entry: &LockEntry, value: &'a Value) -> Result<&'a Value, Failure> {
    match value {
        Value::ServerError(e) => Err(refused_script(Some(entry.scripts.all()), e.clone().into())),
        value => Ok(value),
    }
}

/// Returns a request's outcome for the lock state, whether the request was sent twice, and the error for the
/// thread, if any, with whether it is final.
pub(crate) fn of_ask(outcome: Result<(Answer, bool), Failure>) -> (Answer, bool, Option<(Error, bool)>) {
    match outcome {
        Ok((answer, resent)) => (answer, resent, None),
        Err(failure) => {
            let answer = if failure.may_have_run() { Answer::Unanswered } else { Answer::Failed };
            let is_final = failure.is_final();
            (answer, false, Some((failure.error(), is_final)))
        }
    }
}

pub(crate) fn unexpected_reply(items: &[Value]) -> Failure {
    Failure::Never(ErrorKind::Protocol.because(format!("unexpected reply from a script: {items:?}")))
}
