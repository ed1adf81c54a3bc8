//! What a limiter says.

use std::time::Duration;

use redis::Value;

use crate::engine::redis::answers::{list, number};

/// What a [`RateLimiter`](crate::RateLimiter) says to one request, as of the moment when Redis decided it:
/// others may have come in since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "who is not allowed in has to be kept out"]
#[non_exhaustive]
pub struct Decision {
    /// Whether it may come in: it was counted then. What is refused counts nothing.
    pub allowed: bool,
    /// How many more could come in at that moment.
    pub remaining: u32,
    /// How long until as many as were asked for can come in, if nobody else does meanwhile; nothing for who is
    /// allowed.
    pub retry_after: Duration,
    /// How long until all that came in is forgotten, if nobody else does meanwhile.
    pub reset_after: Duration,
}

impl Decision {
    /// What the script answered.
    pub(super) fn read(answer: &Value) -> Option<Decision> {
        let [allowed, remaining, retry, reset] = list(answer) else { return None };
        let micros = |value| Some(Duration::from_micros(number(Some(value))?.try_into().ok()?));
        Some(Decision {
            allowed: number(Some(allowed))? == 1,
            remaining: number(Some(remaining))?.try_into().ok()?,
            retry_after: micros(retry)?,
            reset_after: micros(reset)?,
        })
    }
}
