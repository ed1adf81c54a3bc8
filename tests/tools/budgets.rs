//! How much there is: what a reader and a user must face. Each number may only shrink; a new public item is added to
//! `api.txt` in the commit that makes it (`UPDATE=1 cargo test --test tools budgets` writes the list).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::architecture::frames;

const LIST: &str = "tests/tools/api.txt";

/// What is counted, what it may be today, and where it should get.
const BUDGETS: &[(&str, usize, usize)] = &[
    ("lines of code in src/", 17_384, 16_000),
    ("files in src/", 144, 150),
    ("lines of code in src/engine/", 10_106, 8_500),
    ("names at the crate's root", 32, 32),
    ("public methods", 288, 288),
    ("public methods that are a form of another", 29, 29),
    ("type names defined more than once in src/", 0, 0),
    ("fields of the largest struct of the state machine", 10, 10),
    ("files of src/ under 30 lines", 4, 6),
    ("files of src/ over 400 lines of code", 0, 0),
    ("frames to the socket of lock()", 11, 11),
    ("frames to the socket of unlock()", 9, 9),
    ("words of README.md", 1_200, 1_200),
    ("words of the users' pages", 22_000, 22_000),
    ("words of CHANGELOG.md", 600, 600),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The Rust files below a folder, by their paths from the project's root.
fn sources(folder: &Path, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|it| it == "rs") {
            into.insert(entry.strip_prefix(root()).unwrap().display().to_string(), read(&entry));
        }
    }
}

fn is_code(line: &&str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn code_lines(text: &str) -> usize {
    text.lines().filter(is_code).count()
}

fn words(file: &Path) -> usize {
    read(file).split_whitespace().count()
}

/// The identifier that `line` has after the first of these that it begins with.
fn named<'a>(line: &'a str, heads: &[&str]) -> Option<&'a str> {
    let rest = heads.iter().find_map(|head| line.strip_prefix(head))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// The type whose methods the block at this line defines; not those of a trait.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let head = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest.trim_start() };
    if line.contains(" for ") { None } else { named(head, &[""]) }
}

const TYPES: &[&str] = &["pub struct ", "pub enum ", "pub trait ", "pub type ", "pub const ", "pub fn "];

/// Every public type, and every public method of one. `forms!` stands for each lock that it is used for.
fn public(files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let faces = || files.iter().filter(|(file, _)| !file.starts_with("src/engine/"));
    let types = faces().flat_map(|(_, text)| text.lines().filter_map(|line| named(line, TYPES)));
    let mut found: BTreeSet<String> = types.map(str::to_owned).collect();
    found.insert("forms!".to_owned());
    let mut methods = BTreeSet::new();
    for (file, text) in faces() {
        let mut within = if file == "src/forms.rs" { Some("forms!") } else { None };
        let mut heads: &[&str] = &["pub fn ", "$vis fn ", "pub const fn "];
        for line in text.lines() {
            if let Some(name) = named(line, &["pub trait "]) {
                (within, heads) = (Some(name), &["fn "]);
            } else if line.starts_with("impl") {
                (within, heads) = (implemented(line), &["pub fn ", "pub const fn "]);
            } else if line == "}" && within != Some("forms!") {
                within = None;
            }
            let method = if line.starts_with("    ") { named(line.trim_start(), heads) } else { None };
            if let (Some(of), Some(method)) = (within.filter(|of| found.contains(*of)), method) {
                methods.insert(format!("{of}::{method}"));
            }
        }
    }
    found.extend(methods);
    found
}

fn is_form(item: &str) -> bool {
    let Some((_, name)) = item.split_once("::") else { return false };
    let ends = ["_with", "_for", "_until", "_interruptibly", "_owned", "_owned_with"];
    name.starts_with("try_") || ends.iter().any(|end| name.ends_with(end))
}

/// The number of fields of the struct with the most of them.
fn largest_struct(text: &str) -> usize {
    let structs = text.split("struct ").skip(1).filter_map(|it| it.split_once(" {\n")?.1.split_once("\n}"));
    let fields =
        structs.map(|(body, _)| body.lines().filter(is_code).filter(|line| line.contains(": ")).count());
    fields.max().unwrap_or(0)
}

/// The names that lib.rs passes on; modules are not counted.
fn names_at_the_root(text: &str) -> usize {
    let uses = text.split("\npub use ").skip(1).filter_map(|it| it.split_once(';'));
    uses.flat_map(|(list, _)| list.rsplit(['{', ':']).next().unwrap_or("").split([',', '}']))
        .filter(|name| name.trim().starts_with(char::is_uppercase))
        .count()
}

#[test]
fn nothing_grows() {
    let mut files = BTreeMap::new();
    sources(&root().join("src"), &mut files);
    let of = |folder: &str| -> usize {
        files.iter().filter(|(file, _)| file.starts_with(folder)).map(|(_, text)| code_lines(text)).sum()
    };
    let mut types = BTreeMap::<&str, usize>::new();
    for line in files.values().flat_map(|text| text.lines()) {
        let line = line.trim_start();
        let line = ["pub(crate) ", "pub(super) ", "pub "]
            .iter()
            .find_map(|it| line.strip_prefix(it))
            .unwrap_or(line);
        if let Some(name) = named(line, &["struct ", "enum ", "trait "]) {
            *types.entry(name).or_default() += 1;
        }
    }
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let api = public(&files);
    let machine = files.iter().filter(|(file, _)| file.starts_with("src/engine/state/"));
    let counted = [
        of("src/"),
        files.len(),
        of("src/engine/"),
        names_at_the_root(&files["src/lib.rs"]),
        api.iter().filter(|item| item.contains("::")).count(),
        api.iter().filter(|item| is_form(item)).count(),
        types.iter().filter(|(name, n)| **n > 1 && !["State", "Inner"].contains(name)).count(),
        machine.map(|(_, text)| largest_struct(text)).max().unwrap_or(0),
        // A folder's list of its files is not meant.
        files.iter().filter(|(file, text)| !file.ends_with("/mod.rs") && text.lines().count() < 30).count(),
        files.values().filter(|text| code_lines(text) > 400).count(),
        frames("lock"),
        frames("unlock"),
        words(&root().join("README.md")),
        pages.filter(|page| page.extension().is_some_and(|it| it == "md")).map(|page| words(&page)).sum(),
        words(&root().join("CHANGELOG.md")),
    ];
    let mut wrong = Vec::new();
    for ((what, most, goal), n) in BUDGETS.iter().zip(counted) {
        println!("{what}: {n} (at most {most}, goal {goal})");
        if n > *most {
            wrong.push(format!("{what}: {n}, at most {most}"));
        } else if n > *goal && most - n > most / 50 {
            wrong.push(format!("{what}: {n}: let the budget shrink from {most}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_public_items_are_those_of_the_list() {
    let mut files = BTreeMap::new();
    sources(&root().join("src"), &mut files);
    let found: String = public(&files).into_iter().map(|item| item + "\n").collect();
    if std::env::var("UPDATE").is_ok() {
        fs::write(root().join(LIST), &found).unwrap();
    }
    let listed = read(&root().join(LIST));
    let (found, listed): (BTreeSet<_>, BTreeSet<_>) = (found.lines().collect(), listed.lines().collect());
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "{LIST} lacks {new:?}, and has {gone:?} that is not there");
}
