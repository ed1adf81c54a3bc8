//! The kinds of lock that come with the crate, a file each.

mod barrier;
mod latch;
pub(crate) mod permits;
mod read_write;
mod reentrant;
mod simple;
pub(crate) mod stock;

pub(crate) use barrier::Barrier;
pub(crate) use latch::Latch;
pub use permits::Permits;
pub use read_write::{Read, Write};
pub use reentrant::Reentrant;
pub use simple::Simple;
pub use stock::{InStock, Units};
