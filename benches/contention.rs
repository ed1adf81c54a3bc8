//! Measures what the locks cost and how they behave under contention, in one process and in many.
//!
//! `docs/design/benchmarks.md` says how to run it and what its columns mean. It starts a private `redis-server` for
//! each row, and another instance of itself for each further process.

#[path = "contention/run.rs"]
mod run;

fn main() -> std::process::ExitCode {
    run::main()
}
