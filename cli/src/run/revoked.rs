//! A lock that was lost and is nobody else's yet: `break` leaves it to its former holder for the rest of the lease.

use std::time::{Duration, Instant};

use redis_concurrent::crossbeam_channel::bounded;
use redis_concurrent::{Client, Error, HeldBy};

use crate::args::Run;
use crate::target::Target;

/// How long Redis is asked whether that is so: meanwhile a lock that is not revoked but gone may be another's.
const ASKED: Duration = Duration::from_millis(250);

/// For how long all of the lost locks are kept from others by the grants with these tokens. Not at all where a lock
/// has no token, or Redis does not answer.
pub fn keeps_others_out(client: &Client, args: &Run, tokens: &[Option<u64>]) -> Duration {
    let asked = Instant::now();
    let (sender, heard) = bounded(1);
    let (client, target) = (client.clone(), Target::of(args.at, args.redisson));
    let locks: Vec<_> = args.names().cloned().zip(tokens.to_vec()).collect();
    let ask = move || {
        let each = locks.iter().map(|(name, token)| rest(&client, target, name, (*token)?).ok()?);
        // Nobody hears it who has waited for long enough.
        let _ = sender.send(each.min().flatten());
    };
    if std::thread::Builder::new().name("revoked".to_owned()).spawn(ask).is_err() {
        return Duration::ZERO;
    }
    // Redis has counted it since then at the earliest.
    heard.recv_timeout(ASKED).ok().flatten().unwrap_or_default().saturating_sub(asked.elapsed())
}

/// What is left of the lease of the grant with this token, if it is there.
fn rest(client: &Client, target: Target, name: &str, token: u64) -> Result<Option<Duration>, Error> {
    let holders = target.look(client, name)?.map(|look| look.holders).unwrap_or_default();
    let ours = holders.into_iter().find(|holder| holder.token == Some(token));
    Ok(ours.map(|holder| holder.remaining.unwrap_or(Duration::MAX)))
}

/// Frees the locks that were revoked, as the command has ended for which they were kept. What is no longer there, or
/// another's by now, is left alone.
pub fn free(client: &Client, args: &Run, tokens: &[Option<u64>]) {
    let target = Target::of(args.at, args.redisson);
    for (name, token) in args.names().zip(tokens) {
        if let Some(token) = token {
            // If Redis does not answer, its lease ends it.
            let _ = target.take_away(client, name, &HeldBy::Token(*token), "", false);
        }
    }
}
