//! Puts a script together: an operation, and what it needs of the parts and of a kind's rule.

use std::collections::HashMap;

use super::files::{File, OF_CONDITIONS, OPERATIONS, PARTS};
use super::items::{Defines, Item, Need, items, needs};
use super::lines::Lines;
use super::reader::{Is, Token, Wrong, tokens};

/// The functions that every rule must define.
pub(super) const REQUIRED: [&str; 6] = ["load", "try_acquire", "release", "renew", "next_expiry", "holders"];
/// Those that it may define.
pub(super) const OPTIONAL: [&str; 12] = [
    "reject",
    "class",
    "can_barge",
    "is_full",
    "on_leave",
    "last",
    "on_wait",
    "on_busy",
    "describe",
    "update",
    "transfer",
    "more",
];
/// What it says of itself: the first one must.
const FIELDS: [&str; 2] = ["tag", "whole"];

/// What a rule is given, wherever it stands: all else of the parts is theirs.
pub(super) const GIVEN: [&str; 17] = [
    "kind",
    "K",
    "F",
    "call",
    "now",
    "number",
    "foreign_key",
    "fetch",
    "fmt",
    "waiting",
    "silent",
    "dead",
    "deaf",
    "drop",
    "tell",
    "their_turn",
    "announce_free",
];

/// How a rule's text begins that says which file it is of.
const FILE_IS: &str = "--@ file ";

/// A definition, and the file that it stands in.
struct Definition<'a> {
    file: &'a str,
    is_rule: bool,
    item: Item<'a>,
}

/// All definitions that an operation may need, in the order in which they may stand.
pub(super) struct Linker<'a> {
    definitions: Vec<Definition<'a>>,
    /// By what they are called: the locals of all files, and the functions of the kind.
    locals: HashMap<&'a str, usize>,
    functions: HashMap<&'a str, usize>,
}

fn told(file: &str, wrong: Wrong) -> String {
    format!("{file}:{}: {}", wrong.line, wrong.why)
}

/// The file that a rule's text is of, if it says so, and the rest of it.
fn file_of(rule: &str) -> (&str, &str) {
    let named = rule.strip_prefix(FILE_IS).and_then(|named| named.split_once('\n'));
    let (file, rule) = named.unwrap_or(("rule", rule));
    // As it stands in the repository, more often than not.
    (file.trim_start_matches("../"), rule)
}

/// What an operation has declared before the code behind one of its marks: a rule's functions that come there
/// would see it in place of a local of the same name of their own.
fn declared_by_operations() -> Result<Vec<&'static str>, String> {
    let mut names = Vec::new();
    for (file, source) in OPERATIONS.into_iter().chain(OF_CONDITIONS) {
        let all = items(source).map_err(|wrong| told(file, wrong))?;
        let last_mark = all.iter().rposition(Item::is_mark).unwrap_or(0);
        names.extend(all[..last_mark].iter().flat_map(Item::locals));
    }
    Ok(names)
}

impl<'a> Linker<'a> {
    /// The parts and this rule; says what is wrong with the rule, if anything.
    pub(super) fn new(rule: &'a str) -> Result<Self, String> {
        let mut linker =
            Linker { definitions: Vec::new(), locals: HashMap::new(), functions: HashMap::new() };
        for (file, source) in PARTS {
            for item in items(source).map_err(|wrong| told(file, wrong))? {
                linker.define(file, false, item);
            }
        }
        let taken: Vec<_> = linker.locals.keys().copied().chain(declared_by_operations()?).collect();
        let (file, rule) = file_of(rule);
        let of_rule = items(rule).map_err(|wrong| told(file, wrong))?;
        for item in of_rule.into_iter().filter(|item| !item.is_mark()) {
            linker.check(&item, &taken).map_err(|why| told(file, Wrong::new(item.line(), why)))?;
            linker.define(file, true, item);
        }
        let missing = REQUIRED.iter().chain(&FIELDS[..1]).find(|name| !linker.defines(name));
        missing.map_or(Ok(linker), |name| Err(format!("{file}: kind.{name} is missing")))
    }

    fn define(&mut self, file: &'a str, is_rule: bool, item: Item<'a>) {
        let at = self.definitions.len();
        self.locals.extend(item.locals().iter().map(|name| (*name, at)));
        self.functions.extend(item.of_kind().map(|name| (name, at)));
        self.definitions.push(Definition { file, is_rule, item });
    }

    /// Refuses what a rule may not do outside of its functions.
    fn check(&self, item: &Item<'a>, taken: &[&str]) -> Result<(), String> {
        match &item.defines {
            Defines::Nothing => {
                Err("outside of its functions a rule may only declare: `local …`, `function \
                                     kind.…` or `kind.… = …`"
                    .into())
            }
            Defines::Kind(name) if self.defines(name) => Err(format!("kind.{name} is defined twice")),
            Defines::Kind(name) => {
                let is_function = REQUIRED.contains(name) || OPTIONAL.contains(name);
                let is_field = FIELDS.contains(name) && !item.is_function;
                let known = is_function || is_field;
                if known {
                    Ok(())
                } else {
                    Err(format!("kind.{name} is not something that a rule may define"))
                }
            }
            Defines::Locals(names) => match names.iter().find(|name| taken.contains(name)) {
                Some(name) => Err(format!("a rule may not call a local {name}: the operations do")),
                None => match names.iter().find(|name| self.locals.contains_key(*name)) {
                    Some(name) => Err(format!("the local {name} is declared twice")),
                    None => Ok(()),
                },
            },
        }
    }

    /// Whether there is a `kind.<name>`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// An operation with all that it needs.
    ///
    /// What follows its second mark stands in a function of its own, and likewise with each later one. A closure has
    /// what the function around it has as an upvalue at once, but searches for a local of that function among all
    /// that closures use: that search was up to a tenth of a script's time.
    pub(super) fn link(&self, (file, source): File) -> Result<Lines, String> {
        let read = |source| tokens(source).map_err(|wrong| told(file, wrong));
        let (all, opens, closes) = (read(source)?, read("return (function()")?, read("end)()")?);
        let name = file.rsplit('/').next().and_then(|name| name.strip_suffix(".lua")).unwrap_or(file);
        let (mut lines, mut there) = (Lines::default(), vec![false; self.definitions.len()]);
        let pieces = || all.chunk_by(|_, next| next.is != Is::Mark);
        for (i, piece) in pieces().enumerate() {
            if i > 0 {
                lines.add(file, false, name, &opens);
            }
            if piece.first().is_some_and(|mark| mark.is == Is::Mark) {
                self.add_what_is_needed(&piece[1..], &mut there, &mut lines);
            }
            lines.add(file, false, name, piece);
        }
        for _ in 1..pieces().count() {
            lines.add(file, false, name, &closes);
        }
        Ok(lines)
    }

    /// Adds what this code needs and is not there yet.
    fn add_what_is_needed(&self, code: &[Token<'_>], there: &mut [bool], lines: &mut Lines) {
        let mut wanted = vec![false; there.len()];
        let mut open: Vec<usize> = needs(code).into_iter().flat_map(|need| self.find(need, None)).collect();
        while let Some(at) = open.pop() {
            if !(wanted[at] || there[at]) {
                wanted[at] = true;
                let needs = &self.definitions[at].item.needs;
                open.extend(needs.iter().flat_map(|need| self.find(*need, Some(at))));
            }
        }
        for (at, Definition { file, is_rule, item }) in self.definitions.iter().enumerate() {
            if wanted[at] {
                there[at] = true;
                lines.add(file, *is_rule, &item.label(), &item.tokens);
            }
        }
    }

    /// The definitions that the one at `by` may mean by this, or an operation.
    fn find(&self, need: Need<'_>, by: Option<usize>) -> Vec<usize> {
        match need {
            Need::WholeKind => self.functions.values().copied().collect(),
            Need::Kind(name) => self.functions.get(name).copied().into_iter().collect(),
            Need::Local(name) => {
                let found = self.locals.get(name).copied();
                // It sees what stands before it, and a rule only what it is given.
                let may = |at: usize, by: usize| {
                    let is_rule = |at: usize| self.definitions[at].is_rule;
                    at <= by && (!is_rule(by) || is_rule(at) || GIVEN.contains(&name))
                };
                found.filter(|at| by.is_none_or(|by| may(*at, by))).into_iter().collect()
            }
        }
    }
}

/// `file` with whole operations in it, each in the place of the mark with its name.
pub(super) fn around<'a>((file, source): File, operation: impl Fn(&str) -> &'a Lines) -> Lines {
    let mut lines = Lines::default();
    // That it can be read is tested.
    let all = tokens(source).unwrap_or_default();
    for piece in all.chunk_by(|_, next| next.is != Is::Mark) {
        if let Some(mark) = piece.first().filter(|mark| mark.is == Is::Mark) {
            lines.append(operation(mark.text.trim_start_matches("--@").trim()));
        }
        lines.add(file, false, "all", piece);
    }
    lines
}
