//! Composes a script: an operation, and the definitions that it needs from the parts and from a kind's rule. Maps its
//! lines to their source, so that an error from Redis can be reported in its author's terms.

use std::collections::HashMap;
use std::sync::Arc;

use super::items::{Is, Item, Name, Token, Wrong, items, needs, tokens};

/// A Lua file of this library: its path and its text.
pub(super) type File = (&'static str, &'static str);

/// Files of `lua/lib/`.
macro_rules! lib {
    ($($name:literal)*) => {
        [$((concat!("lua/lib/", $name, ".lua"), include_str!(concat!("../../lua/lib/", $name, ".lua")))),*]
    };
}

/// What the operations share. Each file sees the definitions of those before it.
pub(super) const PARTS: [File; 7] = lib!("prelude" "clock" "foreign" "queue" "join" "condition" "turn");
/// Acquire, leave, renew, inspect, change, adopt.
pub(super) const OPERATIONS: [File; 6] = lib!("acquire" "leave" "renew" "inspect" "update" "adopt");
/// The operations for a condition's waiters that take the place of acquire, leave and change.
pub(super) const OF_CONDITIONS: [File; 3] = lib!("await" "quit" "signal");
/// The script that wraps an operation to run it on several locks.
pub(super) const AROUND: [File; 1] = lib!("all");

/// The functions that every rule must define.
pub(super) const REQUIRED: [&str; 6] = ["load", "try_acquire", "release", "renew", "next_expiry", "holders"];
/// The functions that a rule may define: with any of the first five it has no straight path.
#[rustfmt::skip]
pub(super) const OPTIONAL: [&str; 15] = ["reject", "class", "can_barge", "on_wait", "on_busy", "is_full", "on_leave",
    "last", "inspect", "update", "transfer", "more", "holder", "occupant", "install"];
/// The fields of a rule; the first one is required.
const FIELDS: [&str; 2] = ["tag", "whole"];

/// The names that a rule may use anywhere: all other names of the parts are their own.
#[rustfmt::skip]
pub(super) const GIVEN: [&str; 17] = ["kind", "K", "F", "call", "now", "number", "foreign_key", "fetch", "fmt",
    "waiting", "silent", "dead", "deaf", "drop", "tell", "their_turn", "announce_free"];

/// The names that operations declare before their last mark. A rule's functions may be inserted behind such a
/// declaration, and would see it in place of a local of their own with the same name. Listed, as nine files would have
/// to be read for each rule; a test compares.
pub(super) const DECLARED: &str = "alone first from full left n rank there value w was_inside was_last what";

/// The beginning of a rule's text that names its file.
const FILE_IS: &str = "--@ file ";

/// A definition, and the file that contains it.
struct Definition<'a> {
    file: &'a str,
    is_rule: bool,
    item: Item<'a>,
}

/// Code of a straight path, and the definition that it is from, if it is not the operation's.
type Straight<'a> = (Option<&'a Definition<'a>>, &'a [Token<'a>]);

/// All definitions that an operation may need, in the order in which they may appear.
pub(super) struct Linker<'a> {
    definitions: Vec<Definition<'a>>,
    names: HashMap<Name<'a>, usize>,
}

fn located(file: &str, wrong: Wrong) -> String {
    format!("{file}:{}: {}", wrong.line, wrong.why)
}

/// Returns the file that a rule's text names, and the rest of the text.
fn file_of(rule: &str) -> (&str, &str) {
    let named = rule.strip_prefix(FILE_IS).and_then(|named| named.split_once('\n'));
    let (file, rule) = named.unwrap_or(("rule", rule));
    // More often than not, the path within the repository.
    (file.trim_start_matches("../"), rule)
}

impl<'a> Linker<'a> {
    /// Reads the parts and this rule. The error says what is wrong with the rule.
    pub(super) fn new(rule: &'a str) -> Result<Self, String> {
        let mut linker = Linker { definitions: Vec::new(), names: HashMap::new() };
        for (file, source) in PARTS {
            for item in items(source).map_err(|wrong| located(file, wrong))? {
                linker.define(file, false, item);
            }
        }
        let (file, rule) = file_of(rule);
        let of_rule = items(rule).map_err(|wrong| located(file, wrong))?;
        for item in of_rule.into_iter().filter(|item| !item.is_mark()) {
            linker.check(&item).map_err(|why| located(file, Wrong::new(item.line(), why)))?;
            linker.define(file, true, item);
        }
        let missing = REQUIRED.iter().chain(&FIELDS[..1]).find(|name| !linker.defines(name));
        missing.map_or(Ok(linker), |name| Err(format!("{file}: kind.{name} is missing")))
    }

    fn define(&mut self, file: &'a str, is_rule: bool, item: Item<'a>) {
        let at = self.definitions.len();
        self.names.extend(item.defines.iter().map(|name| (*name, at)));
        self.definitions.push(Definition { file, is_rule, item });
    }

    /// Rejects what a rule may not do outside its functions.
    fn check(&self, item: &Item<'a>) -> Result<(), String> {
        if item.defines.is_empty() {
            let may = "`local …`, `function kind.…` or `kind.… = …`";
            return Err(format!("outside of its functions a rule may only declare: {may}"));
        }
        item.defines.iter().try_for_each(|name| {
            let before = self.names.get(name).map(|at| &self.definitions[*at]);
            let is_parts = before.is_some_and(|it| !it.is_rule);
            let may_be = |name| REQUIRED.contains(name) || OPTIONAL.contains(name);
            let is_field = |name| FIELDS.contains(name) && !item.is_function;
            Err(match name {
                Name::Local(name) if is_parts || DECLARED.split(' ').any(|it| it == *name) => {
                    format!("a rule may not call a local {name}: the operations do")
                }
                Name::Local(name) if before.is_some() => format!("the local {name} is declared twice"),
                Name::Kind(name) if before.is_some() => format!("kind.{name} is defined twice"),
                Name::Kind(name) if !(may_be(name) || is_field(name)) => {
                    format!("kind.{name} is not something that a rule may define")
                }
                _ => return Ok(()),
            })
        })
    }

    /// Whether there is a `kind.<name>`.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.names.contains_key(&Name::Kind(name))
    }

    /// Links an operation with all that it needs.
    ///
    /// The code of each `--@ parts` behind one that built functions is wrapped in a function of its own. A closure
    /// finds an upvalue of the enclosing function at once, but searches for a local of that function among all
    /// locals that closures use: that search took up to a tenth of a script's time.
    ///
    /// A straight path stands only where the rule's functions can take the place of its calls, and what is for all
    /// others (`--@ otherwise`) only where it does not.
    pub(super) fn link(&self, (file, source): File) -> Result<Lines, String> {
        let read = |source| tokens(source).map_err(|wrong| located(file, wrong));
        let (all, opens, closes) = (read(source)?, read("return (function()")?, read("end)()")?);
        let name = file.rsplit('/').next().and_then(|name| name.strip_suffix(".lua")).unwrap_or(file);
        let (mut lines, mut there) = (Lines::default(), vec![false; self.definitions.len()]);
        let (mut is_straight, mut open) = (false, 0);
        for piece in all.chunk_by(|_, next| next.is != Is::Mark) {
            let mark = piece.first().filter(|mark| mark.is == Is::Mark).map_or("", |mark| mark.text);
            match mark {
                "--@ straight" => {
                    let parts = self.straight(piece, &there);
                    is_straight = parts.is_some();
                    for (own, code) in parts.into_iter().flatten() {
                        let of = own.map_or((file, false), |own| (own.file, own.is_rule));
                        lines.add(of.0, of.1, name, code);
                    }
                }
                "--@ otherwise" if is_straight => {}
                _ => {
                    if self.definitions.iter().zip(&there).any(|(it, there)| *there && it.item.is_function) {
                        lines.add(file, false, name, &opens);
                        open += 1;
                    }
                    if !mark.is_empty() {
                        self.add_what_is_needed(&piece[1..], &mut there, &mut lines);
                    }
                    lines.add(file, false, name, piece);
                }
            }
        }
        (0..open).for_each(|_| lines.add(file, false, name, &closes));
        Ok(lines)
    }

    /// Returns the parts of a straight path, with what functions that are not there do, or return, in place of their
    /// calls. Nothing if the rule admits in its own way, or lacks one of them; if it has other parameters than stand in
    /// the call, or uses what is not there.
    fn straight<'t>(&'t self, mut code: &'t [Token<'t>], there: &[bool]) -> Option<Vec<Straight<'t>>> {
        let mut parts = Vec::new();
        let is_missing = |at: &usize| self.definitions[*at].item.is_function && !there[*at];
        let at = |name: Name<'_>| self.names.get(&name).copied();
        let called = |code: &[Token<'_>]| match code {
            [kind, _, name, ..] if kind.text == "kind" => Some(at(Name::Kind(name.text))),
            [name, open, ..] if open.text == "(" => at(Name::Local(name.text)).filter(is_missing).map(Some),
            _ => None,
        };
        while let Some((at, called)) = (0..code.len()).find_map(|at| Some((at, called(&code[at..])?))) {
            let own =
                &self.definitions[called.filter(|_| !OPTIONAL[..5].iter().any(|name| self.defines(name)))?];
            let head = 1 + code[at..].iter().position(|token| token.text == ")")?;
            let before = own.item.tokens.iter().position(|token| token.text == code[at].text)?;
            let (named, does) = own.item.tokens.split_at_checked(before + head)?;
            let same = named[before..].iter().zip(&code[at..]).all(|(one, other)| one.text == other.text);
            let is_there = |need| self.find(need, None).into_iter().all(|at| there[at]);
            (same && needs(does).into_iter().all(is_there)).then_some(())?;
            let returns = usize::from(does[0].text == "return");
            parts.extend([(None, &code[..at]), (Some(own), &does[returns..does.len() - 1])]);
            code = &code[at + head..];
        }
        parts.push((None, code));
        Some(parts)
    }

    /// Adds the definitions that this code needs and that are not there yet.
    fn add_what_is_needed(&self, code: &[Token<'_>], there: &mut [bool], lines: &mut Lines) {
        let mut needed = vec![false; there.len()];
        let mut open: Vec<usize> = needs(code).into_iter().flat_map(|need| self.find(need, None)).collect();
        while let Some(at) = open.pop() {
            if !(needed[at] || there[at]) {
                needed[at] = true;
                let needs = &self.definitions[at].item.needs;
                open.extend(needs.iter().flat_map(|need| self.find(*need, Some(at))));
            }
        }
        for (at, Definition { file, is_rule, item }) in self.definitions.iter().enumerate() {
            if needed[at] {
                there[at] = true;
                lines.add(file, *is_rule, &item.label(), &item.tokens);
            }
        }
    }

    /// Returns the definitions that the definition at `by` (an operation, if that is `None`) refers to with this
    /// name.
    fn find(&self, need: Name<'_>, by: Option<usize>) -> Vec<usize> {
        // A definition sees what comes before it, and a rule only the names that it may use.
        let may = |at: usize, by: usize| {
            let is_rule = |at: usize| self.definitions[at].is_rule;
            let Name::Local(name) = need else { return true };
            at <= by && (!is_rule(by) || is_rule(at) || GIVEN.contains(&name))
        };
        if need == Name::WholeKind {
            let all = self.names.iter().filter(|(name, _)| matches!(name, Name::Kind(_)));
            return all.map(|(_, at)| *at).collect();
        }
        let found = self.names.get(&need).copied();
        found.filter(|at| by.is_none_or(|by| may(*at, by))).into_iter().collect()
    }
}

/// Returns `file` with whole operations inserted, each in place of the mark with its name.
pub(super) fn around<'a>((file, source): File, operation: impl Fn(&str) -> &'a Lines) -> Lines {
    let mut lines = Lines::default();
    // A test checks that the file can be read.
    let all = tokens(source).unwrap_or_default();
    for piece in all.chunk_by(|_, next| next.is != Is::Mark) {
        if let Some(mark) = piece.first().filter(|mark| mark.is == Is::Mark) {
            lines.append(operation(mark.text.trim_start_matches("--@").trim()));
        }
        lines.add(file, false, "all", piece);
    }
    lines
}

/// A script while it is composed, and where each of its lines comes from.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    pub(super) source: String,
    /// Each with its line in the file, counted from 1.
    lines: Vec<(Arc<Place>, u32)>,
}

/// A function, and the file that it is in.
#[derive(Debug)]
struct Place {
    file: String,
    /// Whether the file is a kind's rule.
    is_rule: bool,
    function: String,
}

/// Where an error comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `kind.load (lua/simple.lua:6)`
    pub(crate) place: String,
    /// Whether the error is in a kind's rule.
    pub(crate) is_rule: bool,
}

impl Lines {
    /// Adds these tokens of the file `name`, with the same line breaks.
    pub(super) fn add(&mut self, name: &str, is_rule: bool, function: &str, tokens: &[Token<'_>]) {
        let place = Arc::new(Place { file: name.to_owned(), is_rule, function: function.to_owned() });
        let mut at = None;
        for token in tokens.iter().filter(|token| token.is != Is::Mark) {
            if at != Some(token.line) {
                if !self.source.is_empty() {
                    self.source.push('\n');
                }
                self.lines.push((place.clone(), token.line));
            } else if !token.joined {
                self.source.push(' ');
            }
            self.source.push_str(token.text);
            // A string may span several lines.
            let more = token.text.matches('\n').count() as u32;
            self.lines.extend((1..=more).map(|n| (place.clone(), token.line + n)));
            at = Some(token.line + more);
        }
    }

    /// Appends another script unchanged.
    pub(super) fn append(&mut self, other: &Lines) {
        if !self.source.is_empty() {
            self.source.push('\n');
        }
        self.source.push_str(&other.source);
        self.lines.extend_from_slice(&other.lines);
    }

    /// Returns where line `n` of the script comes from.
    pub(super) fn origin(&self, n: usize) -> Option<Origin> {
        let (place, line) = self.lines.get(n.checked_sub(1)?)?;
        let Place { file, is_rule, function } = &**place;
        Some(Origin { place: format!("{function} ({file}:{line})"), is_rule: *is_rule })
    }
}

/// Strips what servers put around the message of a failed script. Returns the line, if the reply names one,
/// and the message.
///
/// From 7.0 on a reply is `[user_script:<line>: ]<message> script: <sha>, on @user_script:<line>.`: messages
/// of Lua itself begin with the line, those of a command do not. Before 7.0 it is `Error running script (call
/// to f_<sha>): @user_script:<line>: [@user_script: <line>: -][user_script:<line>: ]<message>`; if the script
/// uses a global that does not exist, `@enable_strict_lua:<line>: ` comes first. If the script does not
/// compile, it is `Error compiling script (new function): user_script:<line>: <message>`.
pub(crate) fn unwrapped(error: &str) -> (Option<usize>, &str) {
    let (mut words, mut line) = (error, None);
    if words.starts_with("Error running script (") || words.starts_with("Error compiling script (") {
        words = words.split_once("): ").map_or(words, |(_, words)| words);
    }
    if let Some((before, tail)) = words.rsplit_once(" script: ")
        && let Some((_, at)) = tail.split_once("on @user_script:")
    {
        (words, line) = (before, at.trim_end_matches('.').parse().ok());
    }
    while let Some((n, rest)) = line_before(words) {
        words = rest;
        line = n.or(line);
    }
    (line, words.strip_prefix('-').unwrap_or(words))
}

/// Splits off a leading `user_script:<line>: ` or the like: returns the line, and the rest.
fn line_before(words: &str) -> Option<(Option<usize>, &str)> {
    let at = words.strip_prefix('@').unwrap_or(words);
    let (ours, at) = match at.strip_prefix("user_script:") {
        Some(at) => (true, at),
        None => (false, at.strip_prefix("enable_strict_lua:")?),
    };
    let (n, rest) = at.trim_start().split_once(": ")?;
    let n: usize = n.parse().ok()?;
    Some((ours.then_some(n), rest))
}

#[cfg(test)]
#[path = "../../verify/unit/script/lines.rs"]
mod tests;
