//! The configuration of a private Redis server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use super::server::RedisServer;

/// The PEM files that a server needs for TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate authority that signed the other servers' and the clients' certificates.
    pub authority: PathBuf,
    /// The server's certificate, for 127.0.0.1. The server also presents it to other servers.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The options of a server or sentinel that accepts TLS connections on this port and connects to others
    /// with TLS.
    pub(super) fn options(&self, port: u16) -> [(&'static str, String); 5] {
        let path = |file: &PathBuf| file.display().to_string();
        [
            ("tls-port", port.to_string()),
            ("tls-ca-cert-file", path(&self.authority)),
            ("tls-cert-file", path(&self.certificate)),
            ("tls-key-file", path(&self.key)),
            ("tls-replication", "yes".to_owned()),
        ]
    }
}

/// The configuration of a [`RedisServer`] that is yet to start; created by [`RedisServer::builder`].
///
/// The defaults: no persistence, no password, no Unix socket, loopback only, `DEBUG` allowed.
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct RedisServerBuilder {
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, OsString)>,
    pub(super) unix_socket: bool,
    pub(super) password: Option<String>,
    /// The server also needs a port for the cluster bus.
    pub(super) cluster_bus: bool,
    /// The ports at which others reach the server and its bus, if they are not its own.
    pub(super) announced: Option<(u16, u16)>,
    pub(super) tls: Option<Box<TlsFiles>>,
}

impl RedisServerBuilder {
    /// Sets one option of `redis.conf`, overriding the defaults. A value of several words becomes several
    /// arguments, as in the file (`"client-output-buffer-limit"`, `"pubsub 1mb 0 0"`); an empty value becomes
    /// an empty argument.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.args.push(format!("--{key}"));
        if value.is_empty() {
            self.args.push(String::new());
        }
        self.args.extend(value.split_ascii_whitespace().map(str::to_owned));
        self
    }

    /// Sets an environment variable of the server.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets whether the server also listens on a Unix socket in its folder.
    pub fn unix_socket(mut self, on: bool) -> Self {
        self.unix_socket = on;
        self
    }

    /// Lets the server accept TLS connections too, [on a port of their own](RedisServer::tls_port). It
    /// requires a certificate of its clients, unless `.arg("tls-auth-clients", "no")` is set, and connects to
    /// other servers with TLS.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.tls = Some(Box::new(files.clone()));
        self
    }

    /// Requires a password of clients; the server's URLs and connections include it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets whether data outlives the server process. If on, each write is synced before its reply
    /// (`appendfsync always`), so that a crash test loses nothing by chance; a later `.arg("appendfsync",
    /// ..)` overrides this.
    pub fn appendonly(self, on: bool) -> Self {
        self.arg("appendonly", if on { "yes" } else { "no" }).arg("appendfsync", "always")
    }

    /// Makes the server a node of a cluster: it then has a second port, 10,000 above the first.
    pub(super) fn cluster_bus(mut self) -> Self {
        self.cluster_bus = true;
        self
    }

    /// Announces these ports of the node and of its bus to clients and other nodes.
    pub(super) fn announced(mut self, port: u16, bus: u16) -> Self {
        self.announced = Some((port, bus));
        self.arg("cluster-announce-ip", "127.0.0.1")
            .arg("cluster-announce-port", &port.to_string())
            .arg("cluster-announce-bus-port", &bus.to_string())
    }

    /// Starts the server, and returns once it answers: after at most 30 s for each port that is tried.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no `redis-server`; any other error if the server exits or does not answer, with
    /// the end of its log.
    pub fn start(self) -> io::Result<RedisServer> {
        RedisServer::launch(self)
    }
}
