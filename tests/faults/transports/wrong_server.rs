//! Servers that cannot serve this library, or not well, say so when a client connects.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use redis_concurrent_testkit::RedisServerBuilder;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::server_days::ask;

#[track_caller]
fn refused_at(server: &RedisServer, kind: ErrorKind, why: &str) {
    let error = Client::connect(&server.url()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:#}");
    let text = format!("{error:#}");
    assert!(text.contains(why) && text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");
}

#[test]
fn a_replica() {
    let (primary, replica) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    ask::<()>(&replica, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    // It may be out of reach of its primary, or not.
    let why = format!("is a replica of 127.0.0.1:{}", primary.port());
    refused_at(&replica, ErrorKind::Unavailable, &why);
    ask::<()>(&replica, &["REPLICAOF", "NO", "ONE"]);
    works_at(&replica.url());
}

/// As it says itself, and where it may not be asked, as the first script finds. Holds nothing, and keeps nobody waiting.
#[test]
#[ignore = "needs an old server: REDIS_SERVER_BIN=$(ci/servers.sh redis-5.0)"]
fn a_server_that_is_too_old() {
    let server = RedisServer::start().unwrap();
    refused_at(&server, ErrorKind::InvalidInput, "6.2 is the first that can be used");
    let client = Client::builder().url(&server.url()).connect_later().unwrap();
    let refused = [
        client.simple_lock("it").try_lock().map(drop),
        client.reentrant_lock("it").lock().map(drop),
        client.read_write_lock("it").write_lock().lock().map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(
            error.kind() == ErrorKind::InvalidInput && error.to_string().contains("6.2 is the first"),
            "{error:#}"
        );
    }
    assert!(!server.keys().unwrap().contains(&"rc:{it}".to_owned()));
}

#[test]
fn one_of_the_primaries_of_a_cluster() {
    let node = || RedisServer::builder().arg("cluster-enabled", "yes").start().unwrap();
    let (one, two) = (node(), node());
    serves(&one, 0..=8191);
    serves(&two, 8192..=16383);
    ask::<()>(&one, &["CLUSTER", "MEET", "127.0.0.1", &two.port().to_string()]);
    for node in [&one, &two] {
        wait_until(LONG, "they know each other", || knows(node));
        refused_at(node, ErrorKind::InvalidInput, "is one of the 2 primaries of a Redis Cluster");
    }
}

/// As a service that hides its nodes behind one address is.
#[test]
fn a_cluster_of_a_single_primary_can_serve() {
    let server = RedisServer::builder().arg("cluster-enabled", "yes").start().unwrap();
    serves(&server, 0..=16383);
    wait_until(LONG, "it serves all slots", || knows(&server));
    works_at(&server.url());
}

fn serves(node: &RedisServer, slots: RangeInclusive<u32>) {
    let mut redis = node.connection().unwrap();
    let _: () = cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()).query(&mut redis).unwrap();
}

/// All slots are known to be served by somebody.
fn knows(server: &RedisServer) -> bool {
    let mut redis = server.connection().unwrap();
    let found: String = cmd("CLUSTER").arg("INFO").query(&mut redis).unwrap();
    found.contains("cluster_state:ok")
}

#[test]
fn a_server_without_scripts() {
    let server = without_command("EVALSHA").start().unwrap();
    refused_at(&server, ErrorKind::InvalidInput, "does not run scripts");
}

/// As the configuration of a managed service takes commands away.
pub(super) fn without_command(name: &str) -> RedisServerBuilder {
    RedisServer::builder().arg("rename-command", &format!("{name} no-{name}"))
}

/// What is logged meanwhile, in this thread.
fn log_of(act: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(text);
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl<'a> MakeWriter<'a> for Log {
        type Writer = Log;
        fn make_writer(&'a self) -> Log {
            self.clone()
        }
    }
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, act);
    String::from_utf8(log.0.lock().clone()).unwrap()
}

#[test]
fn a_server_that_may_evict_locks_is_a_warning() {
    let server = RedisServer::start().unwrap();
    let connect = || drop(Client::connect(&server.url()).unwrap());
    for (policy, memory, warns) in [
        ("allkeys-lru", "100mb", true),
        ("volatile-ttl", "100mb", true),
        // It never evicts anything.
        ("allkeys-lru", "0", false),
        ("noeviction", "100mb", false),
    ] {
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory-policy", policy]);
        ask::<()>(&server, &["CONFIG", "SET", "maxmemory", memory]);
        let log = log_of(connect);
        let found = log.contains("WARN") && log.contains("evicts keys") && log.contains(policy);
        assert_eq!(found, warns, "{policy} {memory}: {log}");
    }
}

#[test]
fn a_server_without_publish_and_subscribe_is_a_warning_and_waiting_is_told() {
    let server = without_command("PUBSUB").arg("rename-command", "SUBSCRIBE no-SUBSCRIBE").start().unwrap();
    let log = log_of(|| {
        let client = Client::connect(&server.url()).unwrap();
        let lock = client.simple_lock("free");
        let guard = lock.lock().unwrap();
        let other = Client::connect(&server.url()).unwrap();
        let error = other.simple_lock("free").lock().map(drop).unwrap_err();
        assert!(error.is_unavailable(), "{error:#}");
        guard.unlock().unwrap();
    });
    assert!(log.contains("WARN") && log.contains("no publish/subscribe"), "{log}");
}
