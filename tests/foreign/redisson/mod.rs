//! Locks in the formats of Java libraries: of Redisson, and beside it of ShedLock and Spring Integration.

mod fixture;
pub mod jvm;

mod format;
mod holders;
mod java;
mod notices;
mod others;
mod spring;
