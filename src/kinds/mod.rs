//! What distinguishes one kind of lock from another: the contract, [`Kind`], for [kinds of your
//! own](crate::guide::writing_a_kind), and the kinds that come with the crate.

pub(crate) mod barrier;
pub(crate) mod latch;
pub(crate) mod read_write;
pub(crate) mod redisson;
mod reentrant;
pub(crate) mod semaphore;
mod simple;
pub(crate) mod spring;

pub use crate::kind::{Exclusive, Kind, Queued, Queueing, Reentrancy, Sharing};
pub use read_write::{Read, Write};
pub(crate) use redisson::{Redisson, RedissonFenced};
pub use reentrant::Reentrant;
pub use semaphore::kind::Permits;
pub use simple::Simple;
pub(crate) use spring::Spring;
