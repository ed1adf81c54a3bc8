//! A lock in Redisson's format, which programs in Java lock by `redisson.getLock(key)`.

mod jvm;
mod stage;

mod format;
mod holders;
mod java;
mod notices;
mod others;
