//! The table in `docs/design/conformance.md` names the tests that there are, and counts right.

use std::collections::BTreeSet;
use std::process::Command;

const PAGE: &str = include_str!("../../docs/design/conformance.md");

/// The rows of the tables: their test, how we compare, our test, a remark.
fn rows() -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|row| row.len() == 4 && ["same", "other", "void"].contains(&row[1])).collect()
}

#[test]
fn it_names_the_tests_that_there_are() {
    let list = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format", "terse"]).output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    let tests = list.lines().filter_map(|line| line.strip_prefix("conformance::")?.strip_suffix(": test"));
    let tests: BTreeSet<&str> = tests.filter(|t| t.matches("::").count() == 2).collect();
    assert!(tests.len() > 50, "{tests:?}");
    let named = PAGE.split('`').skip(1).step_by(2);
    let named: BTreeSet<&str> = named.filter(|name| name.matches("::").count() == 2).collect();
    let differ: Vec<_> = named.symmetric_difference(&tests).collect();
    assert!(differ.is_empty(), "only here, or only there: {differ:?}");
}

#[test]
fn it_counts_right() {
    let rows = rows();
    let count = |how: &str| rows.iter().filter(|row| row[1] == how).count();
    let (same, other, void) = (count("same"), count("other"), count("void"));
    let says = format!("{} rows: {same} the same, {other} other, {void} void", rows.len());
    assert!(PAGE.contains(&says), "the page does not say: {says}");
    for row in &rows {
        assert!(row[1] == "void" || row[2].contains('`'), "no test: {row:?}");
        assert!(row[1] == "same" || !row[3].is_empty(), "no reason: {row:?}");
    }
}
