//! A server with a clock of its own, which can be set while it runs.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::process::Command;

use redis_concurrent_testkit::RedisServer;
use tempfile::TempDir;

pub const HOUR: i64 = 3600;

/// Its clock is the machine's and so many seconds more.
pub struct SteppedServer {
    server: RedisServer,
    offset: File,
    _folder: TempDir,
}

impl SteppedServer {
    /// Starts one with the machine's time.
    pub fn start() -> SteppedServer {
        let folder = tempfile::Builder::new().prefix("clock-").tempdir().unwrap();
        let (library, file) = (folder.path().join("clock.so"), folder.path().join("offset"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/clock_steps/clock.c");
        let cc =
            Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(cc.expect("the C compiler that Rust links with").success());
        std::fs::write(&file, 0i64.to_ne_bytes()).unwrap();
        let builder = RedisServer::builder().env("LD_PRELOAD", &library).env("CLOCK_OFFSET_FILE", &file);
        let server = builder.start().unwrap();
        let offset = File::options().write(true).open(&file).unwrap();
        let server = SteppedServer { server, offset, _folder: folder };
        server.set_clock(HOUR);
        assert!((server.seconds() - now() - HOUR).abs() < HOUR / 2, "its clock is not set by {library:?}");
        server.set_clock(0);
        server
    }

    /// Sets its clock to so many seconds after the machine's.
    pub fn set_clock(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn seconds(&self) -> i64 {
        let (seconds, _): (i64, i64) =
            redis::cmd("TIME").query(&mut self.server.connection().unwrap()).unwrap();
        seconds
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

impl Deref for SteppedServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}
