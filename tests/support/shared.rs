//! A server for all tests of a file and of the folder of its name, each with names of its own on it.

use std::collections::BTreeMap;
use std::panic::Location;

use parking_lot::Mutex;
use redis_concurrent_testkit::RedisServer;

/// The caller's: files use the same names, so no two of them have one server.
#[track_caller]
pub fn server() -> &'static RedisServer {
    static SERVERS: Mutex<BTreeMap<String, &'static RedisServer>> = Mutex::new(BTreeMap::new());
    let file = Location::caller().file();
    // tests/<binary>/<file>.rs, or tests/<binary>/<folder>/….rs
    let module = file.split('/').nth(2).unwrap_or(file).trim_end_matches(".rs");
    assert_ne!(module, "..", "{file}: its caller is to be marked #[track_caller]");
    // Ended when this process does, like anything static.
    SERVERS
        .lock()
        .entry(module.to_owned())
        .or_insert_with(|| Box::leak(Box::new(RedisServer::start().unwrap())))
}
