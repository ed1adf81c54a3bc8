//! The settings of a client, checked once.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The shortest lease: below it, the ordinary jitter of the network would decide which caller holds a lock.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The shortest connect timeout or command timeout: no server replies in less.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// The longest lease or waiter timeout. More would amount to forever, and that is not a lease.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 3600);

/// Checks the length of a lease, or of another `what`; returns an error text if it is out of range.
pub(crate) fn check_lease(what: &str, lease: Duration) -> Result<(), String> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(format!("a {what} must be between {SHORTEST_LEASE:?} and {LONGEST_LEASE:?}, got {lease:?}"))
}

/// The shortest time that a hold may stay taken after its release.
const SHORTEST_STAY: Duration = Duration::from_millis(1);

/// The longest time that a hold may stay taken after its release, by [`min_hold`](crate::RedisLock::min_hold)
/// or [`unlock_staying`](crate::Guard::unlock_staying): 40 days.
pub const LONGEST_STAY: Duration = Duration::from_secs(40 * 24 * 3600);

/// Checks how long a hold is to stay taken after its release; returns an error text if that is out of range.
pub(crate) fn check_stay(what: &str, stay: Duration) -> Result<(), String> {
    if (SHORTEST_STAY..=LONGEST_STAY).contains(&stay) {
        return Ok(());
    }
    Err(format!("{what} must be between {SHORTEST_STAY:?} and {LONGEST_STAY:?}, got {stay:?}"))
}

/// The settings that every part of a client reads.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) renew_every: Duration,
    pub(crate) local_handoff: Duration,
    pub(crate) waiter_timeout: Duration,
    pub(crate) namespace: String,
    pub(crate) client_name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) unreachable_timeout: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) deadlock_timeout: Duration,
    pub(crate) max_connections: u32,
    pub(crate) drop_waits: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lease: Duration::from_secs(30),
            renew_every: Duration::from_secs(10),
            local_handoff: Duration::from_millis(1),
            waiter_timeout: Duration::from_secs(3),
            namespace: "rc".to_owned(),
            client_name: String::new(),
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(2),
            unreachable_timeout: Duration::from_secs(10),
            max_hold: None,
            deadlock_timeout: Duration::from_secs(1),
            max_connections: 10,
            drop_waits: false,
        }
    }
}

impl Config {
    /// How long the reply to a renewal may take.
    pub(crate) fn renewal_timeout(&self) -> Duration {
        self.command_timeout.min(self.lease / 6)
    }

    /// Applies the settings that were given; the others get their default, or a value that fits those given.
    pub(crate) fn fit(&mut self, waiter_timeout: Option<Duration>, command_timeout: Option<Duration>) {
        let (default_waiter_timeout, usual_timeout) = (self.waiter_timeout, self.command_timeout);
        self.command_timeout = command_timeout
            .unwrap_or_else(|| usual_timeout.min(waiter_timeout.unwrap_or(default_waiter_timeout)));
        self.waiter_timeout = waiter_timeout
            .unwrap_or_else(|| default_waiter_timeout.max(self.command_timeout.min(LONGEST_LEASE)));
    }

    /// Checks how long before the end of its hold work is to stop; returns an error text if that is out of
    /// range. A renewed hold must never have less left; a sixth of the lease is for the renewal itself and
    /// for drift.
    pub(crate) fn check_margin(&self, margin: Duration) -> Result<(), String> {
        let (every, half, most) = (self.renew_every, self.lease / 2, self.lease - self.lease / 6);
        if !(Duration::from_millis(1)..=half).contains(&margin) {
            return Err(format!(
                "stop_before must be between 1ms and half the lease ({half:?}), got {margin:?}"
            ));
        }
        if margin + every > most {
            return Err(format!(
                "stop_before and renew_every together must be at most five sixths of the lease ({most:?}), got \
                 {margin:?} and {every:?}"
            ));
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_lease("lease", self.lease).map_err(bad)?;
        check_lease("waiter_timeout", self.waiter_timeout).map_err(bad)?;
        if self.renew_every.is_zero() || self.renew_every > self.lease / 2 {
            let (every, lease) = (self.renew_every, self.lease);
            return Err(bad(format!(
                "renew_every must be more than zero and at most half the lease of {lease:?}, got {every:?}"
            )));
        }
        if self.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(bad(
                "max_hold must not be zero: for a hold that is never renewed, use a fixed lease",
            ));
        }
        if self.deadlock_timeout < Duration::from_millis(100) {
            return Err(bad("deadlock_timeout must be at least 100ms (`Duration::MAX` switches it off)"));
        }
        if self.namespace.is_empty() || self.namespace.contains(['{', '}']) {
            return Err(bad(format!(
                "a namespace must not be empty or contain braces, got {:?}",
                self.namespace
            )));
        }
        if self.client_name.contains(|c: char| c.is_control()) {
            return Err(bad(format!(
                "client_name must not contain control characters, got {:?}",
                self.client_name
            )));
        }
        if self.max_connections == 0 {
            return Err(bad("max_connections must be at least 1, got 0"));
        }
        let shortest = self.connect_timeout.min(self.command_timeout);
        if shortest < SHORTEST_TIMEOUT {
            return Err(bad(format!(
                "connect_timeout and command_timeout must be at least {SHORTEST_TIMEOUT:?}, got {shortest:?}"
            )));
        }
        if self.waiter_timeout < self.command_timeout.min(LONGEST_LEASE) {
            return Err(bad(format!(
                "a waiter_timeout of {:?} is shorter than the command_timeout of {:?}: a waiter would lose its queue \
                 position while one of its requests may still be answered",
                self.waiter_timeout, self.command_timeout
            )));
        }
        Ok(())
    }
}

pub(crate) fn bad(why: impl Into<String>) -> Error {
    ErrorKind::InvalidInput.because(why)
}
