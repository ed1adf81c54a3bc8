//! Generates the table and the pictures of `docs/design/benchmarks.md` from `docs/design/benchmarks/*.jsonl`.
//!
//! `cargo bench --bench pictures -- docs/design/benchmarks` writes them. Without a folder it writes nothing, and
//! fails if the existing files were not generated from the existing figures.

use std::path::Path;
use std::process::ExitCode;

#[path = "pictures/make.rs"]
mod make;

fn main() -> ExitCode {
    // Options of cargo and of the other benches are not a folder: --bench, --test, --smoke.
    let folder = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    // cargo runs a benchmark in its package's folder, but the argument is relative to the project's.
    let at = |folder: &str| root.map_or_else(|| folder.into(), |root| root.join(folder));
    let done = match folder {
        Some(folder) => write(&at(&folder)),
        None => make::check(&at("docs/design/benchmarks")),
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
