//! A program that uses the library runs under valgrind, for who hunts a leak of their own.

use std::process::Command;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::RedisServer;

const ROLE: &str = "valgrind::role_pair";
const URL: &str = "VALGRIND_URL";

#[test]
#[ignore = "a role, played by a child process"]
fn role_pair() {
    let Ok(url) = std::env::var(URL) else { return };
    // The clock of a program under valgrind is some fifty times slower.
    let patient = Duration::from_secs(60);
    let client = Client::builder().url(&url).connect_timeout(patient).command_timeout(patient).lease(patient);
    let client = client.connect().unwrap();
    client.simple_lock("stock").lock().unwrap().unlock().unwrap();
    client.reentrant_lock("stock").try_lock().unwrap().unwrap().unlock().unwrap();
    client.close().unwrap();
    println!("a pair of each");
}

#[test]
fn a_pair_under_valgrind_neither_dies_nor_leaks() {
    let server = RedisServer::start().unwrap();
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--error-exitcode=99", "--num-callers=40"])
        .args(["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=none"])
        .arg(std::env::current_exe().unwrap())
        .args([ROLE, "--exact", "--nocapture", "--include-ignored"])
        .env(URL, server.url());
    let output = match valgrind.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("NOT TRIED: there is no valgrind (ci/setup.sh valgrind): {error}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // What the test runner itself leaks is not ours.
    let leaks = err.contains("redis_concurrent::");
    let held = output.status.success() && out.contains("a pair of each") && !leaks;
    assert!(held, "{}\n{out}\n{err}", output.status);
}
