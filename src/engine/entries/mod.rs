//! A lock of this process, the table of all of them, and what the locks of a client share.

pub(crate) mod entry;
pub(crate) mod runtime;
