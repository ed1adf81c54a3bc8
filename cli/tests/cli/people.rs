//! What is told to people: in words that a terminal shows as they are, and in lines that it has room for.

use std::process::{Command, Stdio};
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{Done, LONG, PROGRAM, Started, client, done, program, shared};

/// A title for the terminal, a backspace, a control character in UTF-8, and text from right to left.
const HOSTILE: &str = "a\u{1b}]0;b\u{7}c\u{8}d\u{9b}1me\u{202e}f\u{2066}g";

/// Whether a terminal would obey, or reorder, any of this.
fn is_obeyed(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n' || "\u{202e}\u{2066}".contains(c))
}

#[test]
fn what_others_wrote_is_escaped() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let theirs = Client::builder().url(&url).client_name("x").connect().unwrap();
    let lock = theirs.reentrant_lock(HOSTILE);
    let _held = lock.lock_owned().unwrap();
    let mut redis = server.connection().unwrap();
    let mut set = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis).unwrap();
    // As a client that does not keep to the protocol would write them.
    set(&["SET", "job", HOSTILE, "PX", "600000"]);
    set(&["HSET", "rc:{kind}", "kind", HOSTILE]);
    let key = format!("rc:{{{HOSTILE}}}");
    set(&["HSET", &key, "record", &format!("0 1 host{HOSTILE} label{HOSTILE}\tthread{HOSTILE}")]);
    set(&["SET", "rc:{bad}", "theirs"]);
    let all: &[&[&str]] = &[
        &["ls", "--all", "--at", "*"],
        &["ls", "--all", "--at", "*", "--json"],
        &["ls", "--all", "--names"],
        &["show", HOSTILE],
        &["show", HOSTILE, "--json"],
        &["show", "kind"],
        &["show", "no\u{1b}[2J"],
        &["show", "--at", "job"],
        &["run", "-v", "-n", HOSTILE, "true"],
        &["run", "-n", "bad\u{1b}", "--nothing\u{1b}", "true"],
        &["run", "-n", "bad", "true"],
        &["break", HOSTILE, "--whoever", "--yes", "--owner\u{1b}"],
        &["break", HOSTILE, "--token", "1", "--yes"],
        &["break", HOSTILE, "--whoever", "--yes"],
        &["break", HOSTILE, "--whoever", "--yes"],
        &["doctor"],
    ];
    for args in all {
        let it = done(&url, args);
        assert!(!is_obeyed(&it.out) && !is_obeyed(&it.err), "{args:?}: {it:?}");
        assert!(!it.out.is_empty() || !it.err.is_empty(), "{args:?}");
    }
}

#[test]
fn a_busy_lock_says_whose_it_is() {
    let server = RedisServer::start().unwrap();
    let (url, name) = (server.url(), "told");
    let holder = Client::builder().url(&url).client_name("backup.sh").connect().unwrap();
    let lock = holder.reentrant_lock(name);
    let guard = lock.lock_owned().unwrap();
    let message = format!("\"told\" is held by backup.sh {}@", std::process::id());
    done(&url, &["run", "-v", "-n", name, "true"]).ends(75).says(&message);
    assert_eq!(done(&url, &["run", "-n", name, "true"]).ends(75).err, "");
    let first = Started::new(program(&url, &["run", "--trust-server", "--lease", "4s", name, "true"]));
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    // While it waits, and at its end.
    let it = done(&url, &["run", "-v", "-w", "2500ms", name, "true"]);
    assert!([Some(75), Some(69)].contains(&it.code), "{it:?}");
    assert!(it.err.contains(&message) && it.err.contains(", 1 ahead"), "{it:?}");
    guard.unlock().unwrap();
    assert!(first.done().ends(0).err.is_empty());
    let it = done(&url, &["run", "-v", "--trust-server", name, "true"]).ends(0);
    let (_, after) = it.err.split_once("told was acquired after ").unwrap();
    let seconds: f64 = after.split_once(" s\n").unwrap().0.parse().unwrap();
    assert!(seconds < LONG.as_secs_f64() && it.err.lines().count() < 4, "{it:?}");
}

/// It would wait for itself.
#[test]
fn a_run_within_a_run_of_the_same_name_fails_at_once() {
    let server = RedisServer::start().unwrap();
    let nested = |outer: &[&str], inner: &[&str]| {
        let all = [&["run", "--trust-server"], outer, &[PROGRAM, "run", "--trust-server"], inner, &["true"]];
        done(&server.url(), &all.concat())
    };
    nested(&["nest"], &["nest"]).ends(78).says("\"nest\" is held by the run that has started this one");
    nested(&["nest", "--"], &["-w", "60s", "nest"]).ends(78);
    nested(&["--and", "b", "nest"], &["--and", "c", "b"]).ends(78).says("\"b\" is held");
    nested(&["-x", "rw"], &["-s", "rw"]).ends(78);
    nested(&["--slots", "1", "only"], &["-w", "20s", "--slots", "1", "only"])
        .ends(78)
        .says("\"only#slot0\" is held");
    nested(&["--slots", "2", "two"], &["--slots", "2", "two"]).ends(0);
    nested(&["nest"], &["-n", "nest"]).ends(75);
    nested(&["nest"], &["other"]).ends(0);
    nested(&["-s", "rw"], &["-s", "rw"]).ends(0);
    // What is inherited from a `run` that has ended says nothing.
    let mut later = program(&server.url(), &["run", "--trust-server", "nest", "true"]);
    later.env("REDIS_CONCURRENT_TOKEN", "0890865315643305984");
    Done::of(later.output().unwrap()).ends(0);
}

#[test]
fn a_young_server_can_be_trusted() {
    let server = RedisServer::start().unwrap();
    let began = std::time::Instant::now();
    let it = done(&server.url(), &["run", "--lease", "300s", "--trust-server", "young", "true"]).ends(0);
    assert!(began.elapsed() < Duration::from_secs(100) && it.err.is_empty(), "{it:?}");
    let mut waits = Started::new(program(&server.url(), &["run", "-n", "--lease", "300s", "young", "true"]));
    let lock = client(&server).reentrant_lock("young");
    wait_until(LONG, "it has the lock", || lock.is_locked().unwrap());
    waits.signal_if_running("TERM");
    let it = waits.done().ends(143);
    for way in ["--lease 300s", "--trust-server"] {
        assert!(it.err.contains(way), "{way}: {it:?}");
    }
}

#[test]
fn usage_errors_show_what_is_required() {
    for args in [&["run", "x"][..], &["show"], &["ls", "--nothing"]] {
        let mut command = program("redis://127.0.0.1:1/", args);
        let it = Done::of(command.env("REDIS_CONCURRENT_NAMESPACE", "ns").output().unwrap()).ends(64);
        let usage = it.err.lines().find(|line| line.contains("Usage:")).unwrap();
        assert!(!usage.contains("--url") && !usage.contains("--namespace"), "{usage}");
    }
    // The namespace is still that of the environment.
    let server = RedisServer::start().unwrap();
    let ns = Client::builder().url(&server.url()).namespace("ns").connect().unwrap();
    let _held = ns.reentrant_lock("there").lock_owned().unwrap();
    let mut ls = program(&server.url(), &["ls", "--names"]);
    assert_eq!(Done::of(ls.env("REDIS_CONCURRENT_NAMESPACE", "ns").output().unwrap()).out, "there\n");
    assert_eq!(done(&server.url(), &["ls", "--names", "--namespace", "rc"]).out, "");
}

#[test]
fn nothing_is_taken_away_unasked() {
    let server = RedisServer::start().unwrap();
    let guard = client(&server).reentrant_lock("asked").lock_owned().unwrap();
    done(&server.url(), &["break", "asked", "--whoever"]).ends(64).says("--yes");
    assert!(guard.renew().is_ok());
    done(&server.url(), &["break", "asked", "--whoever", "--yes"]).ends(0);
}

#[test]
fn locks_of_java_are_listed_and_the_value_of_a_leader_is_shown() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let client = client(&server);
    let _held = client.redisson_lock("java:stock").lock_owned().unwrap();
    redis::cmd("HSET").arg(&["java:map", "field", "1"]).exec(&mut server.connection().unwrap()).unwrap();
    let it = done(&url, &["ls", "--redisson", "java:*"]).ends(0);
    assert!(it.out.contains("java:stock  Redisson lock") && !it.out.contains("java:map"), "{it:?}");
    assert!(!done(&url, &["ls"]).out.contains("java"));
    let term = client.election("boss").value("10.0.0.7:8080").campaign().unwrap();
    assert!(done(&url, &["show", "boss"]).ends(0).out.contains("leader's value:\n  10.0.0.7:8080\n"));
    assert!(done(&url, &["show", "--json", "boss"]).out.contains(r#""value":"10.0.0.7:8080""#));
    term.resign().unwrap();
}

/// Names are completed, and never evaluated.
#[test]
fn names_are_completed() {
    let server = RedisServer::start().unwrap();
    let client = client(&server);
    let evil = "$(touch evil)`touch evil`;x";
    let _held =
        ["stock:42", "stock:43", "job", evil].map(|name| client.simple_lock(name).lock_owned().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let complete = |line: &str| {
        let script = format!(
            r#"PATH={bin}:$PATH; source <({PROGRAM} completions bash)
            COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
            IFS=' ' read -ra words <<< "${{COMP_LINE//:/ : }}"; [[ $COMP_LINE == *' ' ]] && words+=("")
            COMP_WORDS=("${{words[@]}}"); COMP_CWORD=$((${{#words[@]}} - 1)); COMPREPLY=()
            _redis-concurrent_names redis-concurrent "${{words[-1]}}" ""
            printf '%s\n' "${{COMPREPLY[@]}}""#,
            bin = std::path::Path::new(PROGRAM).parent().unwrap().display(),
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script])
            .current_dir(folder.path())
            .env("REDIS_URL", server.url())
            .stdin(Stdio::null());
        Done::of(bash.output().unwrap()).out
    };
    assert_eq!(complete("redis-concurrent show stock:4"), "42\n43\n");
    assert_eq!(complete("redis-concurrent run jo"), "job\n");
    let all = complete("redis-concurrent break ");
    assert!(all.contains("stock:42\n") && all.contains(r"\$\(touch\ evil\)"), "{all}");
    assert!(!folder.path().join("evil").exists());
    for (shell, calls) in [("fish", "ls --all --names"), ("zsh", ":_redis-concurrent_names'")] {
        assert!(done(&shared().url(), &["completions", shell]).out.contains(calls), "{shell}");
    }
}
