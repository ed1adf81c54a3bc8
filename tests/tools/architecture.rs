//! `docs/design/architecture.md` names functions and where they are, and how many there are on the way to the socket.

#![cfg(not(shuttle))]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A row of one of the page's tables.
struct Row {
    line: usize,
    /// A step on the way has a number; a decision beside it has none.
    number: Option<usize>,
    /// Without its type.
    function: String,
    file: String,
}

/// A table that is a way to the socket: how long it may be.
struct Walk {
    name: String,
    functions: usize,
    files: usize,
    rows: Vec<Row>,
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn row(line: usize, text: &str) -> Option<Row> {
    let cells: Vec<&str> = text.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [number, function, file, _] = cells[..] else { return None };
    let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let function = code(function)?.rsplit("::").next()?.to_owned();
    Some(Row { line, number: number.parse().ok(), function, file: code(file)? })
}

/// All rows, and the walks among them.
fn page() -> (Vec<Row>, Vec<Walk>) {
    let (mut rows, mut walks) = (Vec::new(), Vec::<Walk>::new());
    let mut in_walk = false;
    for (line, text) in (1..).zip(read("docs/design/architecture.md").lines()) {
        if let Some(walk) = text.strip_prefix("<!-- walk: ") {
            let name = walk.split(',').next().unwrap_or_default().to_owned();
            let numbers: Vec<usize> = walk.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [functions, files] = numbers[..] else { panic!("line {line}: two limits, not {walk}") };
            walks.push(Walk { name, functions, files, rows: Vec::new() });
            in_walk = true;
        } else if let Some(found) = row(line, text) {
            if let Some(walk) = walks.last_mut().filter(|_| in_walk) {
                walk.rows.extend(row(line, text));
            }
            rows.push(found);
        } else if !text.is_empty() && !text.starts_with('|') {
            in_walk = false;
        }
    }
    (rows, walks)
}

/// The text of a function, from its head to the end of its block; of one without a body nothing.
fn body(source: &str, function: &str, file: &str) -> Option<String> {
    let heads = if file.ends_with(".lua") {
        vec![format!("local function {function}(")]
    } else {
        vec![format!("fn {function}("), format!("fn {function}<")]
    };
    let lines: Vec<&str> = source.lines().collect();
    let is_head = |line: &&str| !line.trim().starts_with("//") && heads.iter().any(|h| line.contains(h));
    // A trait declares what an implementation elsewhere in the file defines.
    let defines = |from: usize| {
        lines[from..].iter().take(12).find_map(|l| l.trim().chars().last().filter(|c| ";{)".contains(*c)))
    };
    let begin = (0..lines.len()).find(|i| is_head(&lines[*i]) && defines(*i) != Some(';'))?;
    let indent = lines[begin].len() - lines[begin].trim_start().len();
    let end = if file.ends_with(".lua") { "end" } else { "}" };
    let last = format!("{}{end}", " ".repeat(indent));
    let length = lines[begin..].iter().position(|line| *line == last)?;
    Some(lines[begin..=begin + length].join("\n"))
}

fn mentions(text: &str, function: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(function).any(|(at, _)| {
        let before = text[..at].chars().last();
        let after = text[at + function.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn each_function_is_in_its_file() {
    let (rows, _) = page();
    assert!(rows.len() >= 30, "the tables are not found: {} rows", rows.len());
    let missing: Vec<String> = rows
        .iter()
        .filter(|row| body(&read(&row.file), &row.function, &row.file).is_none())
        .map(|row| format!("line {}: {} is not in {}", row.line, row.function, row.file))
        .collect();
    assert!(missing.is_empty(), "docs/design/architecture.md has rotted:\n{}", missing.join("\n"));
}

#[test]
fn the_ways_to_the_socket_are_as_short_as_stated() {
    let (_, walks) = page();
    assert_eq!(walks.iter().map(|walk| &*walk.name).collect::<Vec<_>>(), ["lock", "unlock"]);
    for Walk { name, functions, files, rows } in walks {
        let limits = if name == "lock" { (11, 12) } else { (8, 12) };
        assert_eq!((functions, files), limits, "{name}: the page states other limits");
        let steps: Vec<&Row> = rows.iter().filter(|row| row.number.is_some()).collect();
        let numbers: Vec<_> = steps.iter().filter_map(|row| row.number).collect();
        assert_eq!(numbers, (1..=steps.len()).collect::<Vec<_>>(), "{name}: the steps are not counted up");
        assert!(steps.len() <= functions, "{name}: {} functions to the socket", steps.len());
        let named: BTreeSet<&str> = rows.iter().map(|row| &*row.file).collect();
        assert!(named.len() <= files, "{name}: {} files: {named:?}", named.len());
        // Each step is called by the one above it, or handed by an earlier one to that.
        let mut above = String::new();
        for step in steps {
            let Row { line, function, file, .. } = step;
            assert!(
                above.is_empty() || mentions(&above, function),
                "line {line}: nothing above calls {function}"
            );
            above.push_str(&body(&read(file), function, file).unwrap_or_default());
        }
        assert!(above.contains(".req_packed_command("), "{name}: the last step does not reach the socket");
    }
}

#[test]
fn a_function_that_is_not_there_is_noticed() {
    let source = "trait T {\n    fn a(&self);\n}\nimpl T for U {\n    fn a(&self) {\n        b(1);\n    }\n}\n// fn c() {\n";
    assert!(body(source, "a", "x.rs").is_some_and(|body| mentions(&body, "b") && !mentions(&body, "c")));
    assert!(body(source, "c", "x.rs").is_none() && body(source, "b", "x.rs").is_none());
    assert!(!mentions("abc()", "b") && mentions("x::b::<u8>()", "b"));
}
