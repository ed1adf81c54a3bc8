//! The kinds of lock that come with the crate, a file each.

mod read_write;
mod reentrant;
mod simple;

pub use read_write::{Read, Write};
pub use reentrant::Reentrant;
pub use simple::Simple;
