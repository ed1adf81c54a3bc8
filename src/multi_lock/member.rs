//! What a multi-lock is made of.

use crate::kind::Kind;
use crate::lock::RedisLock;

/// A lock that may be part of a [`MultiLock`](crate::MultiLock): a [`RedisLock`] of any kind and any client.
/// It cannot be implemented elsewhere.
pub trait Member: sealed::Part {}

impl<K: Kind> Member for RedisLock<K> {}

pub(super) mod sealed {
    use std::sync::Arc;

    use crate::engine::several;
    use crate::error::Error;
    use crate::kind::Kind;
    use crate::lock::RedisLock;
    use crate::lock::holder::Holder;

    pub trait Part {
        fn part(&self) -> Result<several::Part, Error>;

        /// The question who holds it.
        fn asked(&self) -> Arc<dyn Asked>;
    }

    /// A lock that can be asked who holds it.
    pub trait Asked: Send + Sync {
        fn name(&self) -> &str;
        fn holders(&self) -> Result<Vec<Holder>, Error>;
    }

    impl<K: Kind> Part for RedisLock<K> {
        fn part(&self) -> Result<several::Part, Error> {
            RedisLock::part(self)
        }

        fn asked(&self) -> Arc<dyn Asked> {
            Arc::new(self.clone())
        }
    }

    impl<K: Kind> Asked for RedisLock<K> {
        fn name(&self) -> &str {
            RedisLock::name(self)
        }

        fn holders(&self) -> Result<Vec<Holder>, Error> {
            self.holders_of_either_half()
        }
    }
}
