//! What NAME refers to: a lock of this library, or a key that is shared with other programs.

use redis_concurrent::admin::{ForcedUnlock, HeldBy, Inspection};
use redis_concurrent::redis::ConnectionInfo;
use redis_concurrent::{Client, Error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A lock in the namespace, of any kind.
    Name,
    /// A plain string lock, at this key.
    Key,
    /// A Redisson lock, at this key.
    Redisson,
}

impl Target {
    /// Returns the target that the options --at and --redisson select.
    pub fn of(at: bool, redisson: bool) -> Target {
        match (at, redisson) {
            (true, _) => Target::Key,
            (_, true) => Target::Redisson,
            _ => Target::Name,
        }
    }

    /// Returns what is there; `None` if there is nothing.
    pub fn inspect(self, client: &Client, name: &str) -> Result<Option<Inspection>, Error> {
        match self {
            Target::Name => client.inspect(name),
            Target::Key | Target::Redisson => client.inspect_key(name),
        }
    }

    /// Returns how to connect to the server that has it.
    pub fn primary(self, client: &Client, name: &str) -> Result<ConnectionInfo, Error> {
        match self {
            Target::Name => client.primary_of(name),
            Target::Key | Target::Redisson => client.primary_of_key(name),
        }
    }

    /// Takes it from its holders, as [`Client::force_unlock_if`] does.
    pub fn take_away(
        self,
        client: &Client,
        name: &str,
        held_by: &HeldBy,
        reason: &str,
        gently: bool,
    ) -> Result<ForcedUnlock, Error> {
        match self {
            Target::Name => client.force_unlock_if(name, held_by, reason, gently),
            Target::Key => client.simple_lock_at(name).force_unlock_if(held_by, reason, gently),
            Target::Redisson => client.redisson_lock(name).force_unlock_if(held_by, reason, gently),
        }
    }
}
