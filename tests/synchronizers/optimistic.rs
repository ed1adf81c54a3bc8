//! Updates without a lock: that each counts once, what ends them, and what is left of them.

mod crowd;
mod ending;
mod fixture;
mod refusing;
