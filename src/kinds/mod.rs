//! The kinds of lock that come with the crate, a file or a folder each: the rule, and its public types.

pub(crate) mod barrier;
pub(crate) mod latch;
pub(crate) mod per_caller;
pub(crate) mod read_write;
mod redisson;
mod reentrant;
pub(crate) mod semaphore;
mod simple;
mod spring;

pub use read_write::{Read, Write};
pub use redisson::{Redisson, RedissonFenced};
pub use reentrant::Reentrant;
pub use semaphore::kind::Permits;
pub use simple::Simple;
pub use spring::Spring;
