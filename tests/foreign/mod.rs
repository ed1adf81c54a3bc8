//! A simple lock at a key of the users' own, which programs of others lock by `SET key owner NX PX lease`.

mod fixture;

mod contention;
mod holders;
mod keys;
mod ours;
pub mod redis_py;
