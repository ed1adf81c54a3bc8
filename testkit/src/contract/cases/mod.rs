//! The cases of the contract, by subject.

mod coming_in;
mod holding;
mod leases;
mod waiting;

use redis_concurrent::kinds::Kind;

use super::fixture::Fixture;

pub(super) type Case<K, W> = (&'static str, fn(&Fixture<'_, K, W>));

/// Lists the names and functions of cases.
macro_rules! cases {
    ($($case:ident)*) => {
        pub(super) fn cases<K: redis_concurrent::kinds::Kind, W: redis_concurrent::kinds::Kind>() -> Vec<super::Case<K, W>> {
            vec![$((stringify!($case), $case)),*]
        }
    };
}
use cases;

pub(super) fn all<K: Kind, W: Kind>() -> Vec<Case<K, W>> {
    // The long ones first, so that they run in parallel with the others.
    [leases::cases(), waiting::cases(), coming_in::cases(), holding::cases()].concat()
}
