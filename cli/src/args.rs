//! The command line: the options, the help and the man page are generated from this file.

use std::env::{self, VarError};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::duration::parse as duration;
use crate::exit::{Failure, code};

/// Hold distributed locks from the shell, inspect them, and take them from their holders.
#[derive(Parser, Debug)]
#[command(name = "redis-concurrent", version, max_term_width = 80, disable_help_subcommand = false)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  # every node's crontab: one of them runs it
  redis-concurrent run --skip --at-least 50s nightly:report -- /opt/report
  # a node that fails leaves it to another
  redis-concurrent run --skip --once-for 20h nightly:invoice -- /opt/invoice
  # one migrates, the others wait for it
  redis-concurrent run -w 10m migrate -- ./migrate up
  # at most 3 in the fleet
  redis-concurrent run --slots 3 gpu -- train.sh
  # a hot standby
  redis-concurrent run leader:scheduler -- ./scheduler

Durations are 500ms, 30s, 5m, 1h30m; a bare number is seconds.";

impl Args {
    /// Sets what is not given from the environment. (To the parser a variable that is set is an option that is
    /// given: it would show it in the usage of each error.)
    pub fn with_environment(mut self) -> Result<Args, Failure> {
        let global = &mut self.global;
        for (option, name) in
            [(&mut global.url, "REDIS_URL"), (&mut global.namespace, "REDIS_CONCURRENT_NAMESPACE")]
        {
            if option.is_none() {
                *option = variable(name)?;
            }
        }
        Ok(self)
    }
}

/// Returns a variable, if it is set. One that is not UTF-8 must not pass for one that is not: a lock at the default
/// server, or in the default namespace, keeps nobody out.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::new(code::CONFIG, format!("${name} is not UTF-8"))),
    }
}

impl Global {
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("rc")
    }
}

/// Options of all commands.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The server [default: $REDIS_URL, or redis://127.0.0.1/]
    ///
    /// Alternatively, its Unix socket, redis+unix:///PATH, the primary that sentinels name,
    /// redis+sentinel://HOST:PORT,HOST:PORT/NAME, or a Redis Cluster, by some of its nodes,
    /// redis+cluster://HOST:PORT,HOST:PORT.
    ///
    /// All users of the machine can see a password in an argument: use the variable, $REDISCLI_AUTH, or
    /// --url-file.
    #[arg(short, long, global = true)]
    pub url: Option<String>,
    /// A file whose first line is the URL; rejected if other users may read it
    ///
    /// A group may read it if it is one of yours, or the file is root's, as a mounted secret is. The user and the
    /// password are read anew at each connection, so they may change meanwhile.
    #[arg(long, global = true, value_name = "FILE")]
    pub url_file: Option<PathBuf>,
    /// All users may read the --url-file
    #[arg(long, global = true, requires = "url_file")]
    pub public_url_file: bool,
    /// PEM certificates of the authorities that the server's is by, for rediss:// [default: $SSL_CERT_FILE, or
    /// Mozilla's]
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// The program's own PEM certificate, for a server that asks for one
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The prefix of all keys [default: $REDIS_CONCURRENT_NAMESPACE, or rc]
    #[arg(long, global = true, value_name = "NS")]
    pub namespace: Option<String>,
    /// Print one JSON object per line; times are RFC 3339, durations seconds, tokens strings
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Report progress on standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Box<Run>),
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Break(Break),
    /// List the circles of threads that wait for each other's locks; exits 1 if there is one
    ///
    /// Looks at all locks of the namespace, and only reads. A circle that just ended may be among them.
    Deadlocks,
    /// List the members under a name: value, process, since when; exits 1 if there are none
    Members(Shared),
    /// List who owns which partition of a name, and who is to; exits 1 if nobody shares them
    ///
    /// Asks once, and once for each partition. A partition is owned by nobody while it is on its way.
    Partitions(Shared),
    /// Check whether the servers are fit for locks: exits 0, 1 with a warning, 2 with a failure
    ///
    /// Checks each primary of a cluster, and each sentinel.
    Doctor,
    Bench(Bench),
    /// Print the completions of a shell, to be put where the shell looks for them
    Completions {
        shell: clap_complete::Shell,
    },
    /// Print the man page of the program, or of a command
    Man {
        command: Option<String>,
    },
}

/// List the locks that are held, by whom, and since when.
///
/// Prints one line per lock, permit or reservation, the oldest first. HOLDER is PID@HOST LABEL, or the owner
/// text that another program wrote. It ends in "stays" if the lock was released but is kept for the rest of a
/// set time. Uses SCAN, and only reads.
#[derive(ClapArgs, Debug)]
pub struct Ls {
    /// Only names that contain one of these
    pub filters: Vec<String>,
    /// Also names that nobody holds
    #[arg(long)]
    pub all: bool,
    /// Only locks with waiters
    #[arg(long)]
    pub waiting: bool,
    /// Only kinds whose name contains this
    #[arg(long)]
    pub kind: Option<String>,
    /// Only holders on this host
    #[arg(long)]
    pub host: Option<String>,
    /// Only holders whose label contains this
    #[arg(long)]
    pub label: Option<String>,
    /// Only holders of at least this age
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub older: Option<Duration>,
    /// Also string keys outside the namespace that match this SCAN pattern
    #[arg(long, value_name = "PATTERN")]
    pub at: Option<String>,
    /// Inspect at most N locks per second [default: no limit]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub rate: u32,
    /// Also Redisson locks, getLock(NAME), at keys that match this SCAN pattern
    #[arg(long, value_name = "PATTERN")]
    pub redisson: Option<String>,
    /// Do not shorten lines to the width of the terminal
    #[arg(long)]
    pub wide: bool,
    /// Print only the names
    #[arg(long, conflicts_with = "json")]
    pub names: bool,
    /// Exit 1 if the list is empty
    #[arg(long)]
    pub exit_code: bool,
}

/// Show everything about a name: kind, holders, waiters, counts, keys.
///
/// Exits 1 if the name does not exist.
#[derive(ClapArgs, Debug)]
pub struct Show {
    /// The name of a lock, a semaphore, an inventory, ...
    pub name: String,
    /// NAME is a literal Redis key
    #[arg(long)]
    pub at: bool,
    /// NAME is that of a Redisson lock, getLock(NAME)
    #[arg(long, conflicts_with = "at")]
    pub redisson: bool,
}

/// What processes of `redis-concurrent-partitions` share.
#[derive(ClapArgs, Debug)]
pub struct Shared {
    /// The name of the members, or of the partitions
    pub name: String,
}

/// Print a line whenever a holder or the number of waiters changes.
///
/// Runs until it is interrupted, and prints time, name, from -> to, held for, waiting. A change that lasts
/// less than the time between two looks may be missed. Does not use MONITOR.
#[derive(ClapArgs, Debug)]
pub struct Watch {
    /// Only these locks [default: all]
    pub names: Vec<String>,
    /// How often to look
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "1s")]
    pub every: Duration,
    /// Do not shorten lines to the width of the terminal
    #[arg(long)]
    pub wide: bool,
}

/// Take a lock from its holder.
///
/// Notifies the holder, with the reason and the operator's name. Others get the lock when the holder's work
/// has ended, as far as that is known: once `run` has stopped its command (SIGTERM, SIGKILL after --grace),
/// or otherwise when the lease expires, which is no longer renewed. A holder that another library wrote cannot
/// be stopped so: that needs --now. If a different holder has the lock now,
/// nothing is changed (exit status 75). Permits of a semaphore, or goods of an inventory, are returned;
/// counts are never changed. Exits 0 if the lock was taken away, 1 if nobody holds it.
#[derive(ClapArgs, Debug)]
#[command(group = clap::ArgGroup::new("whose").required(true))]
pub struct Break {
    /// The lock's name
    pub name: String,
    /// NAME is a literal Redis key, of a plain string lock
    #[arg(long)]
    pub at: bool,
    /// NAME is that of a Redisson lock, getLock(NAME)
    #[arg(long, conflicts_with = "at")]
    pub redisson: bool,
    /// Only from this owner, as show prints it
    #[arg(long, group = "whose")]
    pub owner: Option<String>,
    /// Only from the holder with this token
    #[arg(long, value_name = "N", value_parser = token, group = "whose")]
    pub token: Option<u64>,
    /// From its current holders, whoever they are
    #[arg(long, group = "whose")]
    pub whoever: bool,
    /// The reason that the holder is given
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Grant the lock to the next waiter at once, even if the holder's work still runs
    #[arg(long)]
    pub now: bool,
    /// Do not ask for confirmation; needed where there is no terminal to ask on
    #[arg(long)]
    pub yes: bool,
}

/// Measure the latencies of this server from here, in a namespace of its own that is removed afterwards.
///
/// Measures PING, a lock and unlock, a hand-off, and how late renewals are sent; prints p50, p99, max and the
/// multiple of PING for each.
#[derive(ClapArgs, Debug)]
pub struct Bench {
    /// For how long, in total
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "8s")]
    pub seconds: Duration,
}

/// Run a command while holding a lock.
///
/// Waits for NAME, runs COMMAND while holding it, releases it, and exits with COMMAND's exit status. COMMAND
/// is executed as it is, without a shell. It is dead before another caller can hold the lock.
#[derive(ClapArgs, Debug)]
#[command(after_help = RUN_HELP)]
pub struct Run {
    /// The lock's name
    pub name: String,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        required_unless_present = "shell"
    )]
    pub command: Vec<OsString>,
    /// Run this text with $SHELL -c (or /bin/sh), instead of a COMMAND
    #[arg(short = 'c', value_name = "SHELL COMMAND", conflicts_with = "command")]
    pub shell: Option<OsString>,

    /// Do not wait for a holder
    #[arg(short, long, help_heading = GETTING)]
    pub nonblock: bool,
    /// Wait at most this long for a holder [default: forever]
    #[arg(short, long, value_name = "DUR", value_parser = duration, conflicts_with = "nonblock", help_heading = GETTING)]
    pub wait: Option<Duration>,
    /// How long to tolerate an unreachable server
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10s", help_heading = GETTING)]
    pub bear: Duration,
    /// Do not wait a lease on a server that was started, flushed or promoted a moment ago: for a try-out
    #[arg(long, help_heading = GETTING)]
    pub trust_server: bool,
    /// Exit N if the lock is busy
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::code::BUSY, help_heading = GETTING)]
    pub busy_exit: u8,
    /// Do not wait, and exit 0 if the lock is busy: for cron, that is no failure
    #[arg(long, conflicts_with_all = ["wait", "busy_exit"], help_heading = GETTING)]
    pub skip: bool,
    /// The exclusive mode of a read/write lock: --kind write
    #[arg(short = 'x', conflicts_with_all = ["shared", "kind"], help_heading = GETTING)]
    pub exclusive: bool,
    /// The shared mode of a read/write lock: --kind read
    #[arg(short = 's', conflicts_with = "kind", help_heading = GETTING)]
    pub shared: bool,
    /// The kind of lock [default: reentrant]
    #[arg(long, value_enum, help_heading = GETTING)]
    pub kind: Option<LockKind>,
    /// NAME is a literal Redis key, a plain string lock shared with redis-py, redsync, Laravel, ShedLock, ...
    #[arg(long, conflicts_with_all = ["kind", "exclusive", "shared", "slots"], help_heading = GETTING)]
    pub at: bool,
    /// NAME is that of a Redisson lock, getLock(NAME)
    #[arg(long, conflicts_with_all = ["kind", "exclusive", "shared", "slots", "at"], help_heading = GETTING)]
    pub redisson: bool,
    /// NAME is a semaphore of N permits; acquire one. Where it had another number, the last one that is asked for counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)),
        conflicts_with_all = ["kind", "exclusive", "shared"], help_heading = GETTING)]
    pub slots: Option<u32>,
    /// Also lock NAME2, of the same kind (repeatable): all or none, without deadlocks
    #[arg(long, value_name = "NAME2", conflicts_with = "slots", help_heading = GETTING)]
    pub and: Vec<String>,
    /// Processes take turns strictly in order of arrival
    #[arg(long, help_heading = GETTING)]
    pub fair: bool,

    /// How long a dead holder blocks others; renewed every third of it while COMMAND runs
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "30s", help_heading = KEEPING)]
    pub lease: Duration,
    /// COMMAND gets SIGTERM when less than this of the lease is certain, SIGKILL at half of it, at most 2s
    /// before the end; at least 100ms, less than half of the lease [default: a sixth of it]
    #[arg(long, value_name = "DUR", value_parser = duration, help_heading = KEEPING)]
    pub grace: Option<Duration>,
    /// What to do when the lock is about to be lost
    #[arg(long, value_enum, default_value_t = OnLoss::Kill, help_heading = KEEPING)]
    pub on_loss: OnLoss,
    /// Exit N if COMMAND was stopped because the lock was lost or about to be lost
    #[arg(long, value_name = "N", default_value_t = crate::exit::code::LOST, help_heading = KEEPING)]
    pub lost_exit: u8,
    /// The longest that COMMAND may run: then SIGTERM, and SIGKILL after --grace
    #[arg(long, value_name = "DUR", value_parser = duration, help_heading = KEEPING)]
    pub at_most: Option<Duration>,

    /// Keep the lock for the rest of DUR, counted from the start, so that nodes with slow clocks do not run
    /// COMMAND again
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with = "slots", help_heading = LEAVING)]
    pub at_least: Option<Duration>,
    /// The same, but only if COMMAND exits 0; otherwise the lock is free at once, so that another node tries
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with_all = ["at_least", "slots"], help_heading = LEAVING)]
    pub once_for: Option<Duration>,

    /// The holder's name as others see it, the client name in the library [default: COMMAND, 60 characters]
    #[arg(long, value_name = "TEXT", help_heading = WORLD)]
    pub label: Option<String>,
    /// Keep COMMAND in the caller's process group, as where the caller has a terminal
    #[arg(long, help_heading = WORLD)]
    pub foreground: bool,
    /// Write one JSON line to this file descriptor at the end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..1_048_576), help_heading = WORLD)]
    pub status_fd: Option<u32>,
}

fn token(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a token is a number, at most {}", u64::MAX))
}

const GETTING: &str = "Getting it";
const KEEPING: &str = "Keeping it";
const LEAVING: &str = "Leaving it";
const WORLD: &str = "COMMAND's world";

const RUN_HELP: &str = "\
Environment of COMMAND:
  REDIS_CONCURRENT_LOCK, REDIS_CONCURRENT_NAMESPACE, REDIS_CONCURRENT_LEASE_MS,
  and REDIS_CONCURRENT_TOKEN (19 digits: compares as text and as a number); with
  --and also REDIS_CONCURRENT_TOKEN_1, ... A shared lock has no token. With
  --slots REDIS_CONCURRENT_SLOT, a number from 0 to N-1 that no other such
  command has, and its token as REDIS_CONCURRENT_TOKEN_1.

Signals:
  TERM HUP USR1 USR2 WINCH CONT are passed on; INT and QUIT, too, unless the
  terminal has sent them to COMMAND as well. While waiting, TERM HUP INT QUIT
  give the queue position up and end the program. A job that Ctrl-Z stops keeps
  its lock.

Exit status:
  0..255   COMMAND's
  128+n    COMMAND, or the program while it waited, was ended by signal n; INT,
           TERM, HUP and QUIT end the program itself
  64       usage
  69       Redis cannot be reached, or does not answer
  70       a bug: please report it
  74       standard output cannot be written (a full disk)
  75       busy (-E)
  77       Redis refuses a right, which the message names
  78       NAME, a setting, or another kind of lock at NAME
  80       COMMAND was stopped because the lock was about to be lost, or was lost
           (--lost-exit)
  124      --at-most was over
  126 127  COMMAND cannot be executed, was not found
  141      the reader of standard output has closed it
  An exit status of the program's own may also be COMMAND's: --status-fd tells.

A server that was started, flushed or promoted within a lease may have forgotten
a holder whose command still runs: COMMAND then starts when a lease is over,
with -n, -w and --skip, too. --trust-server does not wait for that.";

impl Run {
    /// Returns the names of all locks to hold.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.and)
    }

    /// Accepts `NAME -c TEXT`: to the parser, everything after NAME is COMMAND's, but no command is called
    /// `-c`.
    pub fn with_shell_behind_name(mut self) -> Run {
        if let [option, text] = &self.command[..]
            && option == "-c"
            && self.shell.is_none()
        {
            self.shell = Some(text.clone());
            self.command.clear();
        }
        self
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    Reentrant,
    Simple,
    Write,
    Read,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// SIGTERM, and SIGKILL shortly before the lock is lost
    Kill,
    /// SIGTERM only: COMMAND may continue without the lock
    Term,
    /// Only warn on standard error
    Warn,
}
