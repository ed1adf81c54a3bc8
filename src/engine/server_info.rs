//! What a server says of itself.

use std::time::Duration;

use redis::Value;

use super::backend::text;
use crate::clock::Moment;
use crate::sync::Mutex;

/// What a server told of itself on one connection, which leads to no other server as long as it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// A name that each start of a server has for itself.
    pub(crate) run_id: Option<String>,
    /// It was up by then, if it says so.
    pub(crate) up_since: Option<Moment>,
}

/// The server that a client's connections led to, as far as they were asked.
#[derive(Default)]
pub(crate) struct LastServer(Mutex<Option<String>>);

impl LastServer {
    /// Whether this one is another than the last. One that does not say who it is is none.
    pub(crate) fn is_another(&self, server: &ServerInfo) -> bool {
        let Some(run_id) = &server.run_id else { return false };
        let before = self.0.lock().replace(run_id.clone());
        before.is_some_and(|before| before != *run_id)
    }
}

/// Servers count whole seconds from their start, and look at the clock once in a while.
const COARSE: Duration = Duration::from_secs(1);

impl ServerInfo {
    /// What asks for it.
    pub(crate) fn request() -> Vec<u8> {
        redis::cmd("INFO").arg("server").get_packed_command()
    }

    /// Reads the answer, heard at `heard`; nothing of it where the server may not be asked.
    pub(crate) fn read(answer: &Value, heard: Moment) -> ServerInfo {
        let info = match answer {
            Value::VerbatimString { text, .. } => Some(text.clone()),
            other => text(Some(other)),
        };
        let info = info.unwrap_or_default();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let uptime = field("uptime_in_seconds:").and_then(|seconds| seconds.parse().ok());
        let uptime = uptime.map(|seconds| Duration::from_secs(seconds).saturating_sub(COARSE));
        ServerInfo {
            run_id: field("run_id:").map(str::to_owned),
            up_since: uptime.map(|uptime| heard.before(uptime)),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_one_that_says_so() {
        let last = LastServer::default();
        let named = |name: Option<&str>| ServerInfo { run_id: name.map(str::to_owned), up_since: None };
        let told = [None, Some("a"), Some("a"), None, Some("b"), Some("b"), Some("a")];
        let another = told.map(|name| last.is_another(&named(name)));
        assert_eq!(another, [false, false, false, false, true, false, true]);
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
        }
    }
}
