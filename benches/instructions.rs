//! The instructions that a client executes, counted by valgrind (`make instructions`): the same on every machine.
//!
//! Fails if an operation needs more than `instructions/budgets.txt` allows a build of the bench profile.

#[path = "instructions/count.rs"]
mod count;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    if count::play()? {
        return Ok(());
    }
    let over = count::compare(count::Build::Bench, &[])?;
    if over.is_empty() { Ok(()) } else { Err(over.join("; ").into()) }
}
