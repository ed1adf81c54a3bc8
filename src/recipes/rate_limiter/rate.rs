//! The rate of a limiter.

use std::time::Duration;

use crate::settings::check_lease;

/// The highest limit or burst: the same as for the permits of a semaphore.
const MOST: u32 = i32::MAX as u32;

/// How many permits a [`RateLimiter`](crate::RateLimiter) admits: a number per window, and how they may be
/// distributed in it.
///
/// A rate can be created from any values; an invalid one is reported by the first call of a limiter. A number
/// of permits is from 1 to 2^31-1, a window from 100 ms to a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    limit: u32,
    window: Duration,
    /// `None`: a fixed window.
    burst: Option<u32>,
}

impl Rate {
    /// `limit` permits per `window`, and at most `limit` by one call. A window begins with the first permit, and ends that long after it; the
    /// count then starts from 0 again.
    ///
    /// This is a quota, and simple to explain. Around the end of a window, up to twice the limit may be
    /// admitted within the length of one window: the first half late in the old one, the second early in the
    /// new.
    pub const fn fixed_window(limit: u32, window: Duration) -> Self {
        Rate { limit, window, burst: None }
    }

    /// `limit` permits per `window`, evenly, and at most `limit` of them at once: like
    /// [`smooth_with_burst`](Rate::smooth_with_burst) with a burst of the limit.
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        Rate::smooth_with_burst(limit, window, limit)
    }

    /// `limit` permits per `window`, evenly: they become available again one by one, one every
    /// `window / limit`. After a pause, at most `burst` are admitted at once; a burst of 1 spaces all of
    /// them.
    ///
    /// No period as long as a window admits more than `limit + burst`. The algorithm is the generic cell rate
    /// algorithm (GCRA) of ITU-T I.371, as a continuous-state leaky bucket.
    pub const fn smooth_with_burst(limit: u32, window: Duration, burst: u32) -> Self {
        Rate { limit, window, burst: Some(burst) }
    }

    /// How many permits may be acquired at once: the burst, or the limit of a fixed window. No call can ask
    /// for more.
    pub(super) const fn at_once(&self) -> u32 {
        match self.burst {
            Some(burst) => burst,
            None => self.limit,
        }
    }

    /// Returns an error text if the rate is invalid.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, n) in [("limit", self.limit), ("burst", self.at_once())] {
            if !(1..=MOST).contains(&n) {
                return Err(format!("a rate's {what} must be between 1 and {MOST}, got {n}"));
            }
        }
        check_lease("rate's window", self.window)
    }

    /// The arguments of the script: n, limit, window in µs, burst. A fraction of a microsecond is rounded up,
    /// so that the rate is never exceeded.
    pub(crate) fn args(&self, n: u32) -> Vec<String> {
        let window = self.window.as_nanos().div_ceil(1000).to_string();
        let args = [n.to_string(), self.limit.to_string(), window];
        args.into_iter().chain(self.burst.map(|burst| burst.to_string())).collect()
    }
}
