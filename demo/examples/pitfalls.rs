//! The well-known wrong ways of locking with Redis, and the right ones, each on a real server.
//!
//! ```text
//! cargo run --release --example pitfalls
//! ```
//!
//! It starts every server that it needs, and ends it. `docs/pitfalls.md` tells what each row is about, and
//! `tests/tools/pitfalls.rs` demands what is printed here. The exit code is 1 if a wrong way went well or a
//! right one did not.

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
