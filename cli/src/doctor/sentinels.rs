//! The sentinels: whether each answers, whether they agree on the primary, and how soon they replace it.

use std::collections::{BTreeSet, HashMap};

use redis_concurrent::admin::Sentinels;
use redis_concurrent::redis::{self, ConnectionInfo};

use super::Finding;
use crate::connect;
use crate::exit::Failure;

/// How long `lock()` without a deadline tolerates an unreachable server, in milliseconds.
const BORNE: u64 = 10_000;

pub fn check(sentinels: &Sentinels) -> Vec<Finding> {
    let (mut findings, mut named) = (Vec::new(), BTreeSet::new());
    for node in &sentinels.nodes {
        let finding = match ask(node, &sentinels.master) {
            Ok(fields) => {
                named.insert(format!("{}:{}", value(&fields, "ip"), value(&fields, "port")));
                judge(&fields)
            }
            Err(failure) => {
                Finding::warn("sentinel", failure.to_string(), "check it: the others must agree without it")
            }
        };
        findings.push(finding.at(&node.addr().to_string()));
    }
    let all: Vec<_> = named.into_iter().collect();
    findings.push(match &all[..] {
        [] => Finding::fail(
            "primary",
            "no sentinel names one",
            "check the sentinels, and the name of the primary",
        ),
        [one] => Finding::ok("primary", format!("{:?} is {one}", sentinels.master)),
        all => Finding::warn(
            "primary",
            format!("{:?} is {}", sentinels.master, all.join(" or ")),
            "the sentinels do not agree: a failover is under way, or one of them is cut off",
        ),
    });
    findings
}

type Fields = HashMap<String, String>;

fn value<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).map_or("?", String::as_str)
}

fn ask(node: &ConnectionInfo, master: &str) -> Result<Fields, Failure> {
    let mut connection = connect::to(node.clone())?;
    Ok(redis::cmd("SENTINEL").arg("MASTER").arg(master).query(&mut connection)?)
}

fn judge(fields: &Fields) -> Finding {
    let number = |name: &str| value(fields, name).parse::<u64>().ok();
    let (others, quorum) = (value(fields, "num-other-sentinels"), value(fields, "quorum"));
    let found = format!(
        "names {}:{}, {others} others, quorum {quorum}, down after {} ms",
        value(fields, "ip"),
        value(fields, "port"),
        value(fields, "down-after-milliseconds"),
    );
    if value(fields, "flags").contains("down") {
        return Finding::warn("sentinel", found, "it takes the primary to be down");
    }
    if number("num-other-sentinels").is_some_and(|n| n < 2) {
        return Finding::warn("sentinel", found, "have three of them: of two none may fail");
    }
    if number("down-after-milliseconds").is_some_and(|ms| ms > BORNE) {
        return Finding::warn(
            "sentinel",
            found,
            "set down-after-milliseconds to 1000 to 5000: callers give up after 10 s",
        );
    }
    Finding::ok("sentinel", found)
}
