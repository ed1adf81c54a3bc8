//! A number of permits, taken and given back by whoever needs some.

use crate::error::{Error, ErrorKind};
use crate::guard::Hold;
use crate::kind::{Kind, Reentry, Sharing};

/// The most permits that a semaphore has, or that anybody asks for.
pub(crate) const MOST: u32 = i32::MAX as u32;

/// The kind of [`Semaphore`](crate::Semaphore): a hash with the permits there are, those that are out, and
/// for each owner how many it has, until when.
///
/// How many are available is counted and not summed up: to take some costs the same whoever else has
/// some. **The permits there are belong to the semaphore's users**, not to a hold: they stay when all
/// are back, and have no time to live unless [one is set](crate::Semaphore::expire_after). Those that
/// are out belong to their holds, and come back with their leases.
///
/// A handle for always the same number of permits, with all forms of a lock, is
/// `client.lock_of(Permits::of(3)?, name)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permits(Wanted);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Some(u32),
    /// What is there.
    All,
}

impl Permits {
    /// So many of them, from 1 to 2^31-1.
    ///
    /// # Errors
    /// `Config` for another number.
    pub fn of(n: u32) -> Result<Permits, Error> {
        check(n)?;
        Ok(Permits(Wanted::Some(n)))
    }

    pub(crate) fn all() -> Permits {
        Permits(Wanted::All)
    }
}

/// Whether there can be so many permits.
pub(crate) fn check(n: u32) -> Result<(), Error> {
    if (1..=MOST).contains(&n) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Config, "");
    Err(error.because(format!("a number of permits is from 1 to {MOST}, not {n}")))
}

/// One.
impl Default for Permits {
    fn default() -> Self {
        Permits(Wanted::Some(1))
    }
}

impl Kind for Permits {
    const NAME: &'static str = "semaphore";
    const RULE: &'static str = include_str!("../../lua/semaphore.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRY: Reentry = Reentry::Another;

    fn args(&self) -> String {
        match self.0 {
            Wanted::Some(n) => n.to_string(),
            Wanted::All => "all".to_owned(),
        }
    }
}

impl Hold<Permits> {
    /// How many permits it has.
    pub fn permits(&self) -> u64 {
        self.value()
    }
}
