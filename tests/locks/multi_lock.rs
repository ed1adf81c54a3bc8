//! Several locks as one: how they come in, in whatever order they are named, and how they end.

// A part of what it can do is for other tests.
#[allow(dead_code)]
mod chance;
mod deadlock;
mod fixture;
mod forms;
mod losing;
mod refusing;
mod replicated;
mod requests;
mod silence;
mod waiting;
