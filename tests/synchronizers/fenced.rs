//! Fenced resources, by their client: which writes are accepted, what is kept, and what a lost reply costs.

mod chance;
mod paused;
mod scripts;
mod values;

/// No arguments.
const NONE: Option<&str> = None;
