//! A process that may not start threads: errors, and no panic.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use redis_concurrent::{ClientBuilder, ErrorKind};
use redis_concurrent_testkit::RedisServer;

use crate::support::{patiently, unhurried};

/// Set for a child: the server's URL.
const URL: &str = "SERVER_URL";

/// Plays `role` in a process of its own, with an ordinary user's rights: limits do not hold for root.
fn play(role: &str, program: &[&str]) {
    let server = RedisServer::start().unwrap();
    // This program may be where that user may not go: below root's home, for example. (Another process writes the copy:
    // a file that this one writes may be busy for longer, in a child of another test.)
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let this = folder.path().join("faults");
    let mut copy = Command::new("install");
    copy.args(["-m", "755"]).arg(std::env::current_exe().unwrap()).arg(&this);
    assert!(copy.status().unwrap().success());
    let mut command = Command::new("timeout");
    command.arg("60").args(program).arg(this);
    command.args([role, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"]);
    command.env(URL, server.url()).current_dir("/");
    if rustix::process::getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
}

#[test]
fn a_client_that_can_start_no_thread_is_an_error() {
    play("threads::role_connects", &["prlimit", "--nproc=1"]);
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_connects() {
    let Ok(url) = std::env::var(URL) else { return };
    for connect in [ClientBuilder::connect, ClientBuilder::connect_later] {
        let error = connect(unhurried(&url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("thread"), "{error}");
    }
}

#[test]
fn a_lock_that_no_thread_could_renew_is_an_error_and_is_not_held() {
    play("threads::role_locks", &[]);
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_locks() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = patiently(&url);
    let limit = ["--nproc=1", "--pid", &std::process::id().to_string()];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let lock = client.reentrant_lock("x");
    let error = lock.lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("thread"), "{error}");
    assert!(!lock.is_locked().unwrap());
    client.close().unwrap();
}
