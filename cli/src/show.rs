//! `show`: everything about one name.

use std::process::ExitCode;

use redis_concurrent::admin::Inspection;
use redis_concurrent::election::Leader;
use redis_concurrent::inventory::Stock;

use crate::args::{Global, Show};
use crate::connect::Servers;
use crate::exit::Failure;
use crate::say;
use crate::shown;
use crate::target::Target;

pub fn show(global: &Global, args: &Show) -> Result<ExitCode, Failure> {
    let client = Servers::of(global)?.connect()?;
    let Some(found) = Target::of(args.at, args.redisson).inspect(&client, &args.name)? else {
        say::error(format!("there is no {:?}", args.name));
        return Ok(ExitCode::from(1));
    };
    let leader = match found.kind.as_str() {
        "election" => client.election(&args.name).leader()?,
        _ => None,
    };
    if global.json {
        say::objects([shown::inspection_json(&found, leader.as_ref())])?;
    } else {
        for line in lines(&found, leader.as_ref()) {
            say::answer(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(found: &Inspection, leader: Option<&Leader>) -> Vec<String> {
    let mut lines = vec![format!("{}  {}", found.name, found.kind)];
    let mut section = |title: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            lines.push(format!("{title}:"));
            lines.extend(rows.into_iter().map(|it| format!("  {it}")));
        }
    };
    section("holders", found.holders.iter().map(holder).collect());
    section("leader's value", leader.map(|it| it.value.clone()).into_iter().collect());
    let queue = shown::queue(found);
    section("waiters", queue.map(|(ahead, it)| format!("{ahead} ahead: {}", waiter(it))).collect());
    let waits = found.condition_waiters.iter();
    section(
        "waiters for signals",
        waits.map(|it| format!("{}: {}", it.condition, waiter(&it.waiter))).collect(),
    );
    let stock = found.stock.iter().map(|(sku, it)| {
        let (sku, Stock { stocked, available, reserved, sold, .. }) = (sku, it);
        format!("{sku}: stocked {stocked}, available {available}, reserved {reserved}, sold {sold}")
    });
    section("stock", stock.collect());
    section("counts", found.counts.iter().map(|(name, n)| format!("{name} {n}")).collect());
    section(
        "fenced",
        found.fenced.map(|it| format!("highest token {}", shown::token(it))).into_iter().collect(),
    );
    let keys = found.keys.iter().map(|it| {
        let ttl = it.ttl.map_or("never expires".to_owned(), |ttl| format!("expires in {}", shown::span(ttl)));
        let bytes = it.bytes.map_or(String::new(), |n| format!(", {n} bytes"));
        format!("{}  {ttl}{bytes}", it.key)
    });
    section("keys", keys.collect());
    lines
}

pub fn holder(it: &redis_concurrent::admin::Holder) -> String {
    let mut parts = vec![shown::holder(it)];
    parts.extend(shown::thread(it.process.as_ref()));
    parts.extend(it.since.map(|at| {
        format!("since {} ({})", shown::time(at), shown::span(shown::age(it.since).unwrap_or_default()))
    }));
    parts.push(
        it.remaining.map_or("without an end".to_owned(), |left| format!("lease {} left", shown::span(left))),
    );
    parts.extend(it.token.map(|token| format!("token {}", shown::token(token))));
    parts.push(format!("owner {}", it.owner));
    parts.join(", ")
}

pub fn waiter(it: &redis_concurrent::admin::Waiter) -> String {
    let who = it.process.as_ref().map_or_else(
        || it.owner.clone(),
        |process| format!("{} {}@{}", process.client_name, process.pid, process.host),
    );
    let thread = shown::thread(it.process.as_ref()).map(|it| format!(", {it}")).unwrap_or_default();
    let threads = if it.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", it.threads) };
    let (since, heard) = (shown::time(it.since), shown::span(it.last_heartbeat));
    format!("{who}{thread}, {threads}, since {since}, heard {heard} ago").trim().to_owned()
}
