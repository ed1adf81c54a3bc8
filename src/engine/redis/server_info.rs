//! What a server says about itself: which run of it this is, and since when it has been up. What follows from
//! that is up to the caller.

use std::time::Duration;

use redis::Value;

use crate::clock::{LatestMoment, Moment};
use crate::engine::redis::resp::text;
use crate::sync::Mutex;

/// What a server said about itself on a connection, which leads to no other server as long as it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// An id that is new at each start of a server.
    pub(crate) run_id: Option<String>,
    /// A time by which it was up, if it says so.
    pub(crate) up_since: Option<Moment>,
    /// Whether it accepts writes by clients, if it says so.
    pub(crate) is_primary: Option<bool>,
    /// It is a primary and was never a replica, as far as it says: all that it has was written to it directly.
    pub(crate) its_own: bool,
}

/// The server that a client's connections led to last, as far as they were asked.
#[derive(Default)]
pub(crate) struct LastServer {
    run: Mutex<Option<Run>>,
    /// When it last replied.
    last_reply: LatestMoment,
}

/// A run of a server.
struct Run {
    id: String,
    /// When it was first heard.
    found: Moment,
    /// Whether another one was there before.
    succeeds: bool,
}

impl LastServer {
    /// If the server, heard at `received`, is not the last one, returns when the last one was last heard. A
    /// server that does not say which one it is does not count.
    pub(crate) fn is_another(&self, server: &ServerInfo, received: Moment) -> Option<Moment> {
        let run_id = server.run_id.as_ref()?;
        let mut last = self.run.lock();
        let before = self.last_reply.get();
        self.last_reply.put(received);
        if last.as_ref().is_some_and(|run| run.id == *run_id) {
            return None;
        }
        let succeeds = last.is_some();
        last.replace(Run { id: run_id.clone(), found: received, succeeds }).map(|_| before)
    }

    /// Its run id, if it is known.
    pub(crate) fn run_id(&self) -> Option<String> {
        self.run.lock().as_ref().map(|run| run.id.clone())
    }

    /// Records that the server replied.
    pub(crate) fn replied(&self, at: Moment) {
        self.last_reply.put(at);
    }

    /// Returns since when all requests to this client's server have certainly gone to this run of it.
    pub(crate) fn known_since(&self, run_id: Option<&str>) -> Option<Moment> {
        self.run.lock().as_ref().filter(|run| Some(&*run.id) == run_id).map(|run| run.found)
    }

    /// Returns since when this client's server has been this run of it, as far as is known; it said so at `received`.
    /// Where another one was before, it may have been up for long without a request from those who share the address:
    /// what counts is when it was found there. So it is if its clock was set back to before its start, which leaves
    /// it without an uptime.
    pub(crate) fn serves_since(&self, server: &ServerInfo, received: Moment) -> Moment {
        match (&*self.run.lock(), &server.run_id) {
            (Some(run), Some(id)) if run.id != *id => received,
            (Some(run), Some(_)) if run.succeeds => run.found,
            (Some(run), Some(_)) => server.up_since.unwrap_or(run.found).min(run.found),
            _ => server.up_since.unwrap_or(received),
        }
    }
}

/// Servers count whole seconds from their start, and read the clock only now and then.
const COARSE: Duration = Duration::from_secs(1);

impl ServerInfo {
    /// The request for its run and its uptime, with which it does not say whether it is a primary.
    pub(crate) fn request() -> Vec<u8> {
        redis::cmd("INFO").arg("server").get_packed_command()
    }

    /// Reads a reply to `INFO`, heard at `received`. The fields are `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value, received: Moment) -> ServerInfo {
        let info = lines(answer);
        let role = field(&info, "role:");
        let followed = field(&info, "master_replid2:").unwrap_or_default();
        ServerInfo {
            run_id: field(&info, "run_id:").map(str::to_owned),
            up_since: uptime(&info).map(|uptime| received.before(uptime.saturating_sub(COARSE))),
            is_primary: role.map(|role| role != "slave"),
            its_own: role == Some("master") && followed.bytes().all(|digit| digit == b'0'),
        }
    }

    /// A time before which it was not up, if it was up by `up_since` and took so long to say so.
    pub(crate) fn not_before(up_since: Moment, took: Duration) -> Moment {
        up_since.before(took.saturating_add(3 * COARSE))
    }
}

/// Returns the text of a reply to `INFO`; empty if the server may not be asked.
pub(in crate::engine) fn lines(answer: &Value) -> String {
    match answer {
        Value::VerbatimString { text, .. } => text.clone(),
        other => text(Some(other)).unwrap_or_default(),
    }
}

/// Returns the value of `name`, which ends with a colon, in this text.
pub(in crate::engine) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn uptime(info: &str) -> Option<Duration> {
    Some(Duration::from_secs(field(info, "uptime_in_seconds:")?.parse().ok()?))
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/server_info.rs"]
mod tests;
