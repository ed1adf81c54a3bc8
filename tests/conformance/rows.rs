//! How a row becomes a test, and what must be so in its process when it is over.
//!
//! Each row runs in a process of its own, so that its threads and descriptors can be counted, on
//! all of its locks at once. The rows share one server, but each lock under test has a database and
//! a namespace of its own there, so that its keys, connections and channels can be counted too.

use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use redis_concurrent_testkit::{Child, RedisServer, is_role};

use crate::conformance::fixture::{Place, nothing};
use crate::support::{env, threads};

/// How long a row may take.
const ROW: Duration = Duration::from_secs(300);
/// How many rows run at a time. A row has up to two hundred threads: with more of them, a busy machine runs the server of
/// all rows so seldom that it does not reply within the command timeout.
const AT_A_TIME: usize = 6;
/// How many databases the server has: a new one for each lock of each row.
const DATABASES: &str = "2000";
/// Tell a row's process where to play.
const PORT: &str = "CONFORMANCE_PORT";
const FIRST_DATABASE: &str = "CONFORMANCE_FIRST_DATABASE";

/// A lock to play on: its name, and what plays a row there.
pub type Lock = (&'static str, fn(Place));

/// Makes tests of functions `fn row<K: Tried>(fixture: &Fixture<K>)`, in a module that tells which locks
/// they are played on: `every_lock` (both kinds, plain and fair), `reentrant_lock` and `simple_lock`
/// (plain and fair), `fair_lock` (both kinds), `one_lock` (the row makes its locks itself),
/// `read_write_lock` (plain and in order of arrival; the fixture is that of its write half).
macro_rules! rows {
    ($locks:ident: $($row:ident)*) => {
        mod $locks {
            $(
                #[test]
                fn $row() {
                    let test = concat!(module_path!(), "::", stringify!($row));
                    $crate::conformance::rows::run(test, &$crate::conformance::rows::locks!($locks, super::$row));
                }
            )*
        }
    };
}

/// A row on each of its locks.
macro_rules! locks {
    (every_lock, $row:path) => {
        $crate::conformance::rows::locks!($row, Reentrant plain, Reentrant fair, Simple plain, Simple fair)
    };
    (reentrant_lock, $row:path) => { $crate::conformance::rows::locks!($row, Reentrant plain, Reentrant fair) };
    (simple_lock, $row:path) => { $crate::conformance::rows::locks!($row, Simple plain, Simple fair) };
    (fair_lock, $row:path) => { $crate::conformance::rows::locks!($row, Reentrant fair, Simple fair) };
    (one_lock, $row:path) => { $crate::conformance::rows::locks!($row, Reentrant plain) };
    (read_write_lock, $row:path) => { $crate::conformance::rows::locks!($row, Write plain, Write fair) };
    ($row:path, $($kind:ident $order:ident),*) => {
        [$((
            concat!(stringify!($kind), " ", stringify!($order)),
            (|place| place.play::<redis_concurrent::kinds::$kind>(stringify!($order) == "fair", $row))
                as fn($crate::conformance::fixture::Place),
        )),*]
    };
}
pub(crate) use {locks, rows};

/// The server of all rows, there as long as a row is.
fn server() -> Arc<RedisServer> {
    static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock();
    server.upgrade().unwrap_or_else(|| {
        let new = Arc::new(RedisServer::builder().arg("databases", DATABASES).start().unwrap());
        *server = Arc::downgrade(&new);
        new
    })
}

/// Runs a row in another process, when fewer than [`AT_A_TIME`] do.
fn in_turn(row: impl FnOnce() -> io::Result<ExitStatus>) -> io::Result<ExitStatus> {
    static RUNNING: LazyLock<(Sender<()>, Receiver<()>)> = LazyLock::new(|| bounded(AT_A_TIME));
    let (begins, ends) = &*RUNNING;
    let _ = begins.send(());
    let status = row();
    let _ = ends.recv();
    status
}

/// Plays a row, in a process of its own, on all locks at once; then looks what is left of it there.
/// `test`: the full path of the test function.
pub fn run(test: &str, locks: &[Lock]) {
    static DATABASE: AtomicU32 = AtomicU32::new(1);
    let test = test.strip_prefix("faults::").unwrap();
    if !is_role(test) {
        let first = DATABASE.fetch_add(locks.len() as u32, Ordering::SeqCst).to_string();
        let server = server();
        let port = server.port().to_string();
        let played = || Child::spawn(test, &[(PORT, &port), (FIRST_DATABASE, &first)])?.wait_within(ROW);
        let status = in_turn(played).unwrap();
        assert!(status.success(), "{test}: {status}; what it said is above");
        return;
    }
    let (port, first): (u16, u32) = (env(PORT).parse().unwrap(), env(FIRST_DATABASE).parse().unwrap());
    let (threads_before, files_before) = (threads(""), files());
    thread::scope(|scope| {
        let players: Vec<_> = (first..)
            .zip(locks)
            .map(|(database, (lock, play))| {
                let place = Place { port, database };
                thread::Builder::new().name((*lock).to_owned()).spawn_scoped(scope, || play(place)).unwrap()
            })
            .collect();
        for player in players {
            player.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    nothing("more threads than before", || {
        let now = threads("");
        if now.len() > threads_before.len() { now } else { Vec::new() }
    });
    nothing("more descriptors than before", || {
        let now = files();
        if now.len() > files_before.len() { now } else { Vec::new() }
    });
}

/// What this process has open.
fn files() -> Vec<String> {
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    // The folder itself is open while we read it, but not when we ask.
    open.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned())).collect()
}
