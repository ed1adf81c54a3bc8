//! The user that the pages tell to make, and one with fewer rights.

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::stage::{LONG, client, done};

/// The words of the page that make the user.
fn listed() -> impl Iterator<Item = &'static str> {
    let (_, words) =
        include_str!("../../../docs/operations.md").split_once("redis-cli ACL SETUSER locks ").unwrap();
    let (words, _) = words.split_once("```").unwrap();
    words.split_whitespace().filter(|word| *word != "\\").map(|word| word.trim_matches('\''))
}

/// The URL of a user with these rights, and then `more`.
fn with_rights(server: &RedisServer, more: &[&str]) -> String {
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("locks").arg("reset").arg(listed().collect::<Vec<_>>()).arg(more);
    user.exec(&mut server.connection().unwrap()).unwrap();
    format!("redis://locks:secret@127.0.0.1:{}/", server.port())
}

fn uptime(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO").arg("server").query(&mut server.connection().unwrap()).unwrap();
    let up = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
    up.trim().parse().unwrap()
}

#[test]
fn a_flush_is_waited_out_by_the_user_of_the_pages() {
    let server = RedisServer::start().unwrap();
    let url = with_rights(&server, &[]);
    // Old enough for its start to be no reason to wait.
    wait_until(LONG, "the server is older than a lease", || uptime(&server) > 3);
    let run = || done(&url, &["run", "--lease", "2s", "x", "true"]).ends(0);
    let waits = "may have forgotten a holder: waiting";
    assert_eq!(run().err, "");
    server.flush_all().unwrap();
    let it = run().says(waits);
    assert!(!it.err.contains("cannot be marked"), "{it:?}");
    // The mark is older than a lease by now; no list shows it.
    assert_eq!(run().err, "");
    assert_eq!(
        done(&server.url(), &["ls", "--all", "--at", "*"]).ends(0).out.matches("cli-since").count(),
        0
    );
    // Where none can be left, it is always waited for.
    let url = with_rights(&server, &["resetkeys", "~rc:{x}*"]);
    for _ in 0..2 {
        let began = std::time::Instant::now();
        done(&url, &["run", "--lease", "2s", "x", "true"]).ends(0).says(waits).says("cannot be marked there");
        assert!(began.elapsed().as_secs_f64() > 1.9);
    }
}

#[test]
fn what_looks_at_locks_names_the_right_that_it_lacks() {
    let server = RedisServer::start().unwrap();
    let _held = client(&server).reentrant_lock("x").lock_owned().unwrap();
    let url = with_rights(&server, &["+scan"]);
    for args in [&["show", "x"][..], &["ls"], &["break", "x", "--whoever"]] {
        done(&url, args).ends(77).says("'type'");
    }
    let url = with_rights(&server, &["+type", "+scan"]);
    for args in [&["show", "x"][..], &["ls"], &["break", "x", "--whoever"]] {
        done(&url, args).ends(0);
    }
}
