//! One server for all tests of a file and of the folder named after it, each of which uses names of its own.

use std::collections::BTreeMap;
use std::panic::Location;

use parking_lot::Mutex;
use redis_concurrent_testkit::RedisServer;

/// Returns the server of the calling file: files use the same names, so no two of them share a server.
#[track_caller]
pub fn server() -> &'static RedisServer {
    static SERVERS: Mutex<BTreeMap<String, &'static RedisServer>> = Mutex::new(BTreeMap::new());
    let file = Location::caller().file();
    // tests/<binary>/<file>.rs, or tests/<binary>/<folder>/….rs
    let module = file.split('/').nth(2).unwrap_or(file).trim_end_matches(".rs");
    assert_ne!(module, "..", "{file}: its caller is to be marked #[track_caller]");
    // It ends with this process, like everything static.
    SERVERS
        .lock()
        .entry(module.to_owned())
        .or_insert_with(|| Box::leak(Box::new(RedisServer::start().unwrap())))
}
