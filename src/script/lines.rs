//! Maps the lines of a composed script to their source, so that an error from Redis can be reported in its
//! author's terms.

use super::reader::{Is, Token};

/// A line of the composed script.
#[derive(Clone, Copy, Debug)]
struct ScriptLine {
    file: u16,
    /// The line in the file, counted from 1.
    line: u32,
    function: u16,
}

/// A script while it is composed, and its line table.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    pub(super) source: String,
    lines: Vec<ScriptLine>,
    files: Vec<SourceFile>,
    functions: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceFile {
    name: String,
    /// Whether the file is a kind's rule.
    is_rule: bool,
}

/// Where an error comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `kind.load (lua/simple.lua:6)`
    pub(crate) place: String,
    /// Whether the error is in a kind's rule.
    pub(crate) is_rule: bool,
}

fn index_of<T: PartialEq>(all: &mut Vec<T>, it: T) -> u16 {
    let at = all.iter().position(|known| *known == it).unwrap_or_else(|| {
        all.push(it);
        all.len() - 1
    });
    at as u16
}

impl Lines {
    /// Adds these tokens of the file `name`, with the same line breaks.
    pub(super) fn add(&mut self, name: &str, is_rule: bool, function: &str, tokens: &[Token<'_>]) {
        let file = index_of(&mut self.files, SourceFile { name: name.to_owned(), is_rule });
        let function = index_of(&mut self.functions, function.to_owned());
        let mut at = None;
        for token in tokens.iter().filter(|token| token.is != Is::Mark) {
            if at != Some(token.line) {
                if !self.source.is_empty() {
                    self.source.push('\n');
                }
                self.lines.push(ScriptLine { file, line: token.line, function });
            } else if !token.joined {
                self.source.push(' ');
            }
            self.source.push_str(token.text);
            // A string may span several lines.
            let more = token.text.matches('\n').count() as u32;
            self.lines.extend((1..=more).map(|n| ScriptLine { file, line: token.line + n, function }));
            at = Some(token.line + more);
        }
    }

    /// Appends another script unchanged.
    pub(super) fn append(&mut self, other: &Lines) {
        if !self.source.is_empty() {
            self.source.push('\n');
        }
        self.source.push_str(&other.source);
        for ScriptLine { file, line, function } in &other.lines {
            let file = index_of(&mut self.files, other.files[*file as usize].clone());
            let function = index_of(&mut self.functions, other.functions[*function as usize].clone());
            self.lines.push(ScriptLine { file, line: *line, function });
        }
    }

    /// Returns where line `n` of the script comes from.
    pub(super) fn origin(&self, n: usize) -> Option<Origin> {
        let ScriptLine { file, line, function } = self.lines.get(n.checked_sub(1)?)?;
        let (file, function) = (self.files.get(*file as usize)?, self.functions.get(*function as usize)?);
        let place = format!("{function} ({}:{line})", file.name);
        Some(Origin { place, is_rule: file.is_rule })
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
