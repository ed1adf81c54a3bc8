//! Where the sale takes place: a Redis server, and a prefix for all keys on it.

use std::cell::OnceCell;

use redis::{Connection, RedisResult};
use redis_concurrent_testkit::RedisServer;

use super::Failure;

/// A server, private unless `REDIS_URL` names one, and a prefix that no other program uses.
pub struct Place {
    pub url: String,
    pub prefix: String,
    // Stopped when dropped.
    _server: Option<RedisServer>,
    five: OnceCell<Vec<RedisServer>>,
}

impl Place {
    pub fn find() -> Result<Place, Failure> {
        let prefix = format!("flash-sale:{}", uuid::Uuid::new_v4().simple());
        if let Ok(url) = std::env::var("REDIS_URL") {
            return Ok(Place { url, prefix, _server: None, five: OnceCell::new() });
        }
        let server = RedisServer::start()?;
        Ok(Place { url: server.url(), prefix, _server: Some(server), five: OnceCell::new() })
    }

    /// Returns five servers that do not know each other, always private: the first call starts them.
    pub fn five_servers(&self) -> Result<Vec<String>, Failure> {
        if self.five.get().is_none() {
            let servers = (0..5).map(|_| RedisServer::start()).collect::<Result<_, _>>()?;
            // It was empty a line ago, and no other thread uses it.
            let _ = self.five.set(servers);
        }
        Ok(self.five.get().into_iter().flatten().map(RedisServer::url).collect())
    }

    pub fn connect(&self) -> RedisResult<Connection> {
        redis::Client::open(self.url.as_str())?.get_connection()
    }

    /// Deletes every key with the prefix.
    pub fn clean(&self) -> RedisResult<()> {
        let mut connection = self.connect()?;
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.prefix))
                .arg("COUNT")
                .arg(1000)
                .query(&mut connection)?;
            if !keys.is_empty() {
                redis::cmd("UNLINK").arg(keys).exec(&mut connection)?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(why) = self.clean() {
            eprintln!("flash_sale: keys under {}* may be left: {why}", self.prefix);
        }
    }
}
