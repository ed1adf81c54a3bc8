//! What a caller's thread does: acquire, wait, renew, release.

pub(crate) mod acquire;
pub(crate) mod attempt;
pub(crate) mod backoff;
pub(crate) mod close;
pub(crate) mod condition;
pub(crate) mod deadlock;
pub(crate) mod end;
pub(in crate::engine) mod head;
pub(crate) mod held;
pub(crate) mod modes;
pub(crate) mod outcomes;
pub(crate) mod receipt;
pub(crate) mod release;
pub(crate) mod replicas;
pub(crate) mod several;
pub(crate) mod waiter;
pub(crate) mod warning;

pub(crate) use self::acquire::acquire;
pub(crate) use self::close::close;
pub(crate) use self::end::{How, end};
pub(in crate::engine) use self::outcomes::lost;
pub(crate) use self::release::unlock_failed;
