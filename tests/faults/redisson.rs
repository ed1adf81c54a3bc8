//! A lock in Redisson's format, which programs in Java lock by `redisson.getLock(key)`.

mod stage;

mod format;
mod holders;
mod notices;
