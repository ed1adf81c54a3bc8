//! `watch`: prints a line whenever a holder, or the number of waiters, changes.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use redis_concurrent::Client;
use redis_concurrent::admin::Inspection;
use serde_json::json;

use crate::args::{Global, Watch};
use crate::connect::Servers;
use crate::exit::Failure;
use crate::say::{self, Say};
use crate::shown;

/// What is compared between two looks.
#[derive(Clone, PartialEq)]
struct Seen {
    /// The owner, and the two ways to show it.
    holders: Vec<(String, (String, String))>,
    waiting: usize,
    since: Option<SystemTime>,
}

impl Seen {
    fn of(found: &Inspection) -> Seen {
        let holders =
            found.holders.iter().map(|it| (it.owner.clone(), (shown::holder(it), shown::holder_first(it))));
        let holders = holders.collect();
        Seen { holders, waiting: shown::waiting(found), since: found.holders.first().and_then(|it| it.since) }
    }

    fn named(&self, shown: impl Fn(&(String, String)) -> &String) -> String {
        let names: Vec<_> = self.holders.iter().map(|(_, names)| shown(names).as_str()).collect();
        if names.is_empty() { "-".to_owned() } else { names.join(" + ") }
    }
}

/// Polls until a signal ends the program.
pub fn watch(global: &Global, args: &Watch, say: Say) -> Result<ExitCode, Failure> {
    let client = Servers::of(global)?.connect()?;
    let mut before: Option<BTreeMap<String, Seen>> = None;
    loop {
        let began = Instant::now();
        match seen(&client, args) {
            Ok(now) => {
                if let Some(before) = &before {
                    tell(global, args.wide, before, &now)?;
                } else {
                    say.detail(format!("{} locks", now.len()));
                }
                before = Some(now);
            }
            // The server may come back: the next state is then compared with the last one seen.
            Err(error) if error.is_unavailable() => say.note(format!("{error:#}")),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(args.every.max(Duration::from_millis(10)).saturating_sub(began.elapsed()));
    }
}

fn seen(client: &Client, args: &Watch) -> Result<BTreeMap<String, Seen>, redis_concurrent::Error> {
    if args.names.is_empty() {
        return client.list().map(|it| it.map(|found| (found.name.clone(), Seen::of(&found)))).collect();
    }
    let found = args.names.iter().filter_map(|name| client.inspect(name).transpose());
    found.map(|it| it.map(|found| (found.name.clone(), Seen::of(&found)))).collect()
}

fn tell(
    global: &Global,
    wide: bool,
    before: &BTreeMap<String, Seen>,
    now: &BTreeMap<String, Seen>,
) -> Result<(), Failure> {
    let nothing = Seen { holders: Vec::new(), waiting: 0, since: None };
    let mut names: Vec<_> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (from, to) = (before.get(name).unwrap_or(&nothing), now.get(name).unwrap_or(&nothing));
        if from == to {
            continue;
        }
        let at = SystemTime::now();
        let moved = from.holders != to.holders;
        let held = from.since.filter(|_| moved).map(|it| at.duration_since(it).unwrap_or_default());
        if global.json {
            let named = |seen: &Seen| seen.named(|(label_first, _)| label_first);
            say::objects([json!({
                "time": shown::time(at), "name": name, "from": named(from), "to": named(to),
                "held_s": held.map(shown::seconds), "waiting": to.waiting,
            })])?;
        } else {
            let held = held.map_or(String::new(), |it| format!("  held {}", shown::span(it)));
            let waiting = to.waiting;
            let line = |from: &str, to: &str| {
                format!("{}  {name}  {from} -> {to}{held}  waiting {waiting}", shown::time(at))
            };
            let [from, to] = [from, to].map(|seen| seen.named(|(_, label_last)| label_last));
            let width = say::terminal_width().filter(|_| !wide).unwrap_or(usize::MAX);
            // Half of what the rest of the line leaves.
            let left = width.saturating_sub(line("", "").chars().count()) / 2;
            say::answer(line(&say::shortened(&from, left.max(12)), &say::shortened(&to, left.max(12))))?;
        }
    }
    Ok(())
}
