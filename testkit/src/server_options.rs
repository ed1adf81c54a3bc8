//! How a private Redis server is to be configured.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use super::server::RedisServer;

/// The PEM files that a server needs for TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The authority of the other servers and of the clients.
    pub authority: PathBuf,
    /// The server's certificate, for 127.0.0.1. It shows it to other servers, too.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The options of a server, or of a sentinel, that is reached by TLS at this port and reaches others by TLS.
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

/// The configuration of a [`RedisServer`] to be; made by [`RedisServer::builder`].
///
/// The defaults: no persistence, no password, no Unix socket, loopback only, `DEBUG` allowed.
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct RedisServerBuilder {
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, OsString)>,
    pub(super) unix_socket: bool,
    pub(super) password: Option<String>,
    /// Beside its port it needs the one of the cluster's bus.
    pub(super) cluster_bus: bool,
    /// Where others reach it and its bus, unless at its own ports.
    pub(super) announced: Option<(u16, u16)>,
    pub(super) tls: Option<Box<TlsFiles>>,
}

impl RedisServerBuilder {
    /// Sets one option of `redis.conf`, over the defaults. A value of several words becomes
    /// several arguments, as in the file (`"client-output-buffer-limit"`, `"pubsub 1mb 0 0"`);
    /// an empty value is given as an empty argument.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.args.push(format!("--{key}"));
        if value.is_empty() {
            self.args.push(String::new());
        }
        self.args.extend(value.split_ascii_whitespace().map(str::to_owned));
        self
    }

    /// Sets a variable of the server's environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Whether the server listens on a Unix socket in its folder too.
    pub fn unix_socket(mut self, on: bool) -> Self {
        self.unix_socket = on;
        self
    }

    /// The server can be reached by TLS too, [at a port of its own](RedisServer::tls_port). It asks its clients for
    /// a certificate, unless `.arg("tls-auth-clients", "no")` says otherwise, and talks to other servers by TLS.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.tls = Some(Box::new(files.clone()));
        self
    }

    /// Asks clients for a password; the server's URLs and connections carry it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Whether data outlive the server process. When on, each write is synced before its reply
    /// (`appendfsync always`), so that a test of a crash loses nothing by chance; a later
    /// `.arg("appendfsync", ..)` says otherwise.
    pub fn appendonly(self, on: bool) -> Self {
        self.arg("appendonly", if on { "yes" } else { "no" }).arg("appendfsync", "always")
    }

    /// The server is a node of a cluster: it has a second port, 10,000 above the first.
    pub(super) fn cluster_bus(mut self) -> Self {
        self.cluster_bus = true;
        self
    }

    /// Clients and other nodes reach this one, and its bus, at these ports.
    pub(super) fn announced(mut self, port: u16, bus: u16) -> Self {
        self.announced = Some((port, bus));
        self.arg("cluster-announce-ip", "127.0.0.1")
            .arg("cluster-announce-port", &port.to_string())
            .arg("cluster-announce-bus-port", &bus.to_string())
    }

    /// Starts the server; returns when it answers, after 30 s at most per try of a port.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no `redis-server`; otherwise if the server ends or does not
    /// answer, with the end of its log.
    pub fn start(self) -> io::Result<RedisServer> {
        RedisServer::launch(self)
    }
}
