//! Locks in the formats of Java libraries: of Redisson, and beside it of ShedLock and Spring Integration.

pub mod jvm;
mod stage;

mod format;
mod holders;
mod java;
mod notices;
mod others;
mod spring;
