//! Planted faults: the rules that keep the protocol safe, broken one at a time, to check that a model or a
//! test notices each.
//!
//! They leave no trace in `src/` or `lua/`: `plant.rs` copies the sources to another folder and makes the
//! replacements of `in_rust.rs` and `in_lua.rs` there, so that each place asks whether its fault is in force.
//! A single build of that copy, with `--cfg planted`, serves all faults: the environment variable `PLANTED`
//! names the one in force, and a test's child processes inherit it. `ci/planted.sh` does all this;
//! `CONTRIBUTING.md` says how to add a fault.

#![cfg_attr(planted, allow(dead_code))]

mod faults;
#[cfg(planted)]
mod in_force;
mod in_lua;
mod in_rust;
mod places;

#[cfg(planted)]
pub(crate) use self::in_force::{is, lua};

#[cfg(all(test, not(planted)))]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::faults;
    use super::in_lua::IN_LUA;
    use super::in_rust::IN_RUST;
    use super::places::{all, with_faults};

    /// Plants the faults in all files of a folder, and counts their places.
    fn plant(folder: &Path, found: &mut [usize]) {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            match fs::read_to_string(root.join(&path)) {
                Ok(text) => drop(with_faults(&path, text, found)),
                Err(_) => plant(&path, found),
            }
        }
    }

    #[test]
    fn what_is_replaced_stands_there_exactly_once() {
        let mut found = vec![0; all().len()];
        ["src", "lua", "partitions/src", "verify"]
            .iter()
            .for_each(|folder| plant(Path::new(folder), &mut found));
        let wrong: Vec<_> = all().into_iter().zip(found).filter(|(_, found)| *found != 1).collect();
        assert!(wrong.is_empty(), "found not exactly once: {wrong:#?}");
    }

    #[test]
    fn each_fault_has_a_place_and_somebody_to_catch_it() {
        let places = || IN_LUA.iter().map(|at| at.fault).chain(IN_RUST.iter().map(|at| at.fault));
        for fault in faults::all() {
            assert!(places().any(|name| name == fault.name), "{} stands nowhere", fault.name);
            assert!(!fault.caught_by.is_empty(), "{}: nobody is to catch it", fault.name);
        }
        let known = |name: &str| faults::all().any(|fault| fault.name == name);
        let unknown: Vec<_> = places().filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "no such faults: {unknown:?}");
    }
}
