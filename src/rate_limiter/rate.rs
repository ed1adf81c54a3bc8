//! How much a limiter lets in.

use std::time::Duration;

use crate::settings::check_lease;

/// The highest number that a rate has, that of a semaphore's permits.
const MOST: u32 = i32::MAX as u32;

/// How many a [`RateLimiter`](crate::RateLimiter) lets in: a number for each window, and how they may lie in
/// it.
///
/// Whatever is given makes a rate; one that cannot work is told by the first call of a limiter. A number is
/// from 1 to 2^31-1, a window from 100 ms to a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    limit: u32,
    window: Duration,
    /// `None`: a fixed window.
    burst: Option<u32>,
}

impl Rate {
    /// `limit` for each `window`: it begins with the first one that comes in, and ends that long after; then
    /// they count from 0 again.
    ///
    /// What a quota is: simple to tell. Around the end of a window up to twice the limit may come in within
    /// one window's time, the first half late in the old one and the second early in the new.
    pub const fn fixed_window(limit: u32, window: Duration) -> Self {
        Rate { limit, window, burst: None }
    }

    /// `limit` for each `window`, evenly, and at most `limit` of them at once: as
    /// [`smooth_with_burst`](Rate::smooth_with_burst) with a burst of the limit.
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        Rate::smooth_with_burst(limit, window, limit)
    }

    /// `limit` for each `window`, evenly: what came in is forgotten one by one, the next every
    /// `window / limit`. After a pause at most `burst` come in at once; 1 spaces all of them.
    ///
    /// In no time as long as a window do more than `limit + burst` come in. The algorithm is the generic cell
    /// rate algorithm (GCRA) of ITU-T I.371, as a continuous-state leaky bucket.
    pub const fn smooth_with_burst(limit: u32, window: Duration, burst: u32) -> Self {
        Rate { limit, window, burst: Some(burst) }
    }

    /// How many come in for each window.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How long a window is.
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How many may come in at once: the burst, or the limit of a fixed window. No call can ask for more.
    pub const fn at_once(&self) -> u32 {
        match self.burst {
            Some(burst) => burst,
            None => self.limit,
        }
    }

    /// Says what is wrong with it, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, n) in [("limit", self.limit), ("burst", self.at_once())] {
            if !(1..=MOST).contains(&n) {
                return Err(format!("a rate's {what} is from 1 to {MOST}, not {n}"));
            }
        }
        check_lease("rate's window", self.window)
    }

    /// As the script wants it: n, limit, window in µs, burst. A part of a microsecond counts as a whole one,
    /// so that never more come in.
    pub(crate) fn args(&self, n: u32) -> Vec<String> {
        let window = self.window.as_nanos().div_ceil(1000).to_string();
        let args = [n.to_string(), self.limit.to_string(), window];
        args.into_iter().chain(self.burst.map(|burst| burst.to_string())).collect()
    }
}
