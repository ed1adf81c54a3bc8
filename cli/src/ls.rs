//! `ls`: lists the locks that are held, by whom, and since when. `deadlocks`: the threads that wait for each other.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::SystemTime;

use redis_concurrent::admin::{Holder, Inspection};
use redis_concurrent::{Client, ErrorKind, redis};

use crate::args::{Global, Ls};
use crate::connect::{self, Servers};
use crate::exit::Failure;
use crate::say::{self, Say};
use crate::shown;

/// The `COUNT` of a `SCAN` for keys outside the namespace, the same as the library's for locks.
const PAGE: usize = 200;

/// A line: a lock with one of its holders, or with none.
struct Row {
    found: Rc<Inspection>,
    /// The index of the holder.
    at: Option<usize>,
}

impl Row {
    fn holder(&self) -> Option<&Holder> {
        self.found.holders.get(self.at?)
    }
}

pub fn ls(global: &Global, args: &Ls, say: Say) -> Result<ExitCode, Failure> {
    let servers = Servers::of(global)?;
    let client = servers.connect()?;
    let listing = client.list().rate(args.rate);
    let mut rows = Vec::new();
    for found in if args.all { listing.with_free() } else { listing } {
        rows.extend(listed(args, found?));
    }
    for (pattern, of_type) in [(&args.at, "string"), (&args.redisson, "hash")] {
        for found in pattern.iter().map(|it| outside(servers.namespace(), &client, it, of_type)) {
            rows.extend(found?.into_iter().flat_map(|found| listed(args, found)));
        }
    }
    // Holds that began at a known time come first.
    let age = |row: &Row| (since(row).is_none(), since(row));
    rows.sort_by(|one, other| age(one).cmp(&age(other)).then_with(|| one.found.name.cmp(&other.found.name)));
    let empty = rows.is_empty();
    if global.json {
        say::objects(rows.iter().map(|row| shown::row(&row.found, row.holder())))?;
    } else if args.names {
        let mut names: Vec<_> = rows.iter().map(|row| &row.found.name).collect();
        names.dedup();
        names.into_iter().try_for_each(say::answer)?;
    } else if !empty {
        let head = ["NAME", "KIND", "HOLDER", "SINCE", "LEASE", "WAITING", "TOKEN"].map(str::to_owned);
        // HOLDER first, then NAME.
        let cut: &[usize] = if args.wide { &[] } else { &[2, 0] };
        say::table(std::iter::once(head).chain(rows.iter().map(cells)), cut)?;
    } else if io::stdout().is_terminal() {
        say.note("there is no such lock");
    }
    Ok(ExitCode::from(u8::from(empty && args.exit_code)))
}

pub fn deadlocks(global: &Global) -> Result<ExitCode, Failure> {
    let circles = Servers::of(global)?.connect()?.deadlocks()?;
    if global.json {
        say::objects(circles.iter().map(shown::deadlock))?;
    } else {
        circles.iter().try_for_each(say::answer)?;
    }
    Ok(ExitCode::from(u8::from(!circles.is_empty())))
}

/// Returns the lines of a lock, one for each holder that passes the filters, if the lock itself does.
fn listed(args: &Ls, found: Inspection) -> Vec<Row> {
    if !is_listed(args, &found) {
        return Vec::new();
    }
    let found = Rc::new(found);
    let taken = (0..found.holders.len()).filter(|at| args.takes(&found.holders[*at]));
    let mut rows: Vec<_> = taken.map(|at| Row { found: found.clone(), at: Some(at) }).collect();
    if rows.is_empty() && (args.all || !found.waiters.is_empty()) && !args.asks_for_holders() {
        rows.push(Row { found, at: None });
    }
    rows
}

fn since(row: &Row) -> Option<SystemTime> {
    row.holder()?.since
}

/// Whether the lock itself passes the filters.
fn is_listed(args: &Ls, found: &Inspection) -> bool {
    let named = args.filters.is_empty() || args.filters.iter().any(|it| found.name.contains(it.as_str()));
    named
        && (!args.waiting || !found.waiters.is_empty())
        && args.kind.as_ref().is_none_or(|it| found.kind.contains(it.as_str()))
}

impl Ls {
    fn asks_for_holders(&self) -> bool {
        self.host.is_some() || self.label.is_some() || self.older.is_some()
    }

    /// Whether a holder passes the filters.
    fn takes(&self, holder: &Holder) -> bool {
        let process = holder.process.as_ref();
        let host = self.host.as_ref().is_none_or(|it| process.is_some_and(|process| &process.host == it));
        let label = self
            .label
            .as_ref()
            .is_none_or(|it| process.is_some_and(|process| process.client_name.contains(it)));
        let older = self.older.is_none_or(|it| shown::age(holder.since).is_some_and(|age| age >= it));
        host && label && older
    }
}

fn cells(row: &Row) -> [String; 7] {
    let holder = row.holder();
    let text = |it: Option<String>| it.unwrap_or_else(|| "-".to_owned());
    [
        row.found.name.clone(),
        row.found.kind.clone(),
        text(holder.map(shown::holder_first)),
        text(holder.and_then(|it| shown::age(it.since)).map(shown::span)),
        text(holder.and_then(|it| it.remaining).map(shown::span)),
        shown::waiting(&row.found).to_string(),
        text(holder.and_then(|it| it.token).map(shown::token)),
    ]
}

/// Returns the keys of this type outside the namespace that match the pattern, on all servers: the text in a
/// string is its holder, and a hash may be a Redisson lock. Keys that cannot be locks are left out.
fn outside(
    namespace: &str,
    client: &Client,
    pattern: &str,
    of_type: &str,
) -> Result<Vec<Inspection>, Failure> {
    let ours = format!("{namespace}:{{");
    let mut all = Vec::new();
    for info in client.primaries()? {
        let (mut connection, mut cursor) = (connect::to(info)?, 0u64);
        // SCAN may return a key more than once: it only guarantees that none is missed.
        let mut seen = HashSet::new();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(PAGE).arg("TYPE").arg(of_type);
            let (next, keys): (u64, Vec<Vec<u8>>) = scan.query(&mut connection)?;
            let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
            for key in keys.filter(|key| !key.starts_with(&ours) && seen.insert(key.clone())) {
                match client.inspect_key(&key) {
                    Ok(found) => all.extend(found.filter(|it| !it.holders.is_empty())),
                    Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                    Err(error) => return Err(error.into()),
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(all)
}
