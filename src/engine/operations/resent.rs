//! A leave that was sent twice and found its owner outside: either the first copy took it out, or the hold
//! was lost before. Redis keeps no record of that, as it would cost each leave a write. Instead, when it
//! happens, Redis is asked whether it is still the same server that knew of the hold, and whether there has
//! been another grant since.

use redis::cmd;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::resp::number;
use crate::engine::redis::server_info::History;
use crate::engine::state::grant::Grant;
use crate::kind::Sharing;

/// What is known of a grant that is ending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// For an exclusive lock, the grant number: if it is still the last one, there has been no grant since.
    number: Option<u64>,
    /// Since when this process had it.
    since: Moment,
}

/// The outcome of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Released,
    Lost,
    Unknown,
}

impl Known {
    /// What is known of a hold that ends now, by its grant and its lock's `sharing`.
    pub(crate) fn of(sharing: Sharing, grant: Option<&Grant>, now: Moment) -> Known {
        let (number, since) = grant.map_or((0, now), |t| (t.number, t.since));
        Known { number: (sharing == Sharing::Exclusive).then_some(number), since }
    }

    /// Returns the outcome of the grant whose leave was about to be sent at `began`, on a connection made at
    /// `first_by`. Asks Redis, and blocks until `limit` at most.
    pub(crate) fn fate(self, entry: &LockEntry, began: Moment, first_by: Moment, limit: Moment) -> Fate {
        let server = entry.server();
        let sent = Moment::now();
        // In a cluster, the first copy may have gone to another server.
        let past =
            server.node.is_none().then(|| server.backend.command(&History::request(), limit).ok()).flatten();
        let past = past.and_then(|answer| History::read(&answer, sent, Moment::now(), &server.known));
        match past.filter(|past| past.its_own) {
            // The server has forgotten nothing: the hold, which was valid, was there until the first copy
            // arrived.
            Some(past) if past.served_since <= self.since => return Fate::Released,
            // The first copy was sent to a server that no longer exists.
            Some(past) if first_by < past.not_before && past.up_since <= began => return Fate::Lost,
            _ => {}
        }
        let last = [Command::plain(cmd("GET").arg(entry.names.keys()[3].concat()))];
        let last = || number(Some(&entry.ask(&last, limit).ok()?.value))?.try_into().ok();
        if self.number.is_some() && self.number == last() { Fate::Released } else { Fate::Unknown }
    }
}
