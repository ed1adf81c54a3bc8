//! `members` and `partitions`: what processes share.

use std::process::ExitCode;

use redis_concurrent_partitions::{Member, Members, Owner, Partitions};
use serde_json::json;

use crate::args::Global;
use crate::connect::Servers;
use crate::exit::Failure;
use crate::say;
use crate::shown;

pub fn members(global: &Global, name: &str) -> Result<ExitCode, Failure> {
    let list = Members::new(&Servers::of(global)?.connect()?, name).list()?;
    if list.is_empty() {
        say::error(format!("there are no members under {name:?}"));
        return Ok(ExitCode::from(1));
    }
    if global.json {
        say::objects(list.iter().map(|it| {
            json!({
                "number": it.number,
                "value": it.value,
                "process": it.process,
                "since": shown::time(it.since),
                "remaining_s": shown::seconds(it.remaining),
            })
        }))?;
    } else {
        let age = |it: &Member| shown::span(shown::age(Some(it.since)).unwrap_or_default());
        let row = |it: &Member| [it.value.clone(), it.process.clone(), age(it), shown::span(it.remaining)];
        say::table(headed(["VALUE", "PROCESS", "SINCE", "LEASE"], list.iter().map(row)), &[0])?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn partitions(global: &Global, name: &str) -> Result<ExitCode, Failure> {
    let Some(partitions) = Partitions::of(&Servers::of(global)?.connect()?, name)? else {
        say::error(format!("nobody shares partitions of {name:?}"));
        return Ok(ExitCode::from(1));
    };
    let owners = partitions.owners()?;
    let member = |it: &Owner| it.member.as_ref().map(|it| it.value.clone());
    if global.json {
        say::objects(
            owners
                .iter()
                .map(|it| json!({ "partition": it.partition, "member": member(it), "held_by": it.held_by })),
        )?;
    } else {
        let or_none = |it: Option<String>| it.unwrap_or_else(|| "-".to_owned());
        let row = |it: &Owner| [it.partition.to_string(), or_none(member(it)), or_none(it.held_by.clone())];
        say::table(headed(["PARTITION", "MEMBER", "OWNER"], owners.iter().map(row)), &[1])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn headed<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> impl Iterator<Item = [String; N]> {
    std::iter::once(head.map(str::to_owned)).chain(rows)
}
