//! What a limiter is to do, in whole numbers: the same rules with nothing rounded.

/// The state of either shape.
#[derive(Clone, Copy, Default)]
pub struct Reference {
    /// What was used at `at`, times the window: so a microsecond takes away a whole number.
    used: i128,
    at: i128,
}

/// Limit, window in us, and of a smooth rate the burst.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub limit: i128,
    pub window: i128,
    pub burst: Option<i128>,
}

impl Rate {
    pub fn at_once(&self) -> i128 {
        self.burst.unwrap_or(self.limit)
    }
}

impl Reference {
    /// By how many parts of a window `n` have room at `now`; they have not, if it is negative.
    pub fn margin(&mut self, n: i128, rate: Rate, now: i128) -> i128 {
        let passed = now - self.at;
        if rate.burst.is_some() {
            self.used = (self.used - passed * rate.limit).max(0);
            self.at = now;
        } else if passed >= rate.window || self.used == 0 {
            *self = Reference { used: 0, at: now };
        }
        (rate.at_once() - n) * rate.window - self.used
    }

    /// They come in.
    pub fn add(&mut self, n: i128, rate: Rate) {
        self.used += n * rate.window;
    }
}
