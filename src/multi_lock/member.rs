//! The locks that a multi-lock is made of.

use crate::kind::Kind;
use crate::lock::RedisLock;

/// A lock that may be part of a [`MultiLock`](crate::MultiLock): a [`RedisLock`] of any kind and any client.
/// This trait is sealed.
pub trait Member: sealed::AsPart {}

impl<K: Kind> Member for RedisLock<K> {}

pub(super) mod sealed {
    use crate::engine::call::several;
    use crate::error::Error;
    use crate::kind::Kind;
    use crate::lock::RedisLock;

    pub trait AsPart {
        fn part(&self) -> Result<several::Part, Error>;
    }

    impl<K: Kind> AsPart for RedisLock<K> {
        fn part(&self) -> Result<several::Part, Error> {
            RedisLock::part(self)
        }
    }
}
