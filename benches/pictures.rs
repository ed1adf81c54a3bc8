//! Makes the table and the pictures of `docs/benchmarks.md` from `docs/benchmarks/*.jsonl`.
//!
//! `cargo bench --bench pictures -- docs/benchmarks` writes them. Without a folder it writes
//! nothing, and fails if what is there was not made of the figures that are there.

use std::path::Path;
use std::process::ExitCode;

#[path = "pictures/make.rs"]
mod make;

fn main() -> ExitCode {
    // cargo and the other benches have words of their own: --bench, --test, --smoke.
    let folder = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let done = match folder {
        Some(folder) => write(Path::new(&folder)),
        None => make::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), String> {
    for (path, text) in make::files(folder)? {
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    println!("\n{}", make::table(folder)?);
    Ok(())
}
