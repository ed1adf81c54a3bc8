//! From Lua parts to a script that Redis knows by its SHA1.
//!
//! An operation (`lua/lib/acquire.lua` and the files beside it) names what it is made of in lines like `--@
//! prelude clock kind:try_acquire`: a snippet of `lua/lib/`, some functions of the kind's rule
//! (`kind:try_acquire,refuse`), or all that are still missing (`kind`). The parts come in that order, each
//! once. So an operation can take its fast path before the functions that only the slow path needs are built:
//! Lua pays for a closure when it reaches it, and Redis runs the whole script anew for each call.

use std::collections::HashSet;
use std::sync::OnceLock;

/// The operations over one kind's rule.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) leave: Script,
    pub(crate) renew: Script,
    pub(crate) inspect: Script,
    /// Of a kind whose users update its state.
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
}

impl Script {
    /// A script as it is: one that is not an operation over a rule.
    pub(crate) fn plain(source: &str) -> Self {
        Script { source: source.to_owned(), sha: redis::Script::new(source).get_hash().to_owned() }
    }

    /// One of these lines, without what only its reader needs.
    fn made_of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let lines = lines.into_iter().map(str::trim);
        let source =
            lines.filter(|line| !line.is_empty() && !line.starts_with("--")).collect::<Vec<_>>().join("\n");
        Script::plain(&source)
    }
}

const SNIPPETS: [(&str, &str); 6] = [
    ("prelude", include_str!("../lua/lib/prelude.lua")),
    ("clock", include_str!("../lua/lib/clock.lua")),
    ("foreign", include_str!("../lua/lib/foreign.lua")),
    ("queue", include_str!("../lua/lib/queue.lua")),
    ("join", include_str!("../lua/lib/join.lua")),
    ("room", include_str!("../lua/lib/room.lua")),
];

impl Scripts {
    /// Composes the operations over `rule`; an error text says what is wrong with the rule.
    pub(crate) fn of(rule: &str) -> Result<Self, String> {
        let rule = Rule::parse(rule)?;
        let where_there_is =
            |function, operation| rule.defines(function).then(|| rule.compose(operation)).transpose();
        Ok(Scripts {
            acquire: rule.compose(include_str!("../lua/lib/acquire.lua"))?,
            leave: rule.compose(include_str!("../lua/lib/leave.lua"))?,
            renew: rule.compose(include_str!("../lua/lib/renew.lua"))?,
            inspect: rule.compose(include_str!("../lua/lib/inspect.lua"))?,
            change: where_there_is("update", include_str!("../lua/lib/change.lua"))?,
            adopt: where_there_is("transfer", include_str!("../lua/lib/adopt.lua"))?,
            all: OnceLock::new(),
        })
    }

    /// Composes the operations of waiters for a condition of a lock with this rule: each in the place of the
    /// one that it replaces.
    pub(crate) fn of_conditions(rule: &str) -> Result<Self, String> {
        let rule = Rule::parse(rule)?;
        Ok(Scripts {
            acquire: rule.compose(include_str!("../lua/lib/await.lua"))?,
            leave: rule.compose(include_str!("../lua/lib/quit.lua"))?,
            renew: rule.compose(include_str!("../lua/lib/renew.lua"))?,
            inspect: rule.compose(include_str!("../lua/lib/inspect.lua"))?,
            change: Some(rule.compose(include_str!("../lua/lib/signal.lua"))?),
            adopt: None,
            all: OnceLock::new(),
        })
    }

    /// Acquire or leave of several locks with this rule.
    pub(crate) fn all(&self) -> &Script {
        self.all.get_or_init(|| {
            let lines = include_str!("../lua/lib/all.lua").lines();
            let with_parts = lines.flat_map(|line| match line {
                "--@ acquire" => self.acquire.source.lines().collect(),
                "--@ leave" => self.leave.source.lines().collect(),
                line => vec![line],
            });
            Script::made_of(with_parts)
        })
    }
}

/// A kind's Lua file, taken apart: its functions by name, and what is outside them.
struct Rule<'a> {
    head: Vec<&'a str>,
    functions: Vec<(&'a str, Vec<&'a str>)>,
}

/// What every rule must define.
const REQUIRED: [&str; 6] = ["load", "try_acquire", "release", "renew", "next_expiry", "holders"];
/// What it may define.
const OPTIONAL: [&str; 11] = [
    "reject",
    "class",
    "can_barge",
    "is_full",
    "on_leave",
    "last",
    "on_wait",
    "describe",
    "update",
    "transfer",
    "more",
];

/// What the operations and their parts call their own variables. They are between a rule's head and some of
/// its functions, which would see them instead of the rule's.
const RESERVED: [&str; 37] = [
    "w",
    "fetch",
    "was_inside",
    "was_last",
    "first",
    "fmt",
    "CLASS",
    "waiting",
    "silent",
    "steadily",
    "comes_back",
    "dead",
    "lifetime",
    "drop",
    "tombstone",
    "tell",
    "rest",
    "carried",
    "carry_on",
    "admit_waiters",
    "heard",
    "has_tombstone",
    "last",
    "enqueue",
    "busy",
    "try",
    "share",
    "join",
    "signal",
    "pass_on",
    "pass_lapsed",
    "after",
    "behind_all",
    "entrust",
    "outlive",
    "stay",
    "behind",
];

impl<'a> Rule<'a> {
    /// A function of the rule begins at the left margin with `function kind.name(` and ends at
    /// the left margin with `end`; everything else is shared by all of them.
    fn parse(source: &'a str) -> Result<Self, String> {
        let mut rule = Rule { head: Vec::new(), functions: Vec::new() };
        let mut inside = false;
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("function kind.") {
                let name = rest.split('(').next().unwrap_or_default();
                if inside || !(REQUIRED.contains(&name) || OPTIONAL.contains(&name)) {
                    return Err(format!("not a function that a rule may define here: {line}"));
                }
                rule.functions.push((name, Vec::new()));
                inside = true;
            }
            match rule.functions.last_mut().filter(|_| inside) {
                Some((_, body)) => body.push(line),
                None => rule.head.push(line),
            }
            inside &= line != "end";
        }
        if inside {
            return Err("a function of the rule does not end with `end` at the left margin".into());
        }
        let declares = |line: &str, name: &str| {
            let names =
                line.trim_start().strip_prefix("local ").map(|l| l.split(['=', '-']).next().unwrap_or(l));
            names.is_some_and(|names| names.split(',').any(|n| n.trim() == name))
        };
        if let Some(name) = RESERVED.iter().find(|name| rule.head.iter().any(|line| declares(line, name))) {
            return Err(format!("a rule may not call a variable of its own {name}: the operations do"));
        }
        match REQUIRED.iter().find(|name| !rule.defines(name)) {
            Some(name) => Err(format!("the rule does not define kind.{name}")),
            None => Ok(rule),
        }
    }

    fn defines(&self, name: &str) -> bool {
        self.functions.iter().any(|(n, _)| *n == name)
    }

    fn compose(&self, operation: &str) -> Result<Script, String> {
        let mut lines = Vec::new();
        let mut done = HashSet::new();
        for line in operation.lines() {
            let Some(parts) = line.strip_prefix("--@ ") else {
                lines.push(line);
                continue;
            };
            for part in parts.split(' ') {
                let (part, names) = part.split_once(':').unwrap_or((part, ""));
                if part == "kind" {
                    if done.insert("kind") {
                        lines.extend(&self.head);
                    }
                    for (name, body) in &self.functions {
                        let wanted = names.is_empty() || names.split(',').any(|n| n == *name);
                        if wanted && done.insert(name) {
                            lines.extend(body);
                        }
                    }
                } else {
                    let (_, text) = SNIPPETS
                        .iter()
                        .find(|(name, _)| *name == part)
                        .ok_or_else(|| format!("no such part: {part}"))?;
                    lines.extend(text.lines());
                }
            }
        }
        Ok(Script::made_of(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = include_str!("../lua/simple.lua");

    #[test]
    fn each_function_of_the_rule_is_there_once() {
        let (scripts, conditions) = (Scripts::of(RULE).unwrap(), Scripts::of_conditions(RULE).unwrap());
        let all = [&scripts.acquire, &scripts.leave, &scripts.renew, &scripts.inspect];
        for script in
            all.into_iter().chain([&conditions.acquire, &conditions.leave]).chain(&conditions.change)
        {
            for name in REQUIRED {
                let n = script.source.matches(&format!("function kind.{name}(")).count();
                let used = script.source.matches(&format!("kind.{name}(")).count() > n;
                assert!(n == 1 || (n == 0 && !used), "{name} stands {n} times");
            }
            assert!(!script.source.contains("--@"));
        }
    }

    #[test]
    fn the_short_way_comes_before_the_queue() {
        let acquire = Scripts::of(RULE).unwrap().acquire.source;
        let at = |text: &str| acquire.find(text).unwrap();
        assert!(at("function kind.try_acquire") < at("EXISTS") && at("EXISTS") < at("function kind.load"));
    }

    #[test]
    fn what_a_rule_uses_is_in_every_script_that_has_it() {
        let rules = [
            RULE,
            include_str!("../lua/reentrant.lua"),
            include_str!("../lua/read_write.lua"),
            include_str!("../lua/semaphore.lua"),
            include_str!("../lua/stock.lua"),
            include_str!("../lua/latch.lua"),
            include_str!("../lua/barrier.lua"),
            include_str!("../examples/own_kind.lua"),
        ];
        for scripts in rules.map(|rule| Scripts::of(rule).unwrap()) {
            let always = [&scripts.acquire, &scripts.leave, &scripts.renew, &scripts.inspect];
            for script in always.into_iter().chain(&scripts.change).chain(&scripts.adopt) {
                for given in ["now", "number", "foreign_key"] {
                    let used = script.source.contains(&format!(" {given}()"));
                    let there = script.source.contains(&format!("local function {given}()"));
                    assert!(there || !used, "{given} is not in {}", script.source);
                }
            }
        }
    }

    #[test]
    fn a_rule_that_lacks_something_is_told_what() {
        let without = RULE.replace("function kind.next_expiry", "local function next_expiry");
        assert!(Scripts::of(&without).unwrap_err().contains("kind.next_expiry"));
        let open = RULE.trim_end().strip_suffix("end").unwrap();
        assert!(Scripts::of(open).unwrap_err().contains("left margin"));
        let taken = format!("local held, was_inside -- mine\n{RULE}");
        assert!(Scripts::of(&taken).unwrap_err().contains("was_inside"));
        let strange = format!("{RULE}\nfunction kind.lok(owner)\nend\n");
        assert!(Scripts::of(&strange).unwrap_err().contains("kind.lok"));
    }
}
