//! A lock that was lost but that no other caller can hold yet: `break` leaves it to its former holder for the
//! rest of the lease.

use std::time::{Duration, Instant};

use redis_concurrent::admin::HeldBy;
use redis_concurrent::crossbeam_channel::bounded;
use redis_concurrent::{Client, Error};

use crate::args::Run;
use crate::target::Target;

/// How long to ask Redis whether that is so, at most: meanwhile another caller may hold a lock that is gone and not
/// revoked.
const REST_TIMEOUT: Duration = Duration::from_millis(250);

/// Returns how long the grants with these tokens still keep others from all of the lost locks. It is zero if
/// a lock has no token, or if Redis does not answer within `limit`.
pub fn keeps_others_out(client: &Client, args: &Run, tokens: &[Option<u64>], limit: Duration) -> Duration {
    if limit.is_zero() {
        return Duration::ZERO;
    }
    let began = Instant::now();
    let (sender, heard) = bounded(1);
    let (client, target) = (client.clone(), Target::of(args.at, args.redisson));
    let locks: Vec<_> = args.names().cloned().zip(tokens.to_vec()).collect();
    let ask = move || {
        let each = locks.iter().map(|(name, token)| rest(&client, target, name, (*token)?).ok()?);
        // The receiver may have timed out.
        let _ = sender.send(each.min().flatten());
    };
    if std::thread::Builder::new().name("revoked".to_owned()).spawn(ask).is_err() {
        return Duration::ZERO;
    }
    // Redis has counted the rest down since then at the earliest.
    heard
        .recv_timeout(limit.min(REST_TIMEOUT))
        .ok()
        .flatten()
        .unwrap_or_default()
        .saturating_sub(began.elapsed())
}

/// Returns the rest of the lease of the grant with this token, if it is still there.
fn rest(client: &Client, target: Target, name: &str, token: u64) -> Result<Option<Duration>, Error> {
    let holders = target.inspect(client, name)?.map(|found| found.holders).unwrap_or_default();
    let ours = holders.into_iter().find(|holder| holder.token == Some(token));
    Ok(ours.map(|holder| holder.remaining.unwrap_or(Duration::MAX)))
}

/// Frees the locks that were revoked, now that the command for which they were kept has ended. A lock that no
/// longer exists, or that another caller holds now, is left alone.
pub fn free(client: &Client, args: &Run, tokens: &[Option<u64>]) {
    let target = Target::of(args.at, args.redisson);
    for (name, token) in args.names().zip(tokens) {
        if let Some(token) = token {
            // If Redis does not answer, the lock ends with its lease.
            let _ = target.take_away(client, name, &HeldBy::Token(*token), "", false);
        }
    }
}
