//! One client with one connection in its pool: what an update leaves on it, the next one meets.

use redis::{Commands, Connection, Pipeline};
use redis_concurrent::optimistic::{Outcome, Snapshot};
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::{Proxy, RedisServer};

use crate::support::*;

pub const KEY: &str = "stock:42";

pub struct Fixture {
    // Before the server, so that nobody reports its end.
    pub client: Client,
    pub proxy: Proxy,
    /// Not by the proxy.
    pub redis: Connection,
    pub server: RedisServer,
}

impl Fixture {
    pub fn new() -> Fixture {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let client = connected(|| builder(&proxy.url()).max_connections(1).command_timeout(SOON));
        let redis = server.connection().unwrap();
        Fixture { client, proxy, redis, server }
    }

    pub fn get(&mut self, key: &str) -> Option<String> {
        self.redis.get(key).unwrap()
    }

    pub fn set(&mut self, key: &str, value: &str) {
        let _: () = self.redis.set(key, value).unwrap();
    }

    /// Somebody else changes what is watched.
    pub fn touch(&mut self) {
        let _: () = self.redis.incr(KEY, 1).unwrap();
    }

    /// The next one to use the pool's only connection is not disturbed by what was watched on it.
    #[track_caller]
    pub fn next_one_is_unaffected(&mut self) {
        let update = self.client.optimistic(&["another"]).max_attempts(1).run(|read, write| {
            let before: Option<u32> = read.get("another")?;
            let _: () = self.redis.append(KEY, "!").unwrap();
            write.set("another", before.unwrap_or(0) + 1);
            Ok(Outcome::Commit(()))
        });
        assert!(update.unwrap().committed);
    }

    /// The same, and it is the connection that was there before.
    #[track_caller]
    pub fn comes_back(&mut self, connections: u64) {
        self.next_one_is_unaffected();
        assert_eq!(self.proxy.connections(), connections, "it was closed");
    }
}

/// One more, from what stands there.
pub fn add_one(read: &mut Snapshot<'_>, write: &mut Pipeline) -> Result<Outcome<u64>, Error> {
    let next = read.get::<Option<u64>>(KEY)?.unwrap_or(0) + 1;
    write.set(KEY, next);
    Ok(Outcome::Commit(next))
}
