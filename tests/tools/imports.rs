//! In which direction the files of `src/` name each other.
//!
//! What stands at the bottom names the bottom; the engine names itself and the bottom; the faces, which is
//! every other file, name what they like. Test-only modules are left out, and so is what is built for the
//! scheduler only.

mod arrows;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use arrows::{Arrow, arrows, circles};

/// What engine and faces stand on.
const BOTTOM: &[&str] = &[
    "cancel", "clock", "deadlock", "error", "kind", "names", "observe", "script", "settings", "sync", "wait",
];

/// The state machine: what it decides follows from what it is told alone.
const STATE_MACHINE: &str = "engine/state/";

/// What it may name outside of itself: values.
const VALUES: &[&str] = &[
    "clock::Millis",
    "clock::Moment",
    "kind::Reentrancy",
    "kind::Sharing",
    "observe::events::LossReason",
    "observe::events::AcquiredVia",
    "observe::events::KeptEnd",
];

/// The circles that there are, each with why it is one.
const CIRCLES: &[(&[&str], &str)] = &[(
    &[
        "engine/entries/entry.rs",
        "engine/renewal/renewer.rs",
        "engine/renewal/schedule.rs",
        "engine/entries/runtime.rs",
    ],
    "an entry keeps the runtime that it asks, which keeps a table of its entries and a schedule of their renewals",
)];

/// The folders of the engine: each names only those before it.
const ORDER: &[&str] =
    &["state", "redis", "servers", "entries", "operations", "renewal", "call", "hearing", "takeover"];

/// The arrows that point the other way. One that is gone must go from here, too.
const AGAINST_THE_ORDER: &[(&str, &str)] = &[
    ("engine/entries/runtime.rs", "engine/renewal/renewer.rs"),
    ("engine/servers/server.rs", "engine/hearing/inbox.rs"),
];

/// The folder of the engine in which a file is.
fn folder(file: &str) -> Option<usize> {
    let folder = file.strip_prefix("engine/")?.split('/').next()?;
    ORDER.iter().position(|it| *it == folder)
}

fn is_bottom(file: &str) -> bool {
    let folder = file.split(['/', '.']).next().unwrap_or_default();
    BOTTOM.contains(&folder)
}

fn is_engine(file: &str) -> bool {
    file.starts_with("engine/")
}

fn is_state_machine(file: &str) -> bool {
    file.starts_with(STATE_MACHINE)
}

fn listed(wrong: &[&Arrow]) -> String {
    wrong.iter().map(|a| format!("\n  {}:{} names {} ({})", a.from, a.line, a.path, a.to)).collect()
}

#[test]
fn the_engine_names_no_face() {
    let all = arrows();
    let wrong: Vec<_> = all
        .iter()
        .filter(|a| is_engine(&a.from) && !is_engine(&a.to) && !is_bottom(&a.to))
        .chain(all.iter().filter(|a| is_bottom(&a.from) && !is_bottom(&a.to)))
        .collect();
    assert!(wrong.is_empty(), "{} arrows point up:{}", wrong.len(), listed(&wrong));
}

#[test]
fn a_recipe_is_written_with_what_its_author_is_given() {
    let all = arrows();
    let recipes = || all.iter().filter(|a| a.from.starts_with("recipes/"));
    assert!(recipes().any(|a| a.to == "lock/mod.rs"), "the recipes have moved");
    let wrong: Vec<_> = recipes().filter(|a| is_engine(&a.to)).collect();
    assert!(wrong.is_empty(), "{} arrows point into the engine:{}", wrong.len(), listed(&wrong));
}

#[test]
fn what_is_built_on_the_library_names_what_is_public() {
    let files = ["cli/src", "tokio/src", "partitions/src", "tower/src", "benches", "demo", "examples"]
        .map(files_below);
    // Also where it is imported among others.
    let hidden = |file: &&PathBuf| fs::read_to_string(file).unwrap().contains("internals");
    let wrong: Vec<_> = files.iter().flatten().filter(hidden).collect();
    assert!(files.iter().all(|files| !files.is_empty()) && wrong.is_empty(), "{wrong:?}");
}

/// The Rust files below a folder of the project.
fn files_below(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let below = entries.map(|entry| entry.unwrap().path()).flat_map(|path| match path.to_str() {
        Some(folder) if path.is_dir() => files_below(folder),
        Some(file) if file.ends_with(".rs") => vec![path],
        _ => Vec::new(),
    });
    below.collect()
}

#[test]
fn each_folder_of_the_engine_names_those_before_it() {
    let all = arrows();
    let against = all.iter().filter(|a| folder(&a.from).is_some_and(|from| folder(&a.to) > Some(from)));
    let found: BTreeSet<(&str, &str)> = against.map(|a| (&*a.from, &*a.to)).collect();
    let listed: BTreeSet<(&str, &str)> = AGAINST_THE_ORDER.iter().copied().collect();
    assert_eq!(found, listed);
}

#[test]
fn the_state_machine_names_nothing_but_values() {
    let all = arrows();
    let machine: Vec<_> = all.iter().filter(|a| is_state_machine(&a.from)).collect();
    assert!(machine.iter().any(|a| a.to == "engine/state/grant.rs"), "the state machine has moved");
    let wrong: Vec<_> = machine
        .into_iter()
        .filter(|a| !is_state_machine(&a.to) && !VALUES.contains(&a.path.as_str()))
        .collect();
    assert!(wrong.is_empty(), "the state machine names what is none of its own:{}", listed(&wrong));
}

#[test]
fn there_is_no_circle_but_the_listed_ones() {
    let found = circles(&arrows());
    let listed: BTreeSet<BTreeSet<String>> =
        CIRCLES.iter().map(|(files, _)| files.iter().map(|f| (*f).to_owned()).collect()).collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "{} circles are not listed: {unlisted:#?}", unlisted.len());
    assert_eq!(found.len(), listed.len(), "a listed circle is there no more: strike it out");
}
