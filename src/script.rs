//! From Lua files to a script that Redis knows by its SHA1: a small linker.
//!
//! An operation (`lua/lib/acquire.lua` and its fellows) uses what the parts define that operations share
//! (`lua/lib/queue.lua` and its fellows) and what a kind's rule does. A line `--@ parts` in it stands for all
//! definitions that the code from there to the next such line needs, directly or not, and that are not there yet:
//! those of the parts first, then the rule's, each in the order of its file. So an operation takes its fast path
//! through before the functions are built that only the slow path needs, and never builds one that it cannot call:
//! Lua pays for a closure when it reaches it, and Redis runs the whole script anew for each call.
//!
//! Each line of the script is known by its file, its line there and its function: what Redis says of a script that
//! errs is [told in those terms](Script::blames).

mod files;
mod items;
mod lines;
mod link;
mod reader;

use std::sync::OnceLock;

use self::files::{AROUND, OF_CONDITIONS, OPERATIONS};
pub(crate) use self::lines::Origin;
use self::lines::{Lines, unwrapped};
use self::link::{Linker, around};

/// The operations over one kind's rule.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) leave: Script,
    pub(crate) renew: Script,
    pub(crate) inspect: Script,
    /// Of a kind whose users change its state.
    pub(crate) change: Option<Script>,
    /// Of a kind whose holds may be passed on by a receipt.
    pub(crate) adopt: Option<Script>,
    /// Made on first use.
    pub(crate) all: OnceLock<Script>,
}

/// A script's text and its name in Redis's cache.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) sha: String,
    /// Its lines, and where each comes from.
    lines: Lines,
}

impl Script {
    /// A script as it is: one that is no operation over a rule.
    pub(crate) fn plain(source: &str) -> Self {
        let sha = redis::Script::new(source).get_hash().to_owned();
        Script { source: source.to_owned(), sha, lines: Lines::default() }
    }

    fn of(lines: Lines) -> Self {
        let plain = Script::plain(&lines.source);
        Script { lines, ..plain }
    }

    /// Where this script erred, of which Redis said `said`, and what is wrong there, without what servers put
    /// around it.
    pub(crate) fn blames(&self, said: &str) -> Option<(Origin, String)> {
        let (line, words) = unwrapped(said);
        let origin = self.lines.origin(line?)?;
        // A compiler's words may name another line.
        let other = words.split_once(" at line ").and_then(|(before, rest)| {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let other = self.lines.origin(rest[..digits].parse().ok()?)?;
            Some(format!("{before} at {}{}", other.place, &rest[digits..]))
        });
        Some((origin, other.unwrap_or_else(|| words.to_owned())))
    }
}

impl Scripts {
    /// Composes the operations over `rule`; says what is wrong with the rule, if anything.
    pub(crate) fn of(rule: &str) -> Result<Self, String> {
        let [acquire, leave, renew, inspect, change, adopt] = OPERATIONS;
        let linker = Linker::new(rule)?;
        let where_there_is = |function, operation| {
            linker.defines(function).then(|| linker.link(operation).map(Script::of)).transpose()
        };
        Ok(Scripts {
            acquire: Script::of(linker.link(acquire)?),
            leave: Script::of(linker.link(leave)?),
            renew: Script::of(linker.link(renew)?),
            inspect: Script::of(linker.link(inspect)?),
            change: where_there_is("update", change)?,
            adopt: where_there_is("transfer", adopt)?,
            all: OnceLock::new(),
        })
    }

    /// Composes the operations of waiters for a condition of a lock with this rule: each in the
    /// place of the one that it stands for.
    pub(crate) fn of_conditions(rule: &str) -> Result<Self, String> {
        let [_, _, renew, inspect, ..] = OPERATIONS;
        let [acquire, leave, signal] = OF_CONDITIONS;
        let linker = Linker::new(rule)?;
        Ok(Scripts {
            acquire: Script::of(linker.link(acquire)?),
            leave: Script::of(linker.link(leave)?),
            renew: Script::of(linker.link(renew)?),
            inspect: Script::of(linker.link(inspect)?),
            change: Some(Script::of(linker.link(signal)?)),
            adopt: None,
            all: OnceLock::new(),
        })
    }

    /// Acquire or leave of several locks with this rule.
    pub(crate) fn all(&self) -> &Script {
        self.all.get_or_init(|| {
            let [all] = AROUND;
            let (acquire, leave) = (&self.acquire, &self.leave);
            Script::of(around(all, |name| if name == "leave" { &leave.lines } else { &acquire.lines }))
        })
    }
}

#[cfg(test)]
#[path = "../verify/script.rs"]
mod tests;
