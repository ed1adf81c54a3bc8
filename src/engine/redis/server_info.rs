//! What a server says about itself: which run of it this is, and since when it has been up. What follows from
//! that is up to the caller.

use std::time::Duration;

use redis::Value;

use super::answers::text;
use crate::clock::{LatestMoment, Moment};
use crate::sync::Mutex;

/// What a server said about itself on a connection, which leads to no other server as long as it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// An id that is new at each start of a server.
    pub(crate) run_id: Option<String>,
    /// A time by which it was up, if it says so.
    pub(crate) up_since: Option<Moment>,
}

/// The server that a client's connections led to last, as far as they were asked.
#[derive(Default)]
pub(crate) struct LastServer {
    /// Its run id, and since when it has certainly been up.
    up_since: Mutex<Option<(String, Moment)>>,
    /// When it last replied.
    heard: LatestMoment,
}

impl LastServer {
    /// If the server, heard at `heard`, is not the last one, returns when the last one was last heard. A
    /// server that does not say which one it is does not count.
    pub(crate) fn is_another(&self, server: &ServerInfo, heard: Moment) -> Option<Moment> {
        let run_id = server.run_id.as_ref()?;
        let mut last = self.up_since.lock();
        let before = self.heard.get();
        self.heard.put(heard);
        if last.as_ref().is_some_and(|(before, _)| before == run_id) {
            return None;
        }
        last.replace((run_id.clone(), heard)).map(|_| before)
    }

    /// Records that the server replied.
    pub(crate) fn heard(&self, at: Moment) {
        self.heard.put(at);
    }

    /// Returns when this run of a server was first seen, if it is the last server's: it has been up since.
    fn heard_since(&self, run_id: &str) -> Option<Moment> {
        self.up_since.lock().as_ref().filter(|(last, _)| last == run_id).map(|(_, heard)| *heard)
    }
}

/// Servers count whole seconds from their start, and read the clock only now and then.
const COARSE: Duration = Duration::from_secs(1);

impl ServerInfo {
    /// The request for it.
    pub(crate) fn request() -> Vec<u8> {
        redis::cmd("INFO").arg("server").get_packed_command()
    }

    /// Reads the reply, heard at `heard`. The fields are `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value, heard: Moment) -> ServerInfo {
        let info = lines(answer);
        let uptime = uptime(&info).map(|uptime| uptime.saturating_sub(COARSE));
        ServerInfo {
            run_id: field(&info, "run_id:").map(str::to_owned),
            up_since: uptime.map(|uptime| heard.before(uptime)),
        }
    }
}

/// Whether a server accepts writes by clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Replica,
}

impl Role {
    /// The request for it.
    pub(crate) fn request() -> Vec<u8> {
        redis::cmd("INFO").arg("replication").get_packed_command()
    }

    /// Reads the reply; `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value) -> Option<Role> {
        let info = lines(answer);
        Some(if field(&info, "role:")? == "slave" { Role::Replica } else { Role::Primary })
    }
}

/// What a server says about its past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// A time by which it was up.
    pub(crate) up_since: Moment,
    /// A time before which it was not up.
    pub(crate) not_before: Moment,
    /// It is a primary and was never a replica, as far as it knows: all that it has was written to it
    /// directly.
    pub(crate) its_own: bool,
}

impl Past {
    /// The request for it.
    pub(crate) fn request() -> redis::Cmd {
        redis::cmd("INFO")
    }

    /// Reads the reply to a request that was sent at `asked` and heard at `heard`, by a server that may be
    /// the `last` one; `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value, asked: Moment, heard: Moment, last: &LastServer) -> Option<Past> {
        let info = lines(answer);
        let uptime = uptime(&info)?;
        let role = field(&info, "role:")?;
        let before = field(&info, "master_replid2:").unwrap_or_default();
        // In its first two seconds, the server's own count says little.
        let counted = heard.before(uptime.saturating_sub(COARSE));
        let heard_since = field(&info, "run_id:").and_then(|run_id| last.heard_since(run_id));
        Some(Past {
            up_since: heard_since.map_or(counted, |since| since.min(counted)),
            not_before: asked.before(uptime + 2 * COARSE),
            its_own: role == "master" && before.bytes().all(|digit| digit == b'0'),
        })
    }
}

/// Returns the text of a reply to `INFO`; empty if the server may not be asked.
pub(super) fn lines(answer: &Value) -> String {
    let info = match answer {
        Value::VerbatimString { text, .. } => Some(text.clone()),
        other => text(Some(other)),
    };
    info.unwrap_or_default()
}

/// Returns the value of `name`, which ends with a colon, in this text.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn uptime(info: &str) -> Option<Duration> {
    Some(Duration::from_secs(field(info, "uptime_in_seconds:")?.parse().ok()?))
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/server_info.rs"]
mod tests;
