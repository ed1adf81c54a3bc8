//! Plants all faults in a copy of the sources, or lists the tests that should catch them: a separate program,
//! which `ci/planted.sh` compiles.
//!
//! `plant <folder>` copies the files named on its standard input there if they differ from what is there, and
//! removes everything else; `plant --list` prints `fault|target|test|words` for each test that should fail.

mod faults;
#[allow(dead_code)] // This program never asks what is in force.
mod in_lua;
mod in_rust;
mod places;

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).ok_or("where to?")?.as_str() {
        "--list" => list(),
        folder => plant(Path::new(folder))?,
    }
    Ok(())
}

fn list() {
    for fault in faults::all() {
        for (target, test, says) in fault.caught_by {
            println!("{}|{target}|{test}|{says}", fault.name);
        }
    }
}

fn plant(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut found = vec![0; places::all().len()];
    let mut there = BTreeSet::from([folder.join("Cargo.lock")]);
    for name in io::stdin().lines() {
        let name = name?;
        let path = Path::new(&name);
        // A file that no longer exists.
        let Ok(mut source) = fs::read(path) else { continue };
        if let Ok(text) = std::str::from_utf8(&source) {
            source = places::with_faults(path, text.to_owned(), &mut found).into_bytes();
        }
        let to = folder.join(path);
        if fs::read(&to).ok().as_ref() != Some(&source) {
            fs::create_dir_all(to.parent().ok_or("no folder")?)?;
            fs::write(&to, source)?;
            fs::set_permissions(&to, fs::metadata(path)?.permissions())?;
        }
        there.insert(to);
    }
    remove_others(folder, &there)?;
    for (place, found) in places::all().iter().zip(found).filter(|(_, found)| *found != 1) {
        return Err(format!("found {found} times, and not once: {place}").into());
    }
    Ok(())
}

/// A file left there that is no longer a source would still be built.
fn remove_others(folder: &Path, stay: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, stay)?;
        } else if !stay.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
