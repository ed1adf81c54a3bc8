//! `break`: takes a lock from its holder.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use redis_concurrent::admin::{HeldBy, Holder};

use crate::args::{Break, Global};
use crate::connect::Servers;
use crate::exit::{Failure, code};
use crate::say::{self, Say};
use crate::show;
use crate::shown;
use crate::target::Target;

pub fn take_away(global: &Global, args: &Break, say: Say) -> Result<ExitCode, Failure> {
    let held_by = match (&args.owner, &args.token) {
        (Some(owner), _) => HeldBy::Owner(owner.clone()),
        (None, Some(token)) => HeldBy::Token(*token),
        (None, None) => HeldBy::Anyone,
    };
    let client = Servers::of(global)?.connect()?;
    let target = Target::of(args.at, args.redisson);
    let Some(found) = target.inspect(&client, &args.name)? else {
        say.note(format!("nobody holds {:?}", args.name));
        return Ok(ExitCode::from(1));
    };
    if !args.now
        && let Some(holder) =
            found.holders.iter().find(|it| is_meant_by(&held_by, it) && cannot_be_stopped(it))
    {
        return Err(Failure::usage(format!(
            "{} is held by {}, which this program cannot stop, and whose lease it cannot let expire: others would get \
             the lock at once, as they do with --now",
            found.name,
            shown::holder(holder)
        )));
    }
    if !args.yes && !found.holders.is_empty() {
        if !io::stdin().is_terminal() {
            return Err(Failure::usage("nobody can be asked without a terminal: --yes, if it is meant"));
        }
        for holder in &found.holders {
            say::error(format!("{} is held by {}", found.name, show::holder(holder)));
        }
        match found.waiters.first() {
            Some(next) => say::error(format!("next: {}", show::waiter(next))),
            None => say::error("nobody waits for it"),
        }
        if !is_meant()? {
            return Ok(ExitCode::from(1));
        }
    }
    let forced = target.take_away(&client, &args.name, &held_by, &reason(args), !args.now)?;
    if forced.holders == 0 {
        let (code, what) = match forced.skipped {
            0 => (1, "nobody holds it"),
            _ => (code::BUSY, "another one holds it by now, nothing was done"),
        };
        say.note(format!("{}: {what}", args.name));
        return Ok(ExitCode::from(code));
    }
    if global.json {
        say::objects([serde_json::json!({
            "name": args.name, "taken": forced.holders, "told": forced.notified, "others": forced.skipped,
            "stays_s": shown::seconds(forced.remaining),
        })])?;
    }
    let notified = if forced.notified == forced.holders {
        "its holder was notified"
    } else {
        "its holder could not be notified, and learns of it when it renews or releases the lock"
    };
    say.note(format!("{} was taken away: {notified}", args.name));
    if !forced.remaining.is_zero() {
        let rest = shown::span(forced.remaining);
        say.note(format!(
            "others get it when its command has ended, or in {rest}; --now does not wait for that"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn is_meant_by(held_by: &HeldBy, holder: &Holder) -> bool {
    match held_by {
        HeldBy::Owner(owner) => *owner == holder.owner,
        HeldBy::Token(token) => holder.token == Some(*token),
        _ => true,
    }
}

/// Whether the holder is another library's, which left neither a record nor a token, or its hold has no lease.
fn cannot_be_stopped(holder: &Holder) -> bool {
    holder.remaining.is_none() || (holder.process.is_none() && holder.since.is_none())
}

/// Returns what the holder is told: the reason, and the operator's name.
fn reason(args: &Break) -> String {
    let user =
        std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).or_else(|_| std::env::var("LOGNAME"));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let by = format!("by {}@{host}", user.as_deref().unwrap_or("unknown"));
    match &args.reason {
        Some(reason) => format!("{reason} ({by})"),
        None => by,
    }
}

fn is_meant() -> Result<bool, Failure> {
    let mut out = io::stderr().lock();
    let _ = write!(out, "redis-concurrent: take it away? [y/N] ");
    let _ = out.flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|e| Failure::usage(format!("no answer: {e}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
