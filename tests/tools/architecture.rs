//! `docs/design/architecture.md` names functions and where they are, and follows calls from one to the next.
//!
//! In a walk each numbered step is called in the body of the step just above it. A closure is a step of its own,
//! written `home(|its, parameters|)`: what it calls does not count as called by its home.

#![cfg(not(shuttle))]

use std::fs;
use std::path::Path;

/// A row of one of the page's tables.
struct Row {
    line: usize,
    /// A step of a walk has a number; what that calls beside the walk has none.
    number: Option<usize>,
    function: Function,
    file: String,
}

/// As the page names it: `Type::method`, `module::function`, `function`, or a closure in one of these.
struct Function {
    of: Option<String>,
    name: String,
    closure: Option<String>,
}

/// A table whose steps call each other.
struct Walk {
    name: String,
    frames: usize,
    /// What the last step calls.
    end: String,
    rows: Vec<Row>,
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"))
}

impl Function {
    fn of(cell: &str) -> Self {
        let (path, closure) = match cell.split_once("(|") {
            Some((path, rest)) => (path, Some(format!("|{}", rest.strip_suffix(')').unwrap_or(rest)))),
            None => (cell, None),
        };
        let (of, name) =
            path.rsplit_once("::").map_or((None, path), |(of, name)| (Some(of.to_owned()), name));
        Function { of, name: name.to_owned(), closure }
    }

    fn type_name(&self) -> Option<&str> {
        self.of.as_deref().filter(|of| of.starts_with(char::is_uppercase))
    }

    /// Its text: from its head to the end of its block, without comments and strings; of a closure only that.
    fn text(&self, file: &str) -> Option<String> {
        let all = code(&body(&read(file), &self.name, self.type_name(), file)?);
        match &self.closure {
            None => Some(all),
            Some(head) => closures(&all)
                .into_iter()
                .map(|(from, to)| all[from..to].to_owned())
                .find(|text| text.starts_with(head.as_str())),
        }
    }

    /// Whether this code calls it, or passes it on by its name.
    fn is_called_in(&self, text: &str) -> bool {
        let name = &self.name;
        match (&self.of, self.type_name()) {
            (_, Some(of)) => [format!(".{name}("), format!("{of}::{name}"), format!("Self::{name}")]
                .iter()
                .any(|it| mentions(text, it)),
            (Some(of), None) => mentions(text, &format!("{of}::{name}")),
            (None, None) => mentions(text, &format!("{name}(")),
        }
    }
}

fn row(line: usize, text: &str) -> Option<Row> {
    // A closure's parameters are within bars, too.
    let cells: Vec<&str> = text.trim().trim_matches('|').split(" | ").map(str::trim).collect();
    let [number, function, file, _] = cells[..] else { return None };
    let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.replace("\\|", "|"));
    Some(Row {
        line,
        number: number.parse().ok(),
        function: Function::of(&code(function)?),
        file: code(file)?,
    })
}

/// All rows, and the walks among them.
fn page() -> (Vec<Row>, Vec<Walk>) {
    let (mut rows, mut walks) = (Vec::new(), Vec::<Walk>::new());
    let mut in_walk = false;
    for (line, text) in (1..).zip(read("docs/design/architecture.md").lines()) {
        if let Some(walk) = text.strip_prefix("<!-- walk: ") {
            let parts: Vec<&str> = walk.trim_end_matches(" -->").split(", ").collect();
            let [name, frames, end] = parts[..] else {
                panic!("line {line}: a name, frames, an end: {walk}")
            };
            let frames =
                frames.strip_suffix(" frames").and_then(|it| it.parse().ok()).expect("a number of frames");
            let end = end.strip_prefix("to ").expect("where it ends").to_owned();
            walks.push(Walk { name: name.to_owned(), frames, end, rows: Vec::new() });
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

/// How many frames there are to the end of a walk, as the page says.
pub(crate) fn frames(walk: &str) -> usize {
    page().1.iter().find(|it| it.name == walk).unwrap_or_else(|| panic!("no walk {walk}")).frames
}

/// The text of a function, from its head to the end of its block; of one without a body nothing. `of` is the type
/// whose method it is.
fn body(source: &str, function: &str, of: Option<&str>, file: &str) -> Option<String> {
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
    let is_of = |at: usize| {
        let block =
            lines[..at].iter().rfind(|line| line.starts_with("impl") || line.starts_with("pub trait"));
        of.is_none_or(|of| block.is_some_and(|block| mentions(block, of)))
    };
    let begin = (0..lines.len()).find(|i| is_head(&lines[*i]) && defines(*i) != Some(';') && is_of(*i))?;
    let indent = lines[begin].len() - lines[begin].trim_start().len();
    let end = if file.ends_with(".lua") { "end" } else { "}" };
    let last = format!("{}{end}", " ".repeat(indent));
    let length = lines[begin..].iter().position(|line| *line == last)?;
    Some(lines[begin..=begin + length].join("\n"))
}

/// The code without its comments, and with its strings empty.
fn code(text: &str) -> String {
    let uncommented = text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>();
    let pieces = uncommented.join("\n");
    pieces.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Where the closures are that this code makes; one within another is part of that.
fn closures(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find('|').map(|it| it + from) {
        let before = text[..at].trim_end();
        let begins = ["(", ",", "=", " move"].iter().any(|it| before.ends_with(it));
        let Some(head) = text[at + 1..].find('|').filter(|_| begins).map(|it| at + it + 2) else {
            from = at + 1;
            continue;
        };
        // A block ends with its brace, an expression before what ends the call.
        let (mut depth, mut end) = (0_usize, text.len());
        let rest = text[head..].trim_start();
        let block = rest.starts_with('{') || rest.starts_with("->");
        for (i, c) in text[head..].char_indices() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth > 0 => {
                    depth -= 1;
                    if block && depth == 0 && c == '}' {
                        end = head + i + 1;
                        break;
                    }
                }
                ')' | ']' | '}' | ',' | ';' if depth == 0 => {
                    end = head + i;
                    break;
                }
                _ => {}
            }
        }
        found.push((at, end));
        from = end;
    }
    found
}

/// The code without the closures that it makes: they run when they are called, in a frame of their own.
fn itself(text: &str) -> String {
    let mut left = text.to_owned();
    let within = usize::from(text.starts_with('|'));
    for (from, to) in closures(&text[within..]).into_iter().rev() {
        left.replace_range(from + within..to + within, "");
    }
    left
}

fn mentions(text: &str, what: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(what).any(|(at, _)| {
        let before = text[..at].chars().last();
        let after = text[at + what.len()..].chars().next();
        let opens = what.ends_with('(') || !after.is_some_and(is_word);
        opens && (what.starts_with('.') || !before.is_some_and(is_word))
    })
}

/// Whether this function calls one that it is given.
fn calls_what_it_is_given(text: &str) -> bool {
    let given =
        text.match_indices(": impl Fn").filter_map(|(at, _)| text[..at].split([' ', '(']).next_back());
    given.into_iter().any(|name| mentions(&itself(text), &format!("{name}(")))
}

/// What is wrong with a walk.
fn faults(walk: &Walk) -> Vec<String> {
    let Walk { name, frames, end, rows } = walk;
    let mut wrong = Vec::new();
    let numbered = || rows.iter().filter(|row| row.number.is_some());
    let numbers: Vec<_> = numbered().filter_map(|row| row.number).collect();
    if numbers != (1..=*frames).collect::<Vec<_>>() {
        wrong.push(format!("{name}: the steps are not {frames}, counted up: {numbers:?}"));
    }
    let text = |row: &Row| row.function.text(&row.file).unwrap_or_default();
    let mut above: Option<&Row> = None;
    let mut since: Vec<&Row> = Vec::new();
    for row in rows {
        let function = &row.function.name;
        match (above, row.number) {
            (None, _) => {}
            (Some(before), Some(_)) => {
                let caller = text(before);
                let called = match &row.function.closure {
                    None => row.function.is_called_in(&itself(&caller)),
                    Some(_) => before.function.name == *function || calls_what_it_is_given(&caller),
                };
                if !called {
                    let by = &before.function.name;
                    wrong.push(format!("line {}: {by}, just above, does not call {function}", row.line));
                }
            }
            (Some(_), None) if since.iter().any(|it| row.function.is_called_in(&text(it))) => {}
            (Some(_), None) => {
                wrong.push(format!("line {}: nothing since the last step calls {function}", row.line))
            }
        }
        if row.number.is_some() {
            (above, since) = (Some(row), Vec::new());
        } else if !row.file.starts_with("src/engine/state/") {
            // (The state machine calls nothing outside, as the import test says.)
            let later = numbered().filter(|it| it.line > row.line && it.function.closure.is_none());
            let called = later.filter(|it| it.function.is_called_in(&text(row)));
            wrong.extend(
                called.map(|it| format!("line {}: {function} calls the step {}", row.line, it.function.name)),
            );
        }
        since.push(row);
    }
    if !above.is_some_and(|last| mentions(&text(last), &format!("{end}("))) {
        wrong.push(format!("{name}: the last step does not call {end}"));
    }
    wrong
}

#[test]
fn each_function_is_in_its_file() {
    let (rows, _) = page();
    assert!(rows.len() >= 30, "the tables are not found: {} rows", rows.len());
    let missing: Vec<String> = rows
        .iter()
        .filter(|row| row.function.text(&row.file).is_none())
        .map(|row| format!("line {}: {} is not in {}", row.line, row.function.name, row.file))
        .collect();
    assert!(missing.is_empty(), "docs/design/architecture.md has rotted:\n{}", missing.join("\n"));
}

#[test]
fn each_step_of_a_walk_is_called_by_the_one_just_above() {
    let (_, walks) = page();
    for walk in ["lock", "unlock"] {
        assert!(walks.iter().any(|it| it.name == walk), "there is no walk of {walk}");
    }
    let wrong: Vec<String> = walks.iter().flat_map(faults).collect();
    assert!(wrong.is_empty(), "docs/design/architecture.md skips steps:\n{}", wrong.join("\n"));
}

#[test]
fn a_function_that_is_not_there_is_noticed() {
    let source = "trait T {\n    fn a(&self);\n}\nimpl T for U {\n    fn a(&self) {\n        b(1);\n    }\n}\n// fn c() {\n";
    let a = body(source, "a", Some("U"), "x.rs");
    assert!(a.is_some_and(|body| mentions(&body, "b") && !mentions(&body, "c")));
    assert!(body(source, "a", Some("V"), "x.rs").is_none());
    assert!(body(source, "c", None, "x.rs").is_none() && body(source, "b", None, "x.rs").is_none());
    assert!(!mentions("abc()", "b(") && mentions("x::b::<u8>()", "b"));
}

#[test]
fn what_a_closure_calls_is_not_called_by_its_home() {
    let text = "fn a(x: u8, f: impl Fn(u8)) {\n    b(|s| c(s, 1), 2) || d(f(x), || { e(\"|\") })\n}";
    let text = code(text);
    let itself = itself(&text);
    assert!(mentions(&itself, "b(") && mentions(&itself, "d("), "{itself}");
    assert!(!mentions(&itself, "c(") && !mentions(&itself, "e("), "{itself}");
    assert!(calls_what_it_is_given(&text) && !calls_what_it_is_given("fn a(f: impl Fn()) {\n    b(f)\n}"));
}
