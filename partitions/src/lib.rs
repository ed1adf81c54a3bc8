#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

mod members;

pub use members::{Change, Changes, Joining, Member, Members, Membership};
