#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

mod keeper;
mod members;
mod partitions;
mod place;
mod plan;

pub use members::{Change, Changes, Joining, Member, Members, Membership};
pub use partitions::{Owner, Partition, Partitions, Share};
