//! What a pitfall is played on: a server of its own, and its contenders.

use std::time::Duration;

use redis::{Commands, Connection};
use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{Proxy, RedisServer};

use super::Failure;

/// A lease that does not end while we look.
pub const LONG: Duration = Duration::from_secs(30);

/// How long to wait for what is sure to come.
pub const SURELY: Duration = Duration::from_secs(20);

/// A private server, ended with the scene. Each connection and each client on it stands for a process.
pub struct Scene {
    pub server: RedisServer,
}

impl Scene {
    pub fn open() -> Result<Scene, Failure> {
        Ok(Scene { server: RedisServer::start()? })
    }

    /// Processes that send commands of their own.
    pub fn processes<const N: usize>(&self) -> Result<[Connection; N], Failure> {
        let all: Result<Vec<_>, _> = (0..N).map(|_| self.server.connection()).collect();
        all?.try_into().map_err(|_| "so many were made".into())
    }

    /// Processes that use the library.
    pub fn clients<const N: usize>(&self) -> Result<[Client; N], Failure> {
        let all: Result<Vec<_>, _> = (0..N).map(|_| Client::connect(&self.server.url())).collect();
        all?.try_into().map_err(|_| "so many were made".into())
    }

    /// A process that is to die.
    pub fn mortal(&self, lease: Duration) -> Result<Mortal, Failure> {
        let line = Proxy::start(self.server.port())?;
        let client = builder(&line.url()).lease(lease).connect()?;
        Ok(Mortal { client, line })
    }

    /// Lets the time of a lease be over. To Redis it is the same whether it passed or was set to nothing,
    /// and so no step depends on how long another took.
    pub fn lease_ends(&self, key: &str) -> Result<(), Failure> {
        let ended: bool = self.server.connection()?.pexpire(key, 0)?;
        if ended { Ok(()) } else { Err(format!("{key} had ended before").into()) }
    }
}

/// A client whose server is to go for good: it does not try for long to give back what it has there.
pub fn builder(url: &str) -> ClientBuilder {
    let limit = Duration::from_secs(2);
    Client::builder().url(url).connect_timeout(limit).command_timeout(limit)
}

/// Where a lock of the library is.
pub fn key(name: &str) -> String {
    format!("rc:{{{name}}}")
}

/// A process whose only way to Redis can end.
pub struct Mortal {
    pub client: Client,
    line: Proxy,
}

impl Mortal {
    /// The process dies: its connections are closed, and nothing comes from it any more, no renewal and
    /// no release.
    pub fn dies(&self) -> Result<(), Failure> {
        self.line.refuse_connections(true)?;
        self.line.cut_all();
        Ok(())
    }
}
