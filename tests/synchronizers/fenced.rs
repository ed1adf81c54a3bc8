//! Fenced resources, by their client: who may write, what is kept, and what a lost answer costs.

mod chance;
mod paused;
mod scripts;
mod values;

/// No arguments.
const NONE: Option<&str> = None;
