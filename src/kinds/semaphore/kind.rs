//! The kind of a semaphore.

use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Reentrancy, Sharing};

/// The most permits that a semaphore has, or that a caller may ask for.
pub(super) const MOST: u32 = i32::MAX as u32;

/// The kind of [`Semaphore`](crate::Semaphore): a hash with the number of permits, the number acquired, and
/// for each owner how many it has, until when.
///
/// The number available is counted, not summed up: acquiring costs the same however many holders there are.
/// **The number of permits belongs to the semaphore's users**, not to a hold: it stays when all are returned,
/// and does not expire unless [that is asked for](crate::Semaphore::expire_after). Acquired permits belong to
/// their holds, and return when their leases expire.
///
/// A handle for a constant number of permits, with every way to acquire a lock, is
/// `client.lock_with_kind(name, Permits::of(3)?)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permits(Wanted);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Some(u32),
    /// All that are available.
    All,
}

impl Permits {
    /// `n` permits, from 1 to 2^31-1.
    ///
    /// # Errors
    /// `InvalidInput` for a number out of range.
    pub fn of(n: u32) -> Result<Permits, Error> {
        check(n)?;
        Ok(Permits(Wanted::Some(n)))
    }

    pub(super) fn all() -> Permits {
        Permits(Wanted::All)
    }
}

/// Checks that this number of permits is in range.
pub(super) fn check(n: u32) -> Result<(), Error> {
    if (1..=MOST).contains(&n) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::InvalidInput, "");
    Err(error.because(format!("permits must be between 1 and {MOST}, got {n}")))
}

/// One permit.
impl Default for Permits {
    fn default() -> Self {
        Permits(Wanted::Some(1))
    }
}

impl Kind for Permits {
    const NAME: &'static str = "semaphore";
    const RULE: &'static str = rule_file!("../../../lua/semaphore.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;

    fn args(&self) -> String {
        match self.0 {
            Wanted::Some(n) => n.to_string(),
            Wanted::All => "all".to_owned(),
        }
    }
}
