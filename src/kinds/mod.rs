//! What distinguishes one kind of lock from another: the contract, [`Kind`], for [kinds of your
//! own](crate::guide::writing_a_kind), and the kinds that come with the crate.

pub(crate) mod barrier;
pub(crate) mod foreign;
pub(crate) mod latch;
pub(crate) mod read_write;
mod reentrant;
pub(crate) mod semaphore;
mod simple;

pub use crate::kind::{Exclusive, Kind, Queued, Queueing, Reentrancy, Sharing};
pub(crate) use foreign::{Redisson, RedissonFenced, Spring};
pub use read_write::{Read, Write};
pub use reentrant::Reentrant;
pub use semaphore::Permits;
pub use simple::Simple;
