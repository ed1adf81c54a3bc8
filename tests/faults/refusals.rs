//! What a server refuses: where nothing waits it is told at once, where something does and it may pass it is
//! waited for, and what is for good is told at once to everybody.

mod connections;
mod passing;
mod red_lock;

/// One of several calls that a test makes in turn.
type AskOnce<'a> = &'a dyn Fn() -> Result<(), redis_concurrent::Error>;
