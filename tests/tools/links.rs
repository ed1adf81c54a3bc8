//! The pages' links lead somewhere: as files in the repository, and in the crate's documentation. Their code is shown
//! with what it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The definitions that come first in the crate's documentation.
const IN_THE_CRATE: &str = include_str!("../../src/guide/links.md");
const PLOTS: &str = include_str!("../../docs/design/benchmarks/plots.md");
const PICTURES: &str = include_str!("../../docs/pictures/embedded.md");
/// Where `guide` names its pages.
const GUIDE: &str = include_str!("../../src/guide.rs");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of `guide`: their files, by their modules.
fn pages() -> BTreeMap<String, PathBuf> {
    let mut pages = BTreeMap::from([("guide".to_owned(), root().join("README.md"))]);
    let line = |line: &str| {
        let (module, file) = line.trim().split_once(" \"../")?;
        Some((module.to_owned(), root().join(file.strip_suffix('"')?)))
    };
    pages.extend(GUIDE.lines().filter_map(line));
    for (module, file) in [("benchmarks", "docs/design/benchmarks.md"), ("in_async_code", "docs/async.md")] {
        pages.insert(module.to_owned(), root().join(file));
    }
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A page without its code.
fn prose(text: &str) -> String {
    let mut within = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.starts_with("```");
        if !fence && !within {
            lines.push(line);
        }
        within ^= fence;
    }
    lines.join("\n")
}

/// Doc tests compile each block with its hidden lines. None of these may import what the shown ones need: the code
/// would not compile where it is copied to.
#[test]
fn code_is_shown_with_what_it_imports() {
    let mut blocks = 0;
    for (module, file) in pages() {
        let mut is_rust = false;
        for line in read(&file).lines() {
            if let Some(language) = line.strip_prefix("```") {
                is_rust = language.starts_with("rust");
                blocks += usize::from(is_rust);
                assert!(!language.contains("ignore"), "{module}: a block that no test compiles");
            }
            assert!(!(is_rust && line.starts_with("# use ")), "{module}: hidden: {line}");
        }
    }
    assert!(blocks > 20, "{blocks}");
}

/// What a heading is linked by.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    headings.map(anchor).collect()
}

/// The names that a text defines, with their addresses.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| {
        let (name, address) = line.strip_prefix('[')?.split_once("]: ")?;
        (!address.contains(' ')).then_some((name, address))
    });
    lines.collect()
}

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading_of_it() {
    for file in pages().values() {
        let text = read(file);
        for (name, address) in definitions(&text) {
            let at = format!("[{name}] in {}", file.display());
            if address.starts_with("https://") {
                continue;
            }
            let (path, heading) = address.split_once('#').unwrap_or((address, ""));
            let to = file.parent().unwrap().join(path);
            assert!(to.exists(), "{at}: there is no {}", to.display());
            assert!(
                heading.is_empty() || anchors(&read(&to)).contains(heading),
                "{at}: no heading {heading}"
            );
            assert!(prose(&text).contains(&format!("][{name}]")), "{at} is used nowhere");
        }
        for link in prose(&text).split("](").skip(1) {
            let address = link.split(')').next().unwrap();
            let at = format!("{}: {address}", file.display());
            match address.strip_prefix('#') {
                Some(heading) => assert!(anchors(&text).contains(heading), "{at}: no such heading"),
                None => assert!(
                    address.starts_with("http"),
                    "{at}: a link to another page needs a name, as src/guide.rs says"
                ),
            }
        }
    }
}

#[test]
fn each_name_that_a_page_links_by_is_defined_at_its_end() {
    for file in pages().values() {
        let text = read(file);
        let (defined, prose) = (definitions(&text), prose(&text));
        let names = prose.split("][").skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
        let missing: Vec<&str> = names.filter(|name| !defined.contains_key(name)).collect();
        assert!(missing.is_empty(), "{}: shown as text: {missing:?}", file.display());
    }
}

#[test]
fn each_link_of_a_page_leads_to_a_file_of_the_package() {
    let cargo = ["package", "--offline", "--allow-dirty", "--list", "--package", "redis-concurrent"];
    let listed = std::process::Command::new(env!("CARGO")).current_dir(root()).args(cargo).output().unwrap();
    let list = String::from_utf8(listed.stdout).unwrap();
    let packed: BTreeSet<_> = list.lines().filter_map(|it| root().join(it).canonicalize().ok()).collect();
    for file in pages().values() {
        assert!(packed.contains(&file.canonicalize().unwrap()), "{} is not packed", file.display());
        let text = read(file);
        for (name, address) in definitions(&text).into_iter().filter(|(_, it)| !it.starts_with("https://")) {
            let path = address.split('#').next().unwrap();
            let to = file.parent().unwrap().join(path).canonicalize().unwrap();
            let itself = path.is_empty() || to.is_dir();
            assert!(itself || packed.contains(&to), "[{name}] in {}: {address}", file.display());
        }
    }
}

#[test]
fn each_link_leads_to_the_same_place_in_the_documentation_of_the_crate() {
    let in_the_crate = definitions(IN_THE_CRATE);
    let (mut pictures, pages) = (definitions(PLOTS), pages());
    pictures.extend(definitions(PICTURES));
    let mut used = BTreeSet::new();
    for file in pages.values() {
        let text = read(file);
        for (name, address) in definitions(&text) {
            if pictures.contains_key(name) {
                assert!(address.ends_with(&format!("/{name}.svg")), "[{name}]: {address}");
                continue;
            }
            let there = *in_the_crate
                .get(name)
                .unwrap_or_else(|| panic!("[{name}] of {} is not in src/guide/links.md", file.display()));
            used.insert(name.to_owned());
            // A page, by its module; the rest is looked at by rustdoc, or is outside.
            let Some(place) = there.strip_prefix("crate::guide") else { continue };
            let (module, heading) = place.split_once('#').unwrap_or((place, ""));
            let page = &pages[module.strip_prefix("::").unwrap_or("guide")];
            let (path, here) = address.split_once('#').unwrap_or((address, ""));
            let to = file.parent().unwrap().join(path).canonicalize().unwrap();
            assert_eq!((to, here), (page.canonicalize().unwrap(), heading), "[{name}] in {}", file.display());
        }
    }
    let unused: Vec<_> = in_the_crate.keys().filter(|name| !used.contains(**name)).collect();
    assert!(unused.is_empty(), "no page has a link {unused:?}");
}

/// All Rust files below a folder, one after the other.
fn rust(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => rust(&path),
        Some(it) if it == "rs" => read(&path),
        _ => String::new(),
    };
    entries.map(text).collect()
}

/// What `docs/design/proof.md` names in its tables exists: files, tests of the models, scenarios, planted faults, kinds of
/// the checker, checks of the simulation, targets of make, and, in quotation marks, properties of the models.
#[test]
fn what_the_page_about_proofs_names_exists() {
    let (page, verify) = (read(&root().join("docs/design/proof.md")), rust(&root().join("verify")));
    let (models, make) = (read(&root().join("checker/models.go")), read(&root().join("Makefile")));
    let names_something = |name: &str| {
        let last = name.rsplit("::").next().unwrap();
        match name {
            _ if name.contains('/') => root().join(name).exists(),
            _ if name.contains("::") => verify.contains(&format!("fn {last}(")),
            _ => match name.split_once(' ') {
                Some(("make", target)) => make.contains(&format!("\n{target}:")),
                Some(_) => name.starts_with("cargo test "),
                None => {
                    let literals = [format!("{name:?}"), format!("\"{name}: ")];
                    literals.iter().any(|it| verify.contains(it)) || models.contains(&format!("{name:?}:"))
                }
            },
        }
    };
    let (mut names, mut unknown) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let named = row.split('`').skip(1).step_by(2).map(|name| (name, names_something(name)));
        let properties = row.split('"').skip(1).step_by(2);
        let properties = properties.map(|it| (it, verify.contains(&format!("Property::always({it:?}"))));
        for (name, exists) in named.chain(properties) {
            names += 1;
            unknown.extend((!exists).then_some(name));
        }
    }
    assert!(names > 100 && unknown.is_empty(), "of {names} names these are unknown: {unknown:?}");
}
