//! Links Lua files to a script that Redis knows by its SHA1.
//!
//! An operation (`lua/lib/acquire.lua` and the like) uses definitions of the parts that operations share
//! (`lua/lib/queue.lua` and the like) and of a kind's rule. A line `--@ parts` in it stands for all
//! definitions that the code from there to the next such line needs, directly or indirectly, and that are not
//! there yet: first those of the parts, then those of the rule, each in the order of its file. So an
//! operation takes its fast path before the functions are built that only the slow path needs, and never
//! builds one that it cannot call: Lua pays for a closure when it reaches it, and Redis runs the whole script
//! from scratch for each call.
//!
//! Each line of the script is mapped to its file, its line there and its function: if a script fails, its
//! error is [reported in those terms](Script::blames).

mod items;
mod link;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use self::link::{AROUND, File, Lines, Linker, OF_CONDITIONS, OPERATIONS, around};
pub(crate) use self::link::{Origin, unwrapped};

/// What was composed, by the process and the key: its clients share it. A forked process has its own.
static COMPOSED: Mutex<BTreeMap<(u32, TypeId), Arc<Scripts>>> = Mutex::new(BTreeMap::new());

/// The operations over the rule of one kind.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) leave: Script,
    pub(crate) renew: Script,
    pub(crate) inspect: Script,
    /// For a kind whose users update its state.
    pub(crate) update: Option<Script>,
    /// For a kind whose holds may be passed on by a receipt.
    pub(crate) adopt: Option<Script>,
    /// Composed on first use.
    pub(crate) all: OnceLock<Script>,
    /// The rule, and the operations for waiters on a condition of such a lock, composed on first use.
    rule: String,
    conditions: OnceLock<Result<Arc<Scripts>, String>>,
}

/// A script's text, and the beginning of its calls by SHA1, as Redis reads it: what comes before the keys.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) by_sha: String,
    /// Where each of its lines comes from.
    lines: Lines,
}

impl Script {
    /// A script as it is, which is not an operation over a rule.
    pub(crate) fn plain(source: &str) -> Self {
        let script = redis::Script::new(source);
        let by_sha = format!("$7\r\nEVALSHA\r\n$40\r\n{}\r\n", script.get_hash());
        Script { source: source.to_owned(), by_sha, lines: Lines::default() }
    }

    fn of(lines: Lines) -> Self {
        let plain = Script::plain(&lines.source);
        Script { lines, ..plain }
    }

    /// Returns where this script failed according to Redis's error `error`, and the message without what
    /// servers put around it.
    pub(crate) fn blames(&self, error: &str) -> Option<(Origin, String)> {
        let (line, words) = unwrapped(error);
        let origin = self.lines.origin(line?)?;
        // The message of the compiler may name another line.
        let other = words.split_once(" at line ").and_then(|(before, rest)| {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let other = self.lines.origin(rest[..digits].parse().ok()?)?;
            Some(format!("{before} at {}{}", other.place, &rest[digits..]))
        });
        Some((origin, other.unwrap_or_else(|| words.to_owned())))
    }
}

impl Scripts {
    /// What `compose` makes, or made for this key before. Waits for nobody: in a forked child, a thread that does not
    /// exist there may hold the mutex.
    pub(crate) fn shared<E>(key: TypeId, compose: impl FnOnce() -> Result<Self, E>) -> Result<Arc<Self>, E> {
        let key = (std::process::id(), key);
        if let Some(known) = COMPOSED.try_lock().ok().and_then(|all| all.get(&key).cloned()) {
            return Ok(known);
        }
        let made = Arc::new(compose()?);
        let _ = COMPOSED.try_lock().map(|mut all| all.insert(key, made.clone()));
        Ok(made)
    }

    /// Composes the operations over `rule`. The error says what is wrong with the rule.
    pub(crate) fn of(rule: &str) -> Result<Self, String> {
        let linker = Linker::new(rule)?;
        let [acquire, leave, .., update, adopt] = OPERATIONS;
        let defined = |(name, operation)| linker.defines(name).then_some(operation);
        let [update, adopt] = [("update", update), ("transfer", adopt)].map(defined);
        Scripts::linked(rule, &linker, [acquire, leave], update, adopt)
    }

    /// Composes the operations for waiters on a condition of a lock with this rule: each in the field of the
    /// operation whose place it takes.
    pub(crate) fn of_conditions(rule: &str) -> Result<Self, String> {
        let [acquire, leave, signal] = OF_CONDITIONS;
        Scripts::linked(rule, &Linker::new(rule)?, [acquire, leave], Some(signal), None)
    }

    /// Those for waiters on a condition of a lock with this rule.
    pub(crate) fn conditions(&self) -> Result<&Arc<Scripts>, &String> {
        self.conditions.get_or_init(|| Scripts::of_conditions(&self.rule).map(Arc::new)).as_ref()
    }

    fn linked(
        rule: &str,
        linker: &Linker<'_>,
        both: [File; 2],
        update: Option<File>,
        adopt: Option<File>,
    ) -> Result<Self, String> {
        let script = |operation| linker.link(operation).map(Script::of);
        Ok(Scripts {
            acquire: script(both[0])?,
            leave: script(both[1])?,
            renew: script(OPERATIONS[2])?,
            inspect: script(OPERATIONS[3])?,
            update: update.map(script).transpose()?,
            adopt: adopt.map(script).transpose()?,
            all: OnceLock::new(),
            rule: rule.to_owned(),
            conditions: OnceLock::new(),
        })
    }

    /// Acquire or leave, for several locks with this rule.
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
