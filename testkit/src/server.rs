//! The life of a private Redis server.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Client, Connection, IntoConnectionInfo, RedisResult};
use tempfile::TempDir;

use super::process::Guarded;
use super::reserved::{PORT_TRIES, Reserved};
use super::server_options::RedisServerBuilder;
use super::server_view::farewell;

/// Names a program to use instead of the `redis-server` on the search path.
const PROGRAM: &str = "REDIS_SERVER_BIN";

/// How long a server may take from its start until it answers, with its data loaded.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How often a starting server is polled.
const START_POLL: Duration = Duration::from_millis(2);

/// How long a connection of this harness waits for the server.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);

/// How long an orderly shutdown may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// How many lines of the log go into an error message.
const LOG_TAIL: usize = 15;

/// A private `redis-server` on a free loopback port, in a temporary folder.
///
/// Dropping it kills the process (even a stopped one), waits for it to end and deletes the folder; both are
/// also cleaned up if this process dies without dropping it. All methods take `&self`, so threads can share a
/// server. Methods that query the server open their own connection, block until it answers, for at most 30 s
/// per command, and close it again.
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder, so that the server is gone when the folder is deleted.
    process: Mutex<Option<Guarded>>,
    options: RedisServerBuilder,
    program: PathBuf,
    ports: Ports,
    folder: TempDir,
}

/// The ports of a server, which it keeps while it is down.
#[derive(Debug)]
struct Ports {
    own: Reserved,
    tls: Option<Reserved>,
    /// Of the cluster's bus.
    bus: Option<Reserved>,
}

impl Ports {
    fn free(options: &RedisServerBuilder) -> io::Result<Self> {
        let tls = options.tls.is_some().then(Reserved::free_port).transpose()?;
        if !options.cluster_bus {
            return Ok(Self { own: Reserved::free_port()?, tls, bus: None });
        }
        let [own, bus] = Reserved::free_ports()?;
        Ok(Self { own, tls, bus: Some(bus) })
    }
}

/// A kind of connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// Connections that send commands.
    Normal,
    /// Connections that are subscribed to a channel or a pattern.
    PubSub,
    /// Connections of replicas.
    Replica,
}

/// Why a start failed.
enum StartError {
    /// Another process has the port.
    PortTaken,
    /// A signal arrived while a file was opened or a process started, as happens under load.
    Interrupted,
    Other(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::Interrupted { Self::Interrupted } else { Self::Other(error) }
    }
}

impl RedisServer {
    /// Starts a server with the default options; see [`RedisServerBuilder::start`].
    ///
    /// # Errors
    ///
    /// See [`RedisServerBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder, to set options before the start.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    pub(super) fn launch(options: RedisServerBuilder) -> io::Result<Self> {
        let mut server = Self {
            process: Mutex::new(None),
            ports: Ports::free(&options)?,
            options,
            program: find_program()?,
            // A short name: the path of a Unix socket is limited to about 100 bytes.
            folder: tempfile::Builder::new().prefix("redis-").tempdir()?,
        };
        for _ in 0..PORT_TRIES {
            match server.start_process() {
                Ok(process) => {
                    *server.process.lock() = Some(process);
                    return Ok(server);
                }
                Err(StartError::PortTaken | StartError::Interrupted) => {
                    server.ports = Ports::free(&server.options)?;
                }
                Err(StartError::Other(error)) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("{PORT_TRIES} free ports were taken before redis-server could bind them"),
        ))
    }

    /// Returns the port on 127.0.0.1, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.ports.own.port()
    }

    /// Returns the TLS port, if the server was built with [TLS](RedisServerBuilder::tls).
    pub fn tls_port(&self) -> Option<u16> {
        self.ports.tls.as_ref().map(Reserved::port)
    }

    /// The port at which other servers reach this one.
    pub(super) fn peer_port(&self) -> u16 {
        let announced = self.options.announced.map(|(port, _)| port);
        announced.or(self.tls_port()).unwrap_or(self.port())
    }

    /// The port at which other nodes reach this node's cluster bus.
    pub(super) fn peer_bus_port(&self) -> u16 {
        self.options.announced.map_or(self.bus_port(), |(_, bus)| bus)
    }

    /// The port of the node's own cluster bus; 0 if it is no node.
    pub(super) fn bus_port(&self) -> u16 {
        self.ports.bus.as_ref().map_or(0, Reserved::port)
    }

    /// Returns the URL to connect to over TCP, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{}@127.0.0.1:{}/", encode(password), self.port()),
            None => format!("redis://127.0.0.1:{}/", self.port()),
        }
    }

    /// Returns the URL to connect to over the Unix socket; `None` if the server was built without one.
    pub fn unix_url(&self) -> Option<String> {
        if !self.options.unix_socket {
            return None;
        }
        let path = self.socket();
        let password = match &self.options.password {
            Some(password) => format!("?pass={}", encode(password)),
            None => String::new(),
        };
        Some(format!("redis+unix://{}{password}", path.display()))
    }

    /// Returns the process id of `redis-server` itself; `None` after [`kill`](Self::kill) or
    /// [`shutdown`](Self::shutdown).
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().as_ref().map(Guarded::pid)
    }

    /// Returns the folder with the server's log (`redis.log`) and data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a connection over TCP whose connect, reads and writes time out after 30 s. It sends no `CLIENT
    /// SETINFO`, so it adds nothing to the command counts.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn connection(&self) -> RedisResult<Connection> {
        self.connect(CONNECTION_LIMIT)
    }

    /// Stops the process (SIGSTOP): connections stay open, but no request is answered. Returns once stopped.
    ///
    /// # Errors
    ///
    /// If the server is not running, or has not stopped within 30 s.
    pub fn stop(&self) -> io::Result<()> {
        self.with_process(Guarded::stop)
    }

    /// Resumes a stopped server (SIGCONT).
    ///
    /// # Errors
    ///
    /// If the server is not running.
    pub fn cont(&self) -> io::Result<()> {
        self.with_process(Guarded::cont)
    }

    /// Kills the process (SIGKILL) and waits for it to end; has no effect if it is not running.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn kill(&self) -> io::Result<()> {
        let mut process = self.process.lock();
        if let Some(process) = process.as_mut() {
            process.kill()?;
        }
        *process = None;
        Ok(())
    }

    /// Shuts the server down in an orderly way (`SHUTDOWN NOSAVE`) and waits for its end, for at most 30 s;
    /// has no effect if it is not running.
    ///
    /// # Errors
    ///
    /// If the server does not accept the command or has not ended in time; it is then still running.
    pub fn shutdown(&self) -> io::Result<()> {
        let mut slot = self.process.lock();
        let Some(process) = slot.as_mut() else {
            return Ok(());
        };
        if process.try_wait()?.is_none() {
            let mut connection = self.connection().map_err(io::Error::other)?;
            let reply: RedisResult<()> = redis::cmd("SHUTDOWN").arg("NOSAVE").query(&mut connection);
            match reply {
                // A server that shuts down properly closes the connection instead of replying.
                Err(error) if !error.is_io_error() => return Err(io::Error::other(error)),
                _ => {}
            }
            if process.wait_within(SHUTDOWN_LIMIT)?.is_none() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("redis-server still runs {SHUTDOWN_LIMIT:?} after SHUTDOWN"),
                ));
            }
        }
        *slot = None;
        Ok(())
    }

    /// Starts the server again on the same port and in the same folder, after an orderly
    /// [`shutdown`](Self::shutdown) if it is still running. Returns once it answers and has loaded its data,
    /// at most 30 s after the shutdown. Without `appendonly` it comes up empty.
    ///
    /// # Errors
    ///
    /// If the server cannot be shut down or started, for example because the port was taken meanwhile.
    pub fn restart(&self) -> io::Result<()> {
        self.shutdown()?;
        let mut process = self.process.lock();
        let end = Instant::now() + START_LIMIT;
        loop {
            match self.start_process() {
                Ok(started) => {
                    *process = Some(started);
                    return Ok(());
                }
                // An outgoing connection may use the port for a moment.
                Err(StartError::PortTaken) if Instant::now() < end => thread::sleep(START_POLL),
                Err(StartError::Interrupted) => {}
                Err(StartError::PortTaken) => {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        format!("port {} was taken while the server was down", self.port()),
                    ));
                }
                Err(StartError::Other(error)) => return Err(error),
            }
        }
    }

    fn with_process<T>(&self, act: impl FnOnce(&mut Guarded) -> io::Result<T>) -> io::Result<T> {
        match self.process.lock().as_mut() {
            Some(process) => act(process),
            None => Err(io::Error::new(io::ErrorKind::NotConnected, "redis-server does not run")),
        }
    }

    fn connect(&self, limit: Duration) -> RedisResult<Connection> {
        let info = self.url().into_connection_info()?;
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(limit)?;
        connection.set_read_timeout(Some(limit))?;
        connection.set_write_timeout(Some(limit))?;
        Ok(connection)
    }

    fn tls_args(&self) -> Vec<String> {
        let both = self.options.tls.iter().zip(self.tls_port());
        let options = both.flat_map(|(files, port)| files.options(port));
        let mut args: Vec<_> = options.flat_map(|(key, value)| [format!("--{key}"), value]).collect();
        if !args.is_empty() && self.options.cluster_bus {
            // Otherwise the bus port would be derived from the TLS port.
            let bus = self.bus_port().to_string();
            args.extend(["--tls-cluster", "yes", "--cluster-port", &bus].map(str::to_owned));
        }
        args
    }

    /// Makes one attempt to start the process on its ports.
    fn start_process(&self) -> Result<Guarded, StartError> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let log_start = log.metadata()?.len();
        let errors = log.try_clone()?;
        let folder = self.folder.path();
        let mut process = Guarded::spawn(&self.program, Some(folder), |command| {
            command
                .args(["--save", "", "--appendonly", "no"])
                .args(["--bind", "127.0.0.1", "--enable-debug-command", "local"])
                .args(["--port", &self.port().to_string(), "--dir"])
                .arg(folder)
                .args(self.tls_args())
                .args(&self.options.args)
                // What is preloaded into a test is not meant for a server, which may use another C library.
                .env_remove("LD_PRELOAD")
                .envs(self.options.env.iter().map(|(name, value)| (name, value)))
                .stdout(log)
                .stderr(errors);
            if self.options.unix_socket {
                command.arg("--unixsocket").arg(self.socket());
            }
            if let Some(password) = &self.options.password {
                command.args(["--requirepass", password]);
            }
        })?;
        let end = Instant::now() + START_LIMIT;
        loop {
            let ended = process.try_wait()?;
            if ended.is_none() {
                match self.answering_process() {
                    Some(pid) if pid == process.pid() => return Ok(process),
                    // If another server answers there, ours cannot have the port.
                    Some(_) => return Err(StartError::PortTaken),
                    None => {}
                }
            }
            if ended.is_some() || Instant::now() >= end {
                let log = self.log_since(log_start);
                if ended.is_some() && log.contains("Failed listening on port") {
                    return Err(StartError::PortTaken);
                }
                let what = match ended {
                    Some(status) => format!("ended ({status})"),
                    None => format!("did not answer within {START_LIMIT:?}"),
                };
                return Err(StartError::Other(io::Error::other(format!(
                    "redis-server on port {} {what}; the end of its log:\n{}",
                    self.port(),
                    tail(&log)
                ))));
            }
            thread::sleep(START_POLL);
        }
    }

    /// The process id of the Redis that answers on this port and has loaded its data, if there is one.
    fn answering_process(&self) -> Option<u32> {
        let mut connection = self.connect(Duration::from_millis(500)).ok()?;
        let info: String = redis::cmd("INFO").query(&mut connection).ok()?;
        farewell(&mut connection).ok()?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        if field("loading:") != Some("0") {
            return None;
        }
        field("process_id:")?.trim().parse().ok()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    fn log_since(&self, start: u64) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let start = usize::try_from(start).unwrap_or(0).min(log.len());
        String::from_utf8_lossy(&log[start..]).into_owned()
    }
}

/// Looks for the program before a shell does, to give a clear error message.
pub(super) fn find_program() -> io::Result<PathBuf> {
    let program = std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into());
    let folders = std::env::var_os("PATH").unwrap_or_default();
    locate(&program, &folders).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} was not found: install Redis 7.0 or later (Debian: apt-get install \
                 redis-server) or name the program in {PROGRAM}",
                Path::new(&program).display()
            ),
        )
    })
}

fn locate(program: &OsStr, folders: &OsStr) -> Option<PathBuf> {
    // Joining an absolute path gives that path.
    let candidates = std::env::split_paths(folders).map(|folder| folder.join(program));
    candidates.into_iter().find(|path| path.is_file())
}

/// Percent-encodes every character that may have a meaning in a URL.
pub(super) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_all_folders() {
        assert_eq!(locate("sh".as_ref(), "/nowhere:/bin".as_ref()), Some("/bin/sh".into()));
        assert_eq!(locate("/bin/sh".as_ref(), "/nowhere".as_ref()), Some("/bin/sh".into()));
        assert_eq!(locate("no-such-program".as_ref(), "/bin".as_ref()), None);
    }

    #[test]
    fn passwords_are_encoded() {
        assert_eq!(encode("a-Z9 /@%é"), "a-Z9%20%2F%40%25%C3%A9");
    }
}
