//! The replies to the operations, in the words of the lock state. What they look like is in `lua/README.md`.

use std::slice;
use std::time::Duration;

use redis::Value;

use super::answers::{list, number, text};
use super::failure::Failure;
use super::refusal::refused_script;
use crate::clock::Moment;
use crate::engine::entry::LockEntry;
use crate::engine::state::lock_state::{AcquireMode, Answer, Asking, Renewal};
use crate::error::{Error, ErrorKind};

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
                "over" => Answer::Ended,
                why => Answer::Refused(why.to_owned()),
            },
        })
    };
    read().ok_or_else(|| strange(items))
}

/// Whether an attempt was answered busy by a script that has left some work to the next one, which may be sent until
/// `limit`. (Only a waiter with a queue position is asked for again by itself.)
pub(super) fn is_unfinished(answer: &Value, asking: &Asking, limit: Moment) -> bool {
    let has_left_work = matches!(list(answer), [Value::Int(0), _, _, _, Value::Int(2)]);
    has_left_work && asking.how == AcquireMode::Try && Moment::now() < limit
}

/// Whether a busy reply says that nobody listens for us at the server that has the lock.
pub(super) fn is_deaf(answer: &[Value]) -> bool {
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
    /// The owner held the lock.
    pub(crate) inside: bool,
    /// Sent twice, so that `inside` may be the second copy's view: when the connection was made that the
    /// first one went by.
    pub(crate) resent: Option<Moment>,
    /// The reply for the next owner.
    pub(crate) next: Option<Answer>,
}

/// The reply to a leave that `next` asked along with.
pub(crate) fn left(value: &Value, next: Option<&Asking>, resent: Option<Moment>) -> Result<Left, Failure> {
    let items = list(value);
    let inside = number(items.first().or(Some(value))).ok_or_else(|| strange(slice::from_ref(value)))? == 1;
    let next = next.map(|n| answer(items.get(1..).unwrap_or_default(), n.terms.lease)).transpose()?;
    Ok(Left { inside, resent, next })
}

/// The result of a renewal.
pub(crate) struct Renewed {
    /// As the lock state knows it.
    pub(crate) renewal: Renewal,
    /// Sent twice, so that a copy may run yet.
    pub(crate) resent: bool,
    pub(crate) error: Option<Error>,
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

/// What a reply to a renewal says.
pub(crate) fn renewed(value: &Value) -> Result<Renewal, Failure> {
    match value {
        Value::Int(left) => Ok(match (*left).try_into() {
            Ok(left) => Renewal::Left(Duration::from_millis(left)),
            Err(_) if *left == -2 => Renewal::Tombstone,
            Err(_) => Renewal::NotInside,
        }),
        other => Err(strange(slice::from_ref(other))),
    }
}

/// The reply for one of several locks.
pub(super) fn one_of<'a>(entry: &LockEntry, value: &'a Value) -> Result<&'a Value, Failure> {
    match value {
        Value::ServerError(e) => Err(refused_script(Some(entry.scripts.all()), e.clone().into())),
        value => Ok(value),
    }
}

pub(super) fn strange(items: &[Value]) -> Failure {
    Failure::Never(
        Error::new(ErrorKind::Protocol, "").because(format!("unexpected reply from a script: {items:?}")),
    )
}
