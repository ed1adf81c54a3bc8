//! The user that the pages say to create, and users with fewer rights.

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{LONG, Started, client, done, line_of, program, shared};

/// The words of the page that create the user.
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
    // So old that its start is no reason to wait.
    wait_until(LONG, "the server is older than a lease", || uptime(&server) > 4);
    let run = || done(&url, &["run", "--lease", "3s", "x", "true"]).ends(0);
    let waits = "may have forgotten a holder: waiting";
    assert_eq!(run().err, "");
    server.flush_all().unwrap();
    let it = run().says(waits);
    assert!(!it.err.contains("cannot be marked"), "{it:?}");
    // The mark is older than a lease now; no list shows it.
    assert_eq!(run().err, "");
    assert_eq!(
        done(&server.url(), &["ls", "--all", "--at", "*"]).ends(0).out.matches("cli-since").count(),
        0
    );
    // Where no mark can be left, the program always waits.
    let url = with_rights(&server, &["resetkeys", "~rc:{x}*"]);
    let began = std::time::Instant::now();
    done(&url, &["run", "--lease", "3s", "x", "true"]).ends(0).says(waits).says("cannot be marked there");
    assert!(began.elapsed().as_secs_f64() > 2.9);
}

/// What happens to one lock does not hide what happens to another.
#[test]
fn a_lost_lock_is_told_though_the_release_of_another_fails() {
    let server = shared();
    let url = with_rights(server, &["+type"]);
    let folder = tempfile::tempdir().unwrap();
    let [file, err, go] = ["in", "err", "go"].map(|name| folder.path().join(name));
    let script = format!("echo > {}; while [ ! -e {} ]; do sleep 0.05; done", file.display(), go.display());
    let terms = [
        "run",
        "--lease",
        "8s",
        "--on-loss",
        "warn",
        "--status-fd",
        "2",
        "--and",
        "rights:b",
        "rights:a",
        "-c",
    ];
    let mut command = program(&url, &[&terms[..], &[&script]].concat());
    let mut it = command.stderr(std::fs::File::create(&err).unwrap()).spawn().unwrap();
    line_of(&file);
    done(&url, &["break", "--yes", "rights:b", "--whoever"]).ends(0);
    let stderr = || std::fs::read_to_string(&err).unwrap();
    wait_until(LONG, "it is told", || stderr().contains("goes on without its lock"));
    // The remaining rights are enough for the lock that was lost.
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "locks", "resetkeys", "~rc:{rights:b}*"]);
    user.exec(&mut server.connection().unwrap()).unwrap();
    std::fs::write(go, "").unwrap();
    assert_eq!(it.wait().unwrap().code(), Some(80), "{}", stderr());
    assert!(stderr().contains("the lock was lost: \"rights:b\""), "{}", stderr());
    assert!(stderr().contains("may stay held") && stderr().contains("\"lost\":true"), "{}", stderr());
    assert!(
        !client(server).reentrant_lock("rights:b").is_locked().unwrap(),
        "it is not kept for a command that ended"
    );
}

#[test]
fn a_renewal_that_is_refused_before_the_command_is_told() {
    let server = RedisServer::start().unwrap();
    let url = with_rights(&server, &[]);
    // The server has just been started: the program waits while it holds the lock, and then needs a renewal.
    let waits = Started::new(program(&url, &["run", "-n", "--lease", "10s", "--grace", "4s", "x", "true"]));
    let mut redis = server.connection().unwrap();
    let (mut before, mut renewals) = (i64::MAX, 0);
    // The first renewal may come within a second: its lease would end before that wait does.
    wait_until(LONG, "the lock was renewed twice", || {
        let left: i64 = redis::cmd("PTTL").arg("rc:{x}").query(&mut redis).unwrap();
        // (PTTL is negative if the lock does not exist yet.)
        let was = std::mem::replace(&mut before, if left < 0 { i64::MAX } else { left });
        renewals += u32::from(was < left);
        renewals == 2
    });
    // Only for the lock's own key, so that the lock can be released.
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "locks", "-pexpire", "(~rc:{x}:* +pexpire)"]).exec(&mut redis).unwrap();
    waits.done().ends(69).says("the lease may or may not have been set");
}

#[test]
fn what_looks_at_locks_names_the_right_that_it_lacks() {
    let server = RedisServer::start().unwrap();
    let _held = client(&server).reentrant_lock("x").lock_owned().unwrap();
    let url = with_rights(&server, &["+scan"]);
    for args in [&["show", "x"][..], &["ls"], &["break", "--yes", "x", "--whoever"]] {
        done(&url, args).ends(77).says("'type'");
    }
    let url = with_rights(&server, &["+type", "+scan"]);
    for args in [&["show", "x"][..], &["ls"], &["break", "--yes", "x", "--whoever"]] {
        done(&url, args).ends(0);
    }
}

/// It does not need the rights of lists to try a lock, and prints the line that gives what is missing.
#[test]
fn doctor_knows_the_user_of_the_pages() {
    let server = RedisServer::builder().appendonly(true).start().unwrap();
    let doctor = |more: &[&str]| {
        let it = done(&with_rights(&server, more), &["doctor"]);
        let line = |check: &str| {
            let of = |line: &&str| line.split_whitespace().nth(1) == Some(check);
            it.out.lines().find(of).map(str::to_owned).unwrap_or_default()
        };
        (line("locks"), line("lists"), line("held"), it)
    };
    let (locks, lists, _, it) = doctor(&[]);
    assert!(locks.starts_with("ok") && lists.starts_with("warn"), "{it:?}");
    assert!(it.code == Some(1) && lists.ends_with("; redis-cli ACL SETUSER locks +scan +type"), "{it:?}");
    let (_, lists, held, it) = doctor(&["+scan", "+type"]);
    assert!(lists.is_empty() && held.starts_with("ok"), "{it:?}");
    // Within a script Redis 7.0 does not name the command: then all rights are named.
    let all: Vec<_> = listed().filter(|word| word.starts_with(['+', '~', '&'])).collect();
    for (less, gives) in [("-zadd", "+zadd"), ("-evalsha", "+evalsha"), ("resetkeys", "~rc:{*")] {
        let (locks, _, _, it) = doctor(&[less]);
        let (_, to_do) =
            locks.split_once("; redis-cli ACL SETUSER locks ").unwrap_or_else(|| panic!("{less}: {it:?}"));
        let given: Vec<_> = to_do.split(' ').map(|word| word.trim_matches('\'')).collect();
        assert!(locks.starts_with("fail") && given.contains(&gives), "{less}: {it:?}");
        assert!(given.len() == 1 || given == all, "{given:?} {all:?}");
    }
}
