//! The kinds of lock that come with the crate, a file each.

mod reentrant;
mod simple;

pub use reentrant::Reentrant;
pub use simple::Simple;
