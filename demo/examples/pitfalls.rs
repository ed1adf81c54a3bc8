//! The well-known wrong ways of locking with Redis, and the right ones, each on a real server.
//!
//! ```text
//! cargo run --release --example pitfalls
//! ```
//!
//! It starts and stops every server that it needs. `docs/pitfalls.md` explains each row, and
//! `tests/tools/pitfalls.rs` checks what is printed here. The exit code is 1 if a wrong way succeeded or a
//! right one failed.

#[path = "pitfalls/mod.rs"]
mod pitfalls;

use std::process::ExitCode;

use pitfalls::Failure;
use pitfalls::report::{self, Row};

fn main() -> ExitCode {
    match run() {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            eprintln!("FAILED: {}.", complaints.join("; "));
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("pitfalls: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>, Failure> {
    let rows = pitfalls::all().iter().map(Row::of).collect::<Result<Vec<_>, _>>()?;
    println!("{}", report::text(&rows));
    Ok(rows.iter().flat_map(Row::complaints).collect())
}
