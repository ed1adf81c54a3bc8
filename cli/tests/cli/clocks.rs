//! Wall clocks that are stepped by an hour while the command runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use redis_concurrent_testkit::{RedisServer, wait_until};
use tempfile::TempDir;

use crate::fixture::{LONG, Started, client, line_of, program};

const HOUR: i64 = 3600;

/// A wall clock for every process that is started with its environment.
struct Clock {
    offset: File,
    env: [(&'static str, PathBuf); 2],
    folder: TempDir,
}

impl Clock {
    fn new() -> Clock {
        let folder = tempfile::tempdir().unwrap();
        let (library, file) = (folder.path().join("clock.so"), folder.path().join("offset"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/faults/clock_steps/clock.c");
        let cc =
            Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(cc.expect("the C compiler that Rust links with").success());
        std::fs::write(&file, 0i64.to_ne_bytes()).unwrap();
        let offset = File::options().write(true).open(&file).unwrap();
        Clock { offset, env: [("LD_PRELOAD", library), ("CLOCK_OFFSET_FILE", file)], folder }
    }

    /// Sets it to this many seconds after the machine's.
    fn set(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Starts `run` with this clock, and returns once its command runs. The command prints the time by this
    /// clock, so how late it is, and ends when it may.
    fn run(&self, server: &RedisServer, name: &str) -> Started {
        let file = self.folder.path().join("in");
        let script = format!(
            "date +%s > {0}.new; mv {0}.new {0}; while [ ! -e {0}.go ]; do sleep 0.05; done; date +%s; exit 7",
            file.display()
        );
        let args = ["run", "--lease", "6s", "--status-fd", "2", name, "--", "sh", "-c", &script];
        let mut command = program(&server.url(), &args);
        command.envs(self.env.clone());
        let it = Started::new(command);
        line_of(&file);
        std::fs::remove_file(&file).unwrap();
        it
    }

    fn go(&self) {
        std::fs::write(self.folder.path().join("in.go"), "").unwrap();
    }
}

/// Waits until the hold was renewed twice.
#[track_caller]
fn renewed(server: &RedisServer, name: &str) {
    let lock = client(server).reentrant_lock(name);
    let left = || lock.holder().unwrap().and_then(|it| it.remaining).unwrap();
    for _ in 0..2 {
        let mut before = left();
        wait_until(LONG, "the hold is renewed", || {
            let grew = left() > before;
            before = left();
            grew
        });
    }
}

#[test]
fn a_step_of_the_clock_of_the_program_is_nothing_to_it() {
    let (clock, server) = (Clock::new(), RedisServer::start().unwrap());
    let it = clock.run(&server, "own");
    for hours in [1, -1] {
        clock.set(hours * HOUR);
        renewed(&server, "own");
    }
    clock.go();
    let it = it.done().ends(7).says(r#""lost":false"#);
    let ended: i64 = it.out.trim().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_secs() as i64 - HOUR - ended).abs() < HOUR / 2, "the clock was not stepped: {it:?}");
    let report: serde_json::Value =
        serde_json::from_str(it.err.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    assert!((0.0..60.0).contains(&report["held_s"].as_f64().unwrap()), "{report}");
}

#[test]
fn a_step_of_the_clock_of_the_program_makes_no_lease_longer() {
    let (clock, server) = (Clock::new(), RedisServer::start().unwrap());
    for hours in [1, -1] {
        clock.set(0);
        let it = clock.run(&server, "silent");
        clock.set(hours * HOUR);
        server.stop().unwrap();
        it.done().ends(80).says("of the lock are certain");
        server.cont().unwrap();
    }
}

/// As on a machine that has both. Leases are the server's, and end by its clock.
#[test]
fn a_step_of_the_servers_clock_ends_the_command_if_it_ends_the_lease() {
    let clock = Clock::new();
    let mut builder = RedisServer::builder();
    for (name, value) in &clock.env {
        builder = builder.env(name, value);
    }
    let server = builder.start().unwrap();
    let it = clock.run(&server, "both");
    clock.set(-HOUR);
    // The lease may last for an hour now, until a renewal sets it by the new time.
    wait_until(LONG, "the hold has its lease again", || {
        client(&server)
            .reentrant_lock("both")
            .holder()
            .unwrap()
            .and_then(|it| it.remaining)
            .unwrap()
            .as_secs()
            <= 6
    });
    renewed(&server, "both");
    clock.set(HOUR);
    it.done().ends(80).says("lease lost");
}
