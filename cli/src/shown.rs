//! How holders, waiters and times are shown: to people, and as JSON.

use std::time::{Duration, SystemTime};

use redis_concurrent::admin::{Deadlock, Holder, Inspection, Process, Waiter};
use redis_concurrent::election::Leader;
use serde_json::{Value, json};

/// Formats a holder: `LABEL PID@HOST`, or the owner text of another program; and whether it only stays.
pub fn holder(holder: &Holder) -> String {
    format!("{holder}{}", more(holder))
}

/// The same with the label last: the end is what a terminal may have no room for.
pub fn holder_first(holder: &Holder) -> String {
    let Some(process) = &holder.process else { return format!("{holder}{}", more(holder)) };
    let text = format!("{}@{}{} {}", process.pid, process.host, more(holder), process.client_name);
    text.trim_end().to_owned()
}

fn more(holder: &Holder) -> String {
    let permits = holder.permits.map(|n| format!(" ({n})")).unwrap_or_default();
    format!("{permits}{}", if holder.stays { ", stays" } else { "" })
}

/// Formats the thread, as in `thread "main"`, if it has a name.
pub fn thread(process: Option<&Process>) -> Option<String> {
    process?.thread.as_ref().map(|name| format!("thread {name:?}"))
}

/// Formats a token with 19 digits: it compares as text and as a number.
pub fn token(token: u64) -> String {
    format!("{token:019}")
}

pub fn age(since: Option<SystemTime>) -> Option<Duration> {
    // The server's clock may be ahead of ours.
    since.map(|it| SystemTime::now().duration_since(it).unwrap_or_default())
}

/// Formats a duration: `3d4h`, `2h05m`, `3m20s`, `28.3s`.
pub fn span(it: Duration) -> String {
    let s = it.as_secs();
    match s {
        0..60 => format!("{:.1}s", it.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Formats a time by RFC 3339, in UTC, to the millisecond.
pub fn time(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Civil from days: Howard Hinnant's algorithm, with the year beginning in March.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", since.subsec_millis())
}

pub fn seconds(it: Duration) -> f64 {
    (it.as_secs_f64() * 1000.0).round() / 1000.0
}

fn process(process: Option<&Process>, into: &mut Value) {
    into["pid"] = json!(process.map(|it| it.pid));
    into["host"] = json!(process.map(|it| &it.host));
    into["label"] = json!(process.map(|it| &it.client_name));
    into["thread"] = json!(process.and_then(|it| it.thread.as_ref()));
}

pub fn holder_json(holder: &Holder) -> Value {
    let mut it = json!({
        "owner": holder.owner, "since": holder.since.map(time), "lease_s": holder.remaining.map(seconds),
        "token": holder.token.map(token), "permits": holder.permits, "stays": holder.stays,
    });
    process(holder.process.as_ref(), &mut it);
    it
}

pub fn waiter_json(waiter: &Waiter) -> Value {
    let mut it = json!({
        "owner": waiter.owner, "threads": waiter.threads, "since": time(waiter.since),
        "beat_s": seconds(waiter.last_heartbeat),
    });
    process(waiter.process.as_ref(), &mut it);
    it
}

pub fn deadlock(it: &Deadlock) -> Value {
    let threads = it.threads.iter().map(|thread| {
        let (holds, waits_for) = (&thread.holds, &thread.waits_for);
        let mut it = json!({ "holds": holds, "waits_for": waits_for, "since": time(thread.since) });
        process(Some(&thread.process), &mut it);
        it
    });
    json!({ "deadlock": it.to_string(), "threads": threads.collect::<Vec<_>>() })
}

/// The queue: each waiter, with how many threads are ahead of it.
pub fn queue(found: &Inspection) -> impl Iterator<Item = (usize, &Waiter)> {
    found
        .waiters
        .iter()
        .scan(0, |ahead, waiter| Some((std::mem::replace(ahead, *ahead + waiter.threads), waiter)))
}

/// The number of waiting threads, in all processes, as of their last heartbeats.
pub fn waiting(found: &Inspection) -> usize {
    found.waiters.iter().map(|waiter| waiter.threads).sum()
}

/// Returns a line of `ls`.
pub fn row(found: &Inspection, holder: Option<&Holder>) -> Value {
    json!({
        "name": found.name, "kind": found.kind, "holder": holder.map(holder_json), "waiting": waiting(found),
        "more": found.more,
    })
}

/// Returns all of `show`.
pub fn inspection_json(found: &Inspection, leader: Option<&Leader>) -> Value {
    let conditions = found.condition_waiters.iter().map(|it| {
        let mut waiter = waiter_json(&it.waiter);
        waiter["condition"] = json!(it.condition);
        waiter
    });
    let queued = queue(found).map(|(ahead, it)| {
        let mut waiter = waiter_json(it);
        waiter["ahead"] = json!(ahead);
        waiter
    });
    let counts: serde_json::Map<String, Value> =
        found.counts.iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
    let stock = found.stock.iter().map(|(sku, it)| {
        json!({
            "sku": sku, "stocked": it.stocked, "available": it.available, "reserved": it.reserved, "sold": it.sold,
        })
    });
    json!({
        "name": found.name, "kind": found.kind,
        "holders": found.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiters": queued.collect::<Vec<_>>(),
        "conditions": conditions.collect::<Vec<_>>(), "counts": counts, "stock": stock.collect::<Vec<_>>(),
        "fenced": found.fenced.map(token), "value": leader.map(|it| &it.value),
        "keys": found.keys.iter().map(|it| {
            json!({"key": it.key, "ttl_s": it.ttl.map(seconds), "bytes": it.bytes})
        }).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (s, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_577_836_799, "2019-12-31T23:59:59.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(SystemTime::UNIX_EPOCH + Duration::from_secs(s)), text);
        }
    }

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (300, "0.3s"),
            (59_900, "59.9s"),
            (200_000, "3m20s"),
            (7_500_000, "2h05m"),
            (360_000_000, "4d4h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }
}
