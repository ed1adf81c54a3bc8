//! A primary, its replicas, and the sentinels that watch them.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Connection, FromRedisValue, RedisResult, cmd};
use tempfile::TempDir;

use super::process::Guarded;
use super::proxy::Proxy;
use super::reserved::Reserved;
use super::server::{RedisServer, encode, find_program};
use super::server_options::TlsFiles;
use super::wait::{eventually, wait_until};

/// The sentinels' name of the primary.
const MASTER: &str = "mymaster";

/// Two of three sentinels must agree that the primary is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// The source address of servers and sentinels behind proxies. Clients connect from 127.0.0.1.
const WITHIN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long a sentinel may take to answer after its start, and a fleet to discover its members.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a query to a sentinel may take.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// The configuration of a [`SentinelFleet`]; created by [`SentinelFleet::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before start()"]
pub struct SentinelFleetBuilder {
    password: Option<String>,
    sentinel_password: Option<String>,
    down_after: Duration,
    proxies: bool,
    tls: Option<TlsFiles>,
    args: Vec<(String, String)>,
}

impl SentinelFleetBuilder {
    /// Requires this password of clients and of the other servers.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Requires this password of the sentinels' clients and of other sentinels.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Sets how long a primary must be silent before a sentinel considers it down. The default is 1 s.
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = time;
        self
    }

    /// Puts a [proxy](SentinelFleet::proxy) in front of each server, through which replicas, sentinels and
    /// clients reach it. Needs Redis 7.0 (`bind-source-addr`) and the address 127.0.0.2.
    pub fn behind_proxies(mut self) -> Self {
        self.proxies = true;
        self
    }

    /// Makes servers and sentinels use TLS, among themselves and with clients, of which they require a
    /// certificate. Does not work behind proxies.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.tls = Some(files.clone());
        self
    }

    /// Sets one option of all servers.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.args.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Starts everything, and returns once the replicas are in sync and the sentinels know every server and
    /// each other.
    ///
    /// # Errors
    ///
    /// If a server, a sentinel or a proxy cannot be started.
    ///
    /// # Panics
    ///
    /// If they do not discover each other within a minute.
    pub fn start(self) -> io::Result<SentinelFleet> {
        let (mut servers, mut proxies) = (Vec::<RedisServer>::new(), Vec::new());
        let mut door = 0;
        for i in 0..3 {
            let proxy = if self.proxies { Some(Proxy::start(1)?) } else { None };
            let mut server = RedisServer::builder().arg("repl-diskless-sync-delay", "0");
            if let Some(password) = &self.password {
                server = server.password(password).arg("masterauth", password);
            }
            if let Some(proxy) = &proxy {
                server = server
                    .arg("bind-source-addr", &WITHIN.to_string())
                    .arg("replica-announce-ip", "127.0.0.1")
                    .arg("replica-announce-port", &proxy.port().to_string());
            }
            if let Some(files) = &self.tls {
                server = server.tls(files);
            }
            for (key, value) in &self.args {
                server = server.arg(key, value);
            }
            if i > 0 {
                server = server.arg("replicaof", &format!("127.0.0.1 {door}"));
            }
            let server = server.start()?;
            if let Some(proxy) = proxy {
                proxy.set_target(server.port());
                proxies.push(proxy);
            }
            if i == 0 {
                door = proxies.first().map_or(server.peer_port(), Proxy::port);
            }
            servers.push(server);
        }
        let sentinels = (0..SENTINELS).map(|_| Sentinel::start(&self, door)).collect::<io::Result<_>>()?;
        let fleet = SentinelFleet { sentinels, proxies, servers, options: self };
        wait_until(START_LIMIT, "the sentinels know the fleet", || fleet.is_whole());
        Ok(fleet)
    }
}

/// A primary, two replicas, and three sentinels that call the primary `mymaster`, each in its own process.
///
/// The servers are numbered; number 0 is the primary at the start. Dropping the fleet stops all processes.
#[derive(Debug)]
pub struct SentinelFleet {
    // Dropped first, so that no sentinel sees a server stop.
    sentinels: Vec<Sentinel>,
    proxies: Vec<Proxy>,
    servers: Vec<RedisServer>,
    options: SentinelFleetBuilder,
}

impl SentinelFleet {
    /// Starts a fleet with the default options.
    ///
    /// # Errors
    ///
    /// See [`SentinelFleetBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder, to set options before the start.
    pub fn builder() -> SentinelFleetBuilder {
        let down_after = Duration::from_secs(1);
        let (password, sentinel_password, tls) = (None, None, None);
        SentinelFleetBuilder {
            password,
            sentinel_password,
            down_after,
            proxies: false,
            tls,
            args: Vec::new(),
        }
    }

    /// Returns the URL for clients: all sentinels, with any passwords.
    pub fn url(&self) -> String {
        let login = self.options.password.as_ref().map(|it| format!(":{}@", encode(it))).unwrap_or_default();
        let secret = self.options.sentinel_password.as_ref();
        let secret = secret.map(|it| format!("?sentinel_password={}", encode(it))).unwrap_or_default();
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{login}{}/{MASTER}{secret}", self.addresses().join(","))
    }

    /// Returns the addresses of the sentinels as `host:port`; with TLS, their TLS ports.
    pub fn addresses(&self) -> Vec<String> {
        let port = |it: &Sentinel| it.tls_port.as_ref().unwrap_or(&it.port).port();
        self.sentinels.iter().map(|it| format!("127.0.0.1:{}", port(it))).collect()
    }

    /// Returns the servers, by number.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the sentinels, by number.
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// Returns the proxy in front of the server with this number.
    ///
    /// # Panics
    ///
    /// If the fleet is not [behind proxies](SentinelFleetBuilder::behind_proxies).
    pub fn proxy(&self, server: usize) -> &Proxy {
        &self.proxies[server]
    }

    /// Cuts the primary with this number off from its replicas and the sentinels, until its proxy
    /// [heals](Proxy::heal). Clients still reach it.
    ///
    /// # Panics
    ///
    /// If the fleet is not [behind proxies](SentinelFleetBuilder::behind_proxies).
    pub fn isolate(&self, primary: usize) {
        self.proxies[primary].cut_off(Some(WITHIN.into()));
    }

    /// Shuts a replica down and starts it again, as a replica of the current primary.
    ///
    /// # Errors
    ///
    /// If the replica cannot be restarted, or there is no primary.
    pub fn restart_replica(&self, server: usize) -> io::Result<()> {
        let primary = self.primary().filter(|it| *it != server).map(|it| self.door(it));
        let primary = primary.ok_or_else(|| io::Error::other("there is no primary for this replica"))?;
        let server = &self.servers[server];
        server.restart()?;
        // The servers have no configuration file in which the sentinels could have stored it.
        let mut follow = cmd("REPLICAOF");
        follow.arg("127.0.0.1").arg(primary);
        server.connection().and_then(|mut it| follow.exec(&mut it)).map_err(io::Error::other)
    }

    /// The port at which the others reach this server.
    fn door(&self, server: usize) -> u16 {
        self.proxies.get(server).map_or(self.servers[server].peer_port(), Proxy::port)
    }

    /// Returns the number of the server that most of the sentinels now call the primary, if there is one.
    pub fn primary(&self) -> Option<usize> {
        let named: Vec<_> = self.sentinels.iter().filter_map(Sentinel::primary_port).collect();
        (0..self.servers.len())
            .find(|server| named.iter().filter(|it| **it == self.door(*server)).count() >= QUORUM)
    }

    /// Waits until a server other than `former` is the primary, for at most 60 s, and returns its number.
    ///
    /// # Panics
    ///
    /// If no other server becomes the primary in time.
    pub fn primary_after(&self, former: usize) -> usize {
        eventually(START_LIMIT, || self.primary().filter(|now| *now != former && self.is_primary(*now)))
    }

    /// Has a sentinel promote a replica although the primary is alive (`SENTINEL FAILOVER`). Waits until the
    /// sentinels are ready for that, and returns once the failover has begun.
    pub fn failover(&self) {
        let requested = || self.sentinels.iter().any(|it| it.ask::<()>(&["FAILOVER", MASTER]).is_ok());
        wait_until(START_LIMIT, "a sentinel begins a failover", requested);
    }

    /// Returns whether the primary has its two replicas, all in sync, and every sentinel knows them all.
    pub fn is_whole(&self) -> bool {
        let others = SENTINELS - 1;
        let replicas = self.servers.len() - 1;
        let in_step = |primary: usize| {
            let text = info(&self.servers[primary]);
            text.matches("state=online").count() == replicas && text.contains("role:master")
        };
        self.primary().is_some_and(in_step) && self.sentinels.iter().all(|it| it.knows(others, replicas))
    }

    fn is_primary(&self, server: usize) -> bool {
        info(&self.servers[server]).contains("role:master")
    }
}

/// The server's replication info; empty if it does not answer.
fn info(server: &RedisServer) -> String {
    let text = server.connection().and_then(|mut it| cmd("INFO").arg("replication").query(&mut it));
    text.unwrap_or_default()
}

/// A sentinel, in its own process.
#[derive(Debug)]
pub struct Sentinel {
    // Before the folder, so that the process is gone when the folder is deleted.
    process: Mutex<Option<Guarded>>,
    port: Reserved,
    tls_port: Option<Reserved>,
    password: Option<String>,
    folder: TempDir,
}

impl Sentinel {
    fn start(options: &SentinelFleetBuilder, primary: u16) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sentinel-").tempdir()?;
        let port = Reserved::free_port()?;
        let mut conf = vec![
            format!("port {}", port.port()),
            "bind 127.0.0.1".into(),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor {MASTER} 127.0.0.1 {primary} {QUORUM}"),
            format!("sentinel down-after-milliseconds {MASTER} {}", options.down_after.as_millis()),
            format!("sentinel failover-timeout {MASTER} 6000"),
            format!("sentinel parallel-syncs {MASTER} 2"),
        ];
        if options.proxies {
            conf.push(format!("bind-source-addr {WITHIN}"));
            conf.push("sentinel announce-ip 127.0.0.1".into());
        }
        if let Some(password) = &options.password {
            conf.push(format!("sentinel auth-pass {MASTER} \"{password}\""));
        }
        if let Some(password) = &options.sentinel_password {
            conf.push(format!("requirepass \"{password}\""));
            conf.push(format!("sentinel sentinel-pass \"{password}\""));
        }
        let tls_port = options.tls.is_some().then(Reserved::free_port).transpose()?;
        if let (Some(files), Some(port)) = (&options.tls, &tls_port) {
            conf.extend(files.options(port.port()).map(|(key, value)| format!("{key} {value}")));
        }
        fs::write(folder.path().join("sentinel.conf"), conf.join("\n") + "\n")?;
        let process = Mutex::new(Some(spawn(folder.path())?));
        let sentinel =
            Sentinel { process, port, tls_port, password: options.sentinel_password.clone(), folder };
        wait_until(START_LIMIT, "the sentinel answers", || sentinel.primary_port().is_some());
        Ok(sentinel)
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// Kills the process (SIGKILL) and waits for it to end; has no effect if it is not running.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn kill(&self) -> io::Result<()> {
        self.process.lock().take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Starts the sentinel again after a [`kill`](Self::kill), with the state that it had saved.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn restart(&self) -> io::Result<()> {
        self.kill()?;
        *self.process.lock() = Some(spawn(self.folder.path())?);
        Ok(())
    }

    /// Stops the process (SIGSTOP), so that it answers nothing.
    ///
    /// # Errors
    ///
    /// If the sentinel is not running.
    pub fn stop(&self) -> io::Result<()> {
        self.with_process(Guarded::stop)
    }

    /// Resumes a stopped sentinel (SIGCONT).
    ///
    /// # Errors
    ///
    /// If the sentinel is not running.
    pub fn cont(&self) -> io::Result<()> {
        self.with_process(Guarded::cont)
    }

    /// Sends the sentinel the `SENTINEL` command with these arguments.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s, or replies with an error.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        cmd("SENTINEL").arg(words).query(&mut self.connection()?)
    }

    fn with_process<T>(&self, act: impl FnOnce(&mut Guarded) -> io::Result<T>) -> io::Result<T> {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the sentinel does not run");
        act(self.process.lock().as_mut().ok_or_else(gone)?)
    }

    fn connection(&self) -> RedisResult<Connection> {
        let login = self.password.as_ref().map(|it| format!(":{}@", encode(it))).unwrap_or_default();
        let client = redis::Client::open(format!("redis://{login}127.0.0.1:{}/", self.port()))?;
        let connection = client.get_connection_with_timeout(ASK_LIMIT)?;
        connection.set_read_timeout(Some(ASK_LIMIT))?;
        Ok(connection)
    }

    fn primary_port(&self) -> Option<u16> {
        let (_, port): (String, u16) = self.ask(&["GET-MASTER-ADDR-BY-NAME", MASTER]).ok()?;
        Some(port)
    }

    /// Whether the sentinel knows at least this many other sentinels and replicas, none of them down.
    fn knows(&self, others: usize, replicas: usize) -> bool {
        let all = |what: &str| -> Option<Vec<Vec<String>>> { self.ask(&[what, MASTER]).ok() };
        let up = |list: Option<Vec<Vec<String>>>, many| {
            let down = |it: &Vec<String>| {
                it.iter().any(|word| word.contains("_down") || word.contains("disconnected"))
            };
            list.is_some_and(|list| list.len() >= many && !list.iter().any(down))
        };
        up(all("SENTINELS"), others) && up(all("REPLICAS"), replicas)
    }
}

fn spawn(folder: &Path) -> io::Result<Guarded> {
    let log = File::options().create(true).append(true).open(folder.join("sentinel.log"))?;
    let errors = log.try_clone()?;
    Guarded::spawn(&find_program()?, Some(folder), |command| {
        command.arg(folder.join("sentinel.conf")).arg("--sentinel").stdout(log).stderr(errors);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_the_place_of_a_primary_that_is_killed() {
        // A busy machine must not begin a failover before the primary is killed.
        let fleet = SentinelFleet::builder().down_after(Duration::from_secs(4)).start().unwrap();
        assert_eq!(fleet.primary(), Some(0));
        fleet.servers()[0].kill().unwrap();
        let now = fleet.primary_after(0);
        assert!(now != 0 && fleet.is_primary(now) && !fleet.is_whole());
    }
}
