//! Where the faults go in the sources, and what the sources become.

use std::ops::Range;
use std::path::Path;

use super::in_lua::{IN_LUA, InLua};
use super::in_rust::{IN_RUST, InRust};

/// Where each script is created, and what replaces that.
const SCRIPTS: (&str, &str) = (
    "pub(crate) fn plain(source: &str) -> Self {",
    "pub(crate) fn plain(source: &str) -> Self { let source = &*crate::planted::lua(source);",
);

/// Returns everything that gets replaced, in a readable form.
pub(super) fn all() -> Vec<String> {
    let in_rust = IN_RUST.iter().map(|at| format!("{}: {}", at.fault, at.code));
    let in_lua = IN_LUA.iter().map(|at| format!("{}: {}", at.fault, at.text));
    in_rust.chain(in_lua).chain([SCRIPTS.0.to_owned()]).collect()
}

/// Returns the mark of the `i`th place in Lua until a script is created. Lua readers take it for a name.
pub(super) fn mark(i: usize) -> String {
    format!("PLANTED_{i}_")
}

/// Returns the text of this file with all faults that belong in it; counts in `found` how often each of
/// [`all`] occurs.
pub(super) fn with_faults(path: &Path, mut text: String, found: &mut [usize]) -> String {
    let (in_rust, others) = found.split_at_mut(IN_RUST.len());
    for (at, found) in IN_RUST.iter().zip(in_rust).filter(|(at, _)| at.may_be_in(path)) {
        for span in spans(&text, at.code) {
            let in_force = format!("crate::planted::is({:?})", at.fault);
            text.replace_range(span, &at.becomes.replace("PLANTED", &in_force));
            *found += 1;
        }
    }
    let mut replace = |from: &str, to: &str, found: &mut usize| {
        *found += text.matches(from).count();
        text = text.replace(from, to);
    };
    for (i, at) in IN_LUA.iter().enumerate().filter(|(_, at)| at.is_in(path)) {
        // The text stays until then, so that Lua readers still find their way.
        let (text, mark) = (at.text, mark(i));
        let goes_on = at.becomes.starts_with(text);
        let marked = if goes_on { format!("{text} {mark}") } else { format!("{mark} {}", text.trim_start()) };
        replace(text, &marked, &mut others[i]);
    }
    if path.starts_with("src") {
        replace(SCRIPTS.0, SCRIPTS.1, &mut others[IN_LUA.len()]);
    }
    text
}

impl InLua {
    fn is_in(&self, path: &Path) -> bool {
        path == Path::new("lua").join(self.file) || path == Path::new(self.file)
    }
}

impl InRust {
    fn may_be_in(&self, path: &Path) -> bool {
        path.extension().is_some_and(|it| it == "rs")
            && path.starts_with(self.folder)
            && !path.starts_with("verify/planted")
    }
}

/// Returns all places of `code` in `text`, however it is broken into lines.
fn spans(text: &str, code: &str) -> Vec<Range<usize>> {
    let ink = |c: &char| !c.is_whitespace();
    let (code, inked): (String, String) =
        (code.chars().filter(ink).collect(), text.chars().filter(ink).collect());
    let at = |n: usize| text.char_indices().filter(|(_, c)| ink(c)).nth(n).map_or(text.len(), |(at, _)| at);
    let count = |part: &str| part.chars().count();
    let found = inked.match_indices(&code).map(|(before, _)| count(&inked[..before]));
    // The end is that of the code itself, not the start of what follows it.
    found
        .map(|first| at(first)..at(first + count(&code) - 1) + code.chars().last().map_or(0, char::len_utf8))
        .collect()
}
