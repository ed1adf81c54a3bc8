//! Fenced resources, by their client: who may write, what is kept, and what a lost answer costs.

#[path = "fenced/chance.rs"]
mod chance;
#[path = "fenced/paused.rs"]
mod paused;
#[path = "fenced/scripts.rs"]
mod scripts;
#[path = "invariants/support.rs"]
mod support;
#[path = "fenced/values.rs"]
mod values;

/// No arguments.
const NONE: Option<&str> = None;
