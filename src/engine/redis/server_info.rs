//! What a server says about itself.

use std::time::Duration;

use redis::Value;

use super::answers::text;
use crate::clock::Moment;
use crate::sync::Mutex;

/// What a server said about itself on one connection, which leads to no other server as long as it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// A name that is new at each start of a server.
    pub(crate) run_id: Option<String>,
    /// It was up by then, if it says so.
    pub(crate) up_since: Option<Moment>,
}

/// The server that a client's connections led to, as far as they were asked, and since when it has certainly
/// been up.
#[derive(Default)]
pub(crate) struct LastServer(Mutex<Option<(String, Moment)>>);

impl LastServer {
    /// Whether this one, heard at `heard`, is another than the last. One that does not say which it is does
    /// not count.
    pub(crate) fn is_another(&self, server: &ServerInfo, heard: Moment) -> bool {
        let Some(run_id) = &server.run_id else { return false };
        let mut last = self.0.lock();
        if last.as_ref().is_some_and(|(before, _)| before == run_id) {
            return false;
        }
        last.replace((run_id.clone(), heard)).is_some()
    }

    /// When this start of a server was first seen, if it is the last one's: it has been up since.
    fn heard_since(&self, run_id: &str) -> Option<Moment> {
        self.0.lock().as_ref().filter(|(last, _)| last == run_id).map(|(_, heard)| *heard)
    }
}

/// Servers count whole seconds from their start, and read the clock once in a while.
const COARSE: Duration = Duration::from_secs(1);

impl ServerInfo {
    /// What asks for it.
    pub(crate) fn request() -> Vec<u8> {
        redis::cmd("INFO").arg("server").get_packed_command()
    }

    /// Reads the reply, heard at `heard`; `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value, heard: Moment) -> ServerInfo {
        let info = lines(answer);
        let uptime = uptime(&info).map(|uptime| uptime.saturating_sub(COARSE));
        ServerInfo {
            run_id: field(&info, "run_id:").map(str::to_owned),
            up_since: uptime.map(|uptime| heard.before(uptime)),
        }
    }
}

/// What a server says about its past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// It was up by then.
    pub(crate) up_since: Moment,
    /// And not before.
    pub(crate) not_before: Moment,
    /// It is a primary and was nobody's replica, as far as it knows: it has what it was told itself.
    pub(crate) its_own: bool,
}

impl Past {
    /// What asks for it.
    pub(crate) fn request() -> redis::Cmd {
        redis::cmd("INFO")
    }

    /// Reads the reply to what was asked at `asked` and heard at `heard`, of a server that may be the `last`
    /// one; `None` if the server may not be asked.
    pub(crate) fn read(answer: &Value, asked: Moment, heard: Moment, last: &LastServer) -> Option<Past> {
        let info = lines(answer);
        let uptime = uptime(&info)?;
        let role = field(&info, "role:")?;
        let before = field(&info, "master_replid2:").unwrap_or_default();
        // Its own count alone says little about its first two seconds.
        let counted = heard.before(uptime.saturating_sub(COARSE));
        let heard_since = field(&info, "run_id:").and_then(|run_id| last.heard_since(run_id));
        Some(Past {
            up_since: heard_since.map_or(counted, |since| since.min(counted)),
            not_before: asked.before(uptime + 2 * COARSE),
            its_own: role == "master" && before.bytes().all(|digit| digit == b'0'),
        })
    }
}

/// The text of an answer to `INFO`; empty if the server may not be asked.
pub(super) fn lines(answer: &Value) -> String {
    let info = match answer {
        Value::VerbatimString { text, .. } => Some(text.clone()),
        other => text(Some(other)),
    };
    info.unwrap_or_default()
}

/// What the text says of `name`, which ends with a colon.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn uptime(info: &str) -> Option<Duration> {
    Some(Duration::from_secs(field(info, "uptime_in_seconds:")?.parse().ok()?))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_one_that_says_so() {
        let last = LastServer::default();
        let named = |name: Option<&str>| ServerInfo { run_id: name.map(str::to_owned), up_since: None };
        let told = [None, Some("a"), Some("a"), None, Some("b"), Some("b"), Some("a")];
        let another = told.map(|name| last.is_another(&named(name), Moment::now()));
        assert_eq!(another, [false, false, false, false, true, false, true]);
        assert_eq!(last.heard_since("b"), None);
    }

    #[test]
    fn it_is_read_and_an_error_tells_nothing() {
        let now = Moment::now();
        let answer = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n";
        let info = ServerInfo::read(&Value::BulkString(answer.into()), now);
        assert_eq!(info.run_id.as_deref(), Some("abc"));
        // Five whole seconds are four at least.
        assert_eq!(info.up_since, Some(now.before(Duration::from_secs(4))));
        for nothing in [Value::Nil, Value::Okay, Value::BulkString("uptime_in_seconds:x".into())] {
            assert_eq!(ServerInfo::read(&nothing, now), ServerInfo::default());
            assert_eq!(Past::read(&nothing, now, now, &LastServer::default()), None);
        }
    }

    #[test]
    fn a_past_is_as_long_as_is_certain() {
        let second = Duration::from_secs(1);
        let (asked, heard) = (Moment::now(), Moment::now().after(second));
        let past = |role: &str, before: &str| {
            let answer =
                format!("uptime_in_seconds:5\r\n# Replication\r\nrole:{role}\r\nmaster_replid2:{before}\r\n");
            Past::read(&Value::BulkString(answer.into()), asked, heard, &LastServer::default()).unwrap()
        };
        let (up_since, not_before) = (heard.before(4 * second), asked.before(7 * second));
        assert_eq!(past("master", "000"), Past { up_since, not_before, its_own: true });
        assert!(!past("slave", "000").its_own);
        assert!(!past("master", "0a0").its_own, "it was promoted");
    }

    #[test]
    fn one_that_was_heard_of_before_has_been_up_since() {
        let (last, heard) = (LastServer::default(), Moment::now());
        let early = heard.before(Duration::from_secs(3));
        let a = ServerInfo { run_id: Some("a".into()), up_since: None };
        last.is_another(&a, early);
        last.is_another(&a, heard);
        let up_since = |run_id: &str, uptime: u64| {
            let answer = format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\nrole:master\r\n");
            Past::read(&Value::BulkString(answer.into()), heard, heard, &last).unwrap().up_since
        };
        assert_eq!(up_since("a", 0), early);
        assert_eq!(up_since("a", 9), heard.before(Duration::from_secs(8)));
        assert_eq!(up_since("b", 0), heard, "a start of its own");
    }
}
