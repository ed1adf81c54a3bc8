//! Histories as lines of JSON, for whoever wants to check them: `docs/design/check-it-yourself.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failover::check::Failover;
use crate::failover::worker::{PARTIES, PERMITS};
use crate::history::log::{Event, Line, Who};

/// Writes what was written down in a run: to the file that `HISTORY` names, or to `target/histories/`.
pub fn write(run: &str, lines: &[Line], failovers: &[Failover], reentrant: impl Fn(&str) -> bool) {
    let path = std::env::var("HISTORY").map_or_else(
        |_| PathBuf::from(format!("{}/target/histories/{run}.jsonl", env!("CARGO_MANIFEST_DIR"))),
        PathBuf::from,
    );
    let mut text = Vec::new();
    for line in json(lines, failovers, reentrant) {
        serde_json::to_writer(&mut text, &line).unwrap();
        text.push(b'\n');
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    println!("the history is in {}", path.display());
}

fn json(lines: &[Line], failovers: &[Failover], reentrant: impl Fn(&str) -> bool) -> Vec<Value> {
    let (mut objects, mut of) = (serde_json::Map::new(), BTreeMap::<Who, &str>::new());
    let (mut events, mut tokens) = (Vec::new(), BTreeMap::new());
    for it in failovers {
        let (from, until) = it.unsettled;
        events.push(
            json!({"event": "failover", "at": from, "until": until, "parts": it.parts, "what": it.what}),
        );
    }
    for line in lines {
        let Line { at, who: Who { process, thread, round }, event } = line;
        if let Event::Lost { lock, why } = event {
            events.push(json!({"event": "lost", "at": at, "process": process, "object": lock, "why": why}));
        }
        if let Event::Called { lock, form } = event
            // Of conditions only what they do to their locks is checked.
            && !["await", "signal"].contains(&&**form)
        {
            of.insert(line.who, lock);
        }
        let Some(name) = of.get(&line.who) else { continue };
        let (object, mode) = name.split_once('/').unwrap_or((name, ""));
        let described = objects.entry(object).or_insert_with(|| describe(object, reentrant(object)));
        let event = if let Event::Again(inner) = event { inner } else { event };
        let kind = described["kind"].as_str().unwrap();
        let Some(mut entry) = say(event, *at, kind) else { continue };
        let more = json!({"at": at, "process": process, "thread": thread, "round": round, "object": object});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if !mode.is_empty() {
            entry["mode"] = mode.into();
        }
        match event {
            Event::Held { token, .. } => drop(tokens.insert(line.who, token)),
            // The answer is the attempt's token.
            Event::Release { .. } if kind == "once" => {
                entry["answer"] = tokens[&line.who].to_string().into();
            }
            _ => {}
        }
        events.push(entry);
    }
    let head = json!({"format": "redis-concurrent history", "version": 1, "objects": objects});
    [vec![head], events].concat()
}

/// What the first line says of an object.
fn describe(object: &str, reentrant: bool) -> Value {
    match object {
        "rw" => json!({"kind": "read_write"}),
        "s" => json!({"kind": "semaphore", "permits": PERMITS}),
        "meet" => json!({"kind": "barrier", "parties": PARTIES}),
        _ if object.starts_with("once") => json!({"kind": "once"}),
        _ if reentrant => json!({"kind": "reentrant"}),
        _ => json!({"kind": "fenced"}),
    }
}

/// What is particular to an event of an object of this kind.
fn say(event: &Event, at: u64, kind: &str) -> Option<Value> {
    let op = if kind == "barrier" { "await" } else { "acquire" };
    Some(match event {
        Event::Called { form, .. } => json!({"event": "call", "op": op, "form": form}),
        Event::Held { token, left } => {
            let mut held = json!({"event": "return", "op": op, "outcome": "ok"});
            // Shared holds have none.
            if *token > 0 {
                held["token"] = (*token).into();
            }
            promise(held, at, *left)
        }
        Event::Ended { how } => {
            let (outcome, answer) = match how.split_once(' ').unwrap_or((how, "")) {
                ("ok", _) => ("ok", ""),
                ("answered", answer) => ("answered", answer),
                ("Unavailable" | "OutcomeUnknown", _) => ("unknown", ""),
                _ => ("no", ""),
            };
            let mut ended = json!({"event": "return", "op": op, "outcome": outcome, "said": how});
            if !answer.is_empty() {
                ended["answer"] = answer.into();
            }
            ended
        }
        Event::Release { left } => promise(json!({"event": "call", "op": "release"}), at, *left),
        Event::Released { how } => {
            let outcome = match how.split(' ').next().unwrap_or_default() {
                "ok" => "ok",
                "LeaseLost" => "lost",
                // It is certain that the answer was not kept.
                "Unavailable" if kind == "once" => "no",
                _ => "unknown",
            };
            json!({"event": "return", "op": "release", "outcome": outcome, "said": how})
        }
        _ => return None,
    })
}

/// Adds until when a hold lasts at the least; nothing if it may be over.
fn promise(mut event: Value, at: u64, left: u64) -> Value {
    if left > 0 {
        event["until"] = (at + left).into();
    }
    event
}
