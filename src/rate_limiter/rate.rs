//! The rate of a limiter.

use std::time::Duration;

use crate::settings::check_lease;

/// The highest number that a rate can have, that of a semaphore's permits.
const MOST: u32 = i32::MAX as u32;

/// How many permits a [`RateLimiter`](crate::RateLimiter) admits: a number per window, and how they may be
/// distributed in it.
///
/// Any values make a rate; one that cannot work is reported by the first call of a limiter. A number is from
/// 1 to 2^31-1, a window from 100 ms to a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    limit: u32,
    window: Duration,
    /// `None`: a fixed window.
    burst: Option<u32>,
}

impl Rate {
    /// `limit` per `window`: the window begins with the first permit, and ends that long after; then they
    /// count from 0 again.
    ///
    /// This is a quota: simple to explain. Around the end of a window up to twice the limit may be admitted
    /// within one window's time, the first half late in the old one and the second early in the new.
    pub const fn fixed_window(limit: u32, window: Duration) -> Self {
        Rate { limit, window, burst: None }
    }

    /// `limit` per `window`, evenly, and at most `limit` of them at once: like
    /// [`smooth_with_burst`](Rate::smooth_with_burst) with a burst of the limit.
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        Rate::smooth_with_burst(limit, window, limit)
    }

    /// `limit` per `window`, evenly: permits become available again one by one, the next every `window /
    /// limit`. After a pause at most `burst` are admitted at once; 1 spaces all of them.
    ///
    /// In no period as long as a window are more than `limit + burst` admitted. The algorithm is the generic
    /// cell rate algorithm (GCRA) of ITU-T I.371, as a continuous-state leaky bucket.
    pub const fn smooth_with_burst(limit: u32, window: Duration, burst: u32) -> Self {
        Rate { limit, window, burst: Some(burst) }
    }

    /// The number of permits per window.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window.
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How many permits may be acquired at once: the burst, or the limit of a fixed window. No call can ask
    /// for more.
    pub const fn at_once(&self) -> u32 {
        match self.burst {
            Some(burst) => burst,
            None => self.limit,
        }
    }

    /// Returns an error text if it cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, n) in [("limit", self.limit), ("burst", self.at_once())] {
            if !(1..=MOST).contains(&n) {
                return Err(format!("a rate's {what} must be between 1 and {MOST}, got {n}"));
            }
        }
        check_lease("rate's window", self.window)
    }

    /// As the script wants it: n, limit, window in µs, burst. A fraction of a microsecond is rounded up, so
    /// that never more are admitted.
    pub(crate) fn args(&self, n: u32) -> Vec<String> {
        let window = self.window.as_nanos().div_ceil(1000).to_string();
        let args = [n.to_string(), self.limit.to_string(), window];
        args.into_iter().chain(self.burst.map(|burst| burst.to_string())).collect()
    }
}
