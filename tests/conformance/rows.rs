//! How a row becomes a test, and what must be so in its process when it is over.
//!
//! Each row runs in a process of its own, so that its threads and descriptors can be counted, on
//! all of its locks at once. It has a server, but each lock under test has a database and a namespace of
//! its own there, so that its keys, connections and channels can be counted too.

use std::fs;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use redis_concurrent_testkit::{Child, RedisServer, is_role};

use crate::conformance::fixture::{Place, nothing};
use crate::support::{env, threads};

/// How long a row may take.
const ROW: Duration = Duration::from_secs(300);
/// Tells a row's process where to play.
const PORT: &str = "CONFORMANCE_PORT";

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

/// Plays a row, in a process of its own, on all locks at once; then looks what is left of it there.
/// `test`: the full path of the test function.
pub fn run(test: &str, locks: &[Lock]) {
    let test = test.strip_prefix("faults::").unwrap();
    if !is_role(test) {
        let server = RedisServer::start().unwrap();
        let mut child = Child::spawn(test, &[(PORT, &server.port().to_string())]).unwrap();
        let status = child.wait_within(ROW).unwrap();
        assert!(status.success(), "{test}: {status}; what it said is above");
        return;
    }
    let port: u16 = env(PORT).parse().unwrap();
    let (threads_before, files_before) = (threads(""), files());
    thread::scope(|scope| {
        let players: Vec<_> = (1..)
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
