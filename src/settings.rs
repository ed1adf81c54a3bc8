//! The settings of a client, checked once.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The shortest lease: below it, the ordinary jitter of the network would decide which caller holds a lock.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The shortest connect timeout or command timeout, and the shortest time between two renewals of a hold: no server replies
/// in less.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// The longest lease or waiter timeout. More would amount to forever, and that is not a lease.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 3600);

/// The most connections that an address can have to a server. A pool has room for all its connections from the start.
const MOST_CONNECTIONS: u32 = 65_535;

/// Checks that `it` is in this range; returns an error text if it is not.
pub(crate) fn within<T: PartialOrd + Debug>(
    what: &str,
    it: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(&it) {
        return Ok(());
    }
    Err(format!("{what} must be between {:?} and {:?}, got {it:?}", range.start(), range.end()))
}

/// Checks the length of a lease, or of another `what`; returns an error text if it is out of range.
pub(crate) fn check_lease(what: &str, lease: Duration) -> Result<(), String> {
    within(what, lease, SHORTEST_LEASE..=LONGEST_LEASE).map_err(|why| format!("a {why}"))
}

/// The shortest time that a hold may stay taken after its release.
const SHORTEST_STAY: Duration = Duration::from_millis(1);

/// The longest time that a hold may stay taken after its release, by [`min_hold`](crate::RedisLock::min_hold)
/// or [`unlock_staying`](crate::Guard::unlock_staying): 40 days.
pub const LONGEST_STAY: Duration = Duration::from_secs(40 * 24 * 3600);

/// Checks how long a hold is to stay taken after its release; returns an error text if that is out of range.
pub(crate) fn check_stay(what: &str, stay: Duration) -> Result<(), String> {
    within(what, stay, SHORTEST_STAY..=LONGEST_STAY)
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
        let most = waiter_timeout.unwrap_or(self.waiter_timeout);
        self.command_timeout = command_timeout.unwrap_or(self.command_timeout.min(most));
        let least = self.command_timeout.min(LONGEST_LEASE);
        self.waiter_timeout = waiter_timeout.unwrap_or(self.waiter_timeout.max(least));
    }

    /// Checks how long before the end of its hold work is to stop; returns an error text if that is out of
    /// range. A renewed hold must never have less left; a sixth of the lease is for the renewal itself and
    /// for drift.
    pub(crate) fn check_margin(&self, margin: Duration) -> Result<(), String> {
        let (every, half, most) = (self.renew_every, self.lease / 2, self.lease - self.lease / 6);
        if !(SHORTEST_TIMEOUT..=half).contains(&margin) {
            return Err(format!(
                "stop_before must be between {SHORTEST_TIMEOUT:?} and half the lease ({half:?}), got {margin:?}"
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

    /// Returns an error text if the settings are invalid, or do not fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Config { lease, renew_every, waiter_timeout, command_timeout, .. } = *self;
        let (namespace, client_name) = (&self.namespace, &self.client_name);
        check_lease("lease", lease)?;
        check_lease("waiter_timeout", waiter_timeout)?;
        within("max_connections", self.max_connections, 1..=MOST_CONNECTIONS)?;
        within("renew_every", renew_every, SHORTEST_TIMEOUT..=lease / 2)
            .map_err(|why| format!("{why} (half the lease of {lease:?} is the most)"))?;
        let shortest = self.connect_timeout.min(command_timeout);
        let wrong = if self.max_hold.is_some_and(|longest| longest.is_zero()) {
            "max_hold must not be zero: for a hold that is never renewed, use a fixed lease".to_owned()
        } else if self.deadlock_timeout < Duration::from_millis(100) {
            "deadlock_timeout must be at least 100ms (`Duration::MAX` switches it off)".to_owned()
        } else if namespace.is_empty() || namespace.contains(['{', '}']) {
            format!("a namespace must not be empty or contain braces, got {namespace:?}")
        } else if client_name.contains(|c: char| c.is_control()) {
            format!("client_name must not contain control characters, got {client_name:?}")
        } else if shortest < SHORTEST_TIMEOUT {
            format!(
                "connect_timeout and command_timeout must be at least {SHORTEST_TIMEOUT:?}, got {shortest:?}"
            )
        } else if waiter_timeout < command_timeout.min(LONGEST_LEASE) {
            format!(
                "a waiter_timeout of {waiter_timeout:?} is shorter than the command_timeout of {command_timeout:?}: a \
                 waiter would lose its queue position while one of its requests may still be answered"
            )
        } else {
            return Ok(());
        };
        Err(wrong)
    }
}

pub(crate) fn bad(why: impl Into<String>) -> Error {
    ErrorKind::InvalidInput.because(why)
}
