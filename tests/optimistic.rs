//! Updates without a lock: that each counts once, what ends them, and what is left of them.

#[path = "optimistic/crowd.rs"]
mod crowd;
#[path = "optimistic/ending.rs"]
mod ending;
#[path = "optimistic/refusing.rs"]
mod refusing;
#[path = "optimistic/stage.rs"]
mod stage;
#[path = "invariants/support.rs"]
mod support;
