//! A server, and the program on it.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisServer, wait_until};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-concurrent");
/// Far more than anything that happens at once takes.
pub const LONG: Duration = Duration::from_secs(30);

/// A server that tests share: each uses names of its own. It is old enough to be trusted with short leases.
#[track_caller]
pub fn shared() -> &'static RedisServer {
    static SERVER: std::sync::OnceLock<RedisServer> = std::sync::OnceLock::new();
    SERVER.get_or_init(|| RedisServer::start().unwrap())
}

/// Returns the program with these arguments, for this server.
pub fn program(url: &str, args: &[&str]) -> Command {
    // The tests inherit ignored signals, as of `nohup` or a shell's background, and the program would from
    // them.
    let mut command = Command::new("env");
    command
        .args(["--default-signal", PROGRAM])
        .args(args)
        .env("REDIS_URL", url)
        .env_remove("REDISCLI_AUTH")
        .env_remove("REDIS_CONCURRENT_NAMESPACE");
    command.stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn done(url: &str, args: &[&str]) -> Done {
    Done::of(program(url, args).output().unwrap())
}

/// `run` with a lease so short that a server that has just started is soon trusted, and so long that a
/// command that ends at once does not outlive it on a slow machine.
pub fn run(args: &[&str]) -> Done {
    done(&shared().url(), &[&["run", "--lease", "4s"], args].concat())
}

/// Waits until a client listens at this server, as a holder does from soon after its grant.
#[track_caller]
pub fn until_heard(server: &RedisServer) {
    let mut connection = server.connection().unwrap();
    wait_until(LONG, "the holder listens", || {
        let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut connection).unwrap();
        !channels.is_empty()
    });
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Done {
    pub fn of(output: Output) -> Done {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done { code: shown(output.status), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub fn says(self, what: &str) -> Done {
        assert!(self.err.contains(what), "{what:?} is missing: {self:?}");
        self
    }
}

/// Returns an exit status as a shell shows it.
pub fn shown(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| Some(128 + status.signal()?))
}

/// A running program, killed when dropped.
pub struct Started {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
}

impl Started {
    pub fn new(mut command: Command) -> Started {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().map(read_all);
        let err = child.stderr.take().map(read_all);
        Started { child, out, err }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends a signal, unless the process has ended and was waited for.
    pub fn signal_if_running(&mut self, name: &str) {
        if !self.has_ended() {
            self.signal(name);
        }
    }

    #[track_caller]
    pub fn ended(&mut self) {
        wait_until(LONG, "the program ends", || self.has_ended());
    }

    /// Waits for its end; returns its exit status, or the signal that ended it.
    #[track_caller]
    pub fn ends_with(mut self) -> String {
        self.ended();
        let status = self.child.wait().unwrap();
        status.code().or(status.signal()).unwrap().to_string()
    }

    #[track_caller]
    pub fn done(mut self) -> Done {
        wait_until(LONG, "the program ends", || self.child.try_wait().unwrap().is_some());
        let code = shown(self.child.wait().unwrap());
        let text = |it: &mut Option<JoinHandle<String>>| it.take().unwrap().join().unwrap();
        Done { code, out: text(&mut self.out), err: text(&mut self.err) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    })
}

/// Sends a signal by its name.
pub fn signal(pid: u32, name: &str) {
    assert!(kill(name, &pid.to_string()), "{name} to {pid}");
}

/// Sends a signal, by its name or number, to a process, or to the group whose id comes after a `-`. Returns whether there
/// was one. It is the shell that does it: not every system has a program `kill`.
pub fn kill(signal: &str, target: &str) -> bool {
    let sent = Command::new("sh").args(["-c", r#"kill -s "$1" -- "$2""#, "sh", signal, target]).output();
    sent.unwrap().status.success()
}

/// Whether a process with this id runs, and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits until the file has a line, which is returned.
#[track_caller]
pub fn line_of(file: &std::path::Path) -> String {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    wait_until(LONG, "the file has a line", || read().contains('\n'));
    read().lines().next().unwrap().to_owned()
}

pub fn client(server: &RedisServer) -> Client {
    Client::connect(&server.url()).unwrap()
}
