//! A limiter's decision.

use std::time::Duration;

use redis::Value;

use crate::engine::redis::answers::{list, number};

/// The decision of a [`RateLimiter`](crate::RateLimiter) on one request, as of the moment when Redis made it:
/// other requests may have been admitted since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a caller that is not allowed must be kept out"]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request is allowed, and so was counted. A rejected request is not counted.
    pub allowed: bool,
    /// The number of further permits available at that moment.
    pub remaining: u32,
    /// How long until as many permits as requested are available, if no others are acquired meanwhile; zero
    /// for an allowed request.
    pub retry_after: Duration,
    /// How long until the limiter is entirely unused, if no permits are acquired meanwhile.
    pub reset_after: Duration,
}

impl Decision {
    /// Parses the script's reply.
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
