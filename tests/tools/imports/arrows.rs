//! Which file of `src/` names which, read from their `use` lines and the paths in their code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One file names something of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    /// The file, below `src/`.
    pub(crate) from: String,
    pub(crate) line: usize,
    /// What it names, from the crate's root, as far as it was followed.
    pub(crate) path: String,
    /// The file that stands in.
    pub(crate) to: String,
}

type Names = Vec<String>;

/// A path as it is written, from the crate's root.
struct Named {
    /// The module that it is written in.
    within: Names,
    /// The module whose file that is.
    file: Names,
    path: Names,
    /// The name that it has there from then on, if it is imported.
    known_as: Option<String>,
    line: usize,
}

#[derive(Default)]
struct Source {
    /// The files, by their modules.
    files: BTreeMap<Names, String>,
    modules: BTreeSet<Names>,
    named: Vec<Named>,
}

/// Where a piece of code stands.
struct Place {
    module: Names,
    /// The module whose file that is.
    file: Names,
    /// The modules in this one.
    children: BTreeSet<String>,
}

/// All arrows between two files of `src/`. What a module passes on under a name of its own is an arrow to the
/// file where it stands.
pub(crate) fn arrows() -> Vec<Arrow> {
    let mut source = Source::default();
    source.read("lib.rs", Vec::new());
    let known: BTreeMap<_, _> = source
        .named
        .iter()
        .filter_map(|n| Some(((n.within.clone(), n.known_as.clone()?), n.path.clone())))
        .collect();
    let mut arrows = BTreeSet::new();
    for named in &source.named {
        let mut path = named.path.clone();
        // Each step leads to another name; more than a few would be a circle of names.
        for _ in 0..8 {
            let module = source.module(&path);
            let Some(next) = path.get(module.len()) else { break };
            let Some(passed_on) = known.get(&(module.clone(), next.clone())) else { break };
            let rest = path.split_off(module.len() + 1);
            path = passed_on.iter().cloned().chain(rest).collect();
        }
        let (Some(from), Some(to)) = (source.file(&named.file), source.file(&source.module(&path))) else {
            continue;
        };
        if from != to {
            let path = path.join("::");
            arrows.insert(Arrow { from: from.clone(), line: named.line, path, to: to.clone() });
        }
    }
    arrows.into_iter().collect()
}

/// The sets of files each of which leads to each other one of its set.
pub(crate) fn circles(arrows: &[Arrow]) -> BTreeSet<BTreeSet<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows {
        next.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    let reached: BTreeMap<_, _> = next.keys().map(|file| (*file, reached_from(file, &next))).collect();
    let leads = |a: &str, b: &str| reached.get(a).is_some_and(|all| all.contains(b));
    reached
        .keys()
        .filter(|file| leads(file, file))
        .map(|file| {
            reached.keys().filter(|o| leads(file, o) && leads(o, file)).map(|o| (*o).to_owned()).collect()
        })
        .collect()
}

fn reached_from<'a>(start: &str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<_> = next.get(start).into_iter().flatten().copied().collect();
    while let Some(at) = open.pop() {
        if seen.insert(at) {
            open.extend(next.get(at).into_iter().flatten());
        }
    }
    seen
}

impl Source {
    /// The longest beginning of a path that is a module.
    fn module(&self, path: &[String]) -> Names {
        let most = (0..=path.len()).rev().find(|n| self.modules.contains(&path[..*n]));
        path[..most.unwrap_or_default()].to_vec()
    }

    /// The file that a module stands in.
    fn file(&self, module: &[String]) -> Option<&String> {
        (0..=module.len()).rev().find_map(|n| self.files.get(&module[..n]))
    }

    fn read(&mut self, file: &str, module: Names) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.files.insert(module.clone(), file.to_owned());
        self.walk(&tokens(&text), &module, &module);
    }

    /// The code of `module`, a whole file or the module `file`'s, between two braces.
    fn walk(&mut self, code: &[Token], module: &Names, file: &Names) {
        self.modules.insert(module.clone());
        let children: BTreeSet<_> = code
            .windows(3)
            .filter(|w| w[0].text == "mod" && (w[2].text == ";" || w[2].text == "{"))
            .map(|w| w[1].text.clone())
            .collect();
        let place = Place { module: module.clone(), file: file.clone(), children };
        let mut at = 0;
        while at < code.len() {
            let rest = &code[at..];
            let before = at.checked_sub(1).map_or("", |i| &code[i].text);
            at += match rest[0].text.as_str() {
                "#" if is_for_tests(attribute(rest)) => {
                    let attribute = attribute(rest).len();
                    attribute + item(&rest[attribute..])
                }
                "#" => attribute(rest).len().max(1),
                "mod" if rest.len() > 2 && place.children.contains(&rest[1].text) => {
                    let child: Names = module.iter().cloned().chain([rest[1].text.clone()]).collect();
                    if rest[2].text == ";" {
                        self.read(&file_of(&child), child);
                    } else {
                        self.walk(&rest[3..item(rest) - 1], &child, file);
                    }
                    item(rest)
                }
                "use" => {
                    let length = item(rest);
                    self.uses(&rest[1..length - 1], &Vec::new(), &place);
                    length
                }
                "crate" | "super" | "self" if before != "::" => self.inline(rest, &place),
                name if before != "::" && place.children.contains(name) => self.inline(rest, &place),
                _ => 1,
            };
        }
    }

    /// A path in the code; how long it is.
    fn inline(&mut self, code: &[Token], place: &Place) -> usize {
        let mut length = 1;
        while length + 1 < code.len() && code[length].text == "::" && is_name(&code[length + 1].text) {
            length += 2;
        }
        if length > 1 {
            let path: Names = code[..length].iter().step_by(2).map(|t| t.text.clone()).collect();
            self.name(path, None, code[0].line, place);
        }
        length
    }

    /// What stands between `use` and its end, or between the braces of one.
    fn uses(&mut self, code: &[Token], before: &Names, place: &Place) {
        for part in parts(code) {
            let mut path = before.clone();
            let mut at = 0;
            while at < part.len() && is_name(&part[at].text) && part[at].text != "as" {
                path.push(part[at].text.clone());
                at += 1;
                if part.get(at).is_some_and(|t| t.text == "::") {
                    at += 1;
                }
            }
            let Some(first) = part.first() else { continue };
            match part.get(at).map(|t| t.text.as_str()) {
                Some("{") => self.uses(&part[at + 1..part.len() - 1], &path, place),
                Some("*") => self.name(path, None, first.line, place),
                more => {
                    if path.last().is_some_and(|it| it == "self") && path.len() > 1 {
                        path.pop();
                    }
                    let renamed = more.and_then(|_| part.get(at + 1)).map(|t| t.text.clone());
                    let known_as = renamed.or_else(|| path.last().cloned());
                    self.name(path, known_as, first.line, place);
                }
            }
        }
    }

    fn name(&mut self, path: Names, known_as: Option<String>, line: usize, place: &Place) {
        let Place { module, file, children } = place;
        let mut full = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => module.clone(),
            Some(child) if children.contains(child) => module.clone(),
            // Of another crate.
            _ => return,
        };
        for step in path {
            match step.as_str() {
                "super" => drop(full.pop()),
                "crate" | "self" => {}
                _ => full.push(step),
            }
        }
        let (within, file) = (module.clone(), file.clone());
        self.named.push(Named { within, file, path: full, known_as, line });
    }
}

/// The file of a module.
fn file_of(module: &[String]) -> String {
    let file = format!("{}.rs", module.join("/"));
    let in_src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(&file);
    if in_src.exists() { file } else { format!("{}/mod.rs", module.join("/")) }
}

/// An attribute at the beginning of `code`.
fn attribute(code: &[Token]) -> &[Token] {
    let begin = code.iter().take(3).position(|t| t.text == "[").unwrap_or(code.len());
    &code[..(begin + closed(&code[begin..])).min(code.len())]
}

/// Whether what it stands before is in no build that ships.
fn is_for_tests(attribute: &[Token]) -> bool {
    let text: String = attribute.iter().map(|t| t.text.as_str()).collect();
    let text = text.replace("not(test)", "").replace("not(shuttle)", "").replace("any(test,", "(test,");
    text.starts_with("#[cfg(")
        && !text.contains("any(")
        && (text.contains("test") || text.contains("shuttle"))
}

/// How long the item at the beginning of `code` is, with its attributes.
fn item(code: &[Token]) -> usize {
    let mut at = 0;
    while code.get(at).is_some_and(|t| t.text == "#") {
        at += attribute(&code[at..]).len();
    }
    let is_use = code[at..].iter().find(|t| t.text == "use" || t.text == ";" || t.text == "{");
    let is_use = is_use.is_some_and(|t| t.text == "use");
    while at < code.len() {
        match code[at].text.as_str() {
            ";" => return at + 1,
            "{" if !is_use => return at + closed(&code[at..]),
            _ => at += 1,
        }
    }
    at
}

/// The parts between the commas that are in no brace.
fn parts(code: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    code.split(|t| {
        match t.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0 && t.text == ","
    })
    .collect()
}

/// How long it is until the bracket that opens here is closed.
fn closed(code: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in code.iter().enumerate() {
        match token.text.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A name, a `::`, or one character of something else.
struct Token {
    text: String,
    line: usize,
}

/// Code without its comments, its strings and its characters.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            string(rest)
        } else if let Some(end) = raw_string(rest) {
            end
        } else if first == '\'' {
            character(rest)
        } else {
            let length = match first {
                ':' if rest.starts_with("::") => 2,
                c if c.is_alphanumeric() || c == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                c => c.len_utf8(),
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: rest[..length].to_owned(), line });
            }
            length
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

fn string(text: &str) -> usize {
    let mut escaped = true;
    let end = text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 1)
}

fn raw_string(text: &str) -> Option<usize> {
    let body = text.strip_prefix('r')?;
    let marks = body.len() - body.trim_start_matches('#').len();
    let inner = body[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    Some(inner.find(&end).map_or(text.len(), |at| 2 + marks + at + end.len()))
}

/// A character, or the mark before a lifetime's name.
fn character(text: &str) -> usize {
    let mut inner = text[1..].char_indices();
    match inner.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(text.len(), |at| at + 4),
        Some(_) => inner.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 2),
        None => 1,
    }
}
