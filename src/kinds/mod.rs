//! The kinds of lock that come with the crate, a file each.

pub(crate) mod permits;
mod read_write;
mod reentrant;
mod simple;

pub use permits::Permits;
pub use read_write::{Read, Write};
pub use reentrant::Reentrant;
pub use simple::Simple;
