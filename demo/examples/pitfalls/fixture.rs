//! What a pitfall runs on: a server of its own, and its contenders.

use std::time::Duration;

use redis::{Commands, Connection};
use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{Proxy, RedisServer};

use super::Failure;

/// A lease that does not expire during a pitfall.
pub const LONG: Duration = Duration::from_secs(30);

/// The timeout for what is sure to happen.
pub const SURELY: Duration = Duration::from_secs(20);

/// A private server, stopped with the fixture. Each connection and each client on it stands for a process.
pub struct Fixture {
    pub server: RedisServer,
}

impl Fixture {
    pub fn open() -> Result<Fixture, Failure> {
        Ok(Fixture { server: RedisServer::start()? })
    }

    /// Returns processes that send commands of their own.
    pub fn processes<const N: usize>(&self) -> Result<[Connection; N], Failure> {
        let all: Result<Vec<_>, _> = (0..N).map(|_| self.server.connection()).collect();
        all?.try_into().map_err(|_| "so many were made".into())
    }

    /// Returns processes that use the library, and wait for the server for as long as a busy machine takes.
    pub fn clients<const N: usize>(&self) -> Result<[Client; N], Failure> {
        let all: Result<Vec<_>, _> = (0..N).map(|_| patient(&self.server.url()).connect()).collect();
        all?.try_into().map_err(|_| "so many were made".into())
    }

    /// Returns a process that will die.
    pub fn mortal(&self, lease: Duration) -> Result<Mortal, Failure> {
        let line = Proxy::start(self.server.port())?;
        let client = builder(&line.url()).lease(lease).connect()?;
        Ok(Mortal { client, line })
    }

    /// Makes a lease expire. To Redis it is the same whether the time passed or was set to zero, so that no
    /// step depends on how long another one took.
    pub fn lease_ends(&self, key: &str) -> Result<(), Failure> {
        let ended: bool = self.server.connection()?.pexpire(key, 0)?;
        if ended { Ok(()) } else { Err(format!("{key} had ended before").into()) }
    }
}

fn patient(url: &str) -> ClientBuilder {
    Client::builder().url(url).connect_timeout(SURELY).command_timeout(SURELY)
}

/// Returns a builder for a client whose server will go away for good: the client soon gives up releasing what
/// it holds there.
pub fn builder(url: &str) -> ClientBuilder {
    let limit = Duration::from_secs(2);
    Client::builder().url(url).connect_timeout(limit).command_timeout(limit)
}

/// Returns the key of a lock of the library.
pub fn key(name: &str) -> String {
    format!("rc:{{{name}}}")
}

/// A process whose only connection to Redis can be cut.
pub struct Mortal {
    pub client: Client,
    line: Proxy,
}

impl Mortal {
    /// The process dies: its connections are closed, and it sends nothing any more, neither a renewal nor a
    /// release.
    pub fn dies(&self) -> Result<(), Failure> {
        self.line.refuse_connections(true)?;
        self.line.cut_all();
        Ok(())
    }
}
