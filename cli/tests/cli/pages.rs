//! The man page and the completions are those of the program that prints them.

use std::collections::BTreeSet;
use std::time::Duration;

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{LONG, client, done, program};

#[test]
fn completions_and_pages_know_the_options() {
    for shell in ["bash", "zsh", "fish"] {
        let it = done("redis://127.0.0.1:1/", &["completions", shell]).ends(0);
        assert!(it.out.contains("at-least") && it.out.contains("redis-concurrent"), "{shell}");
    }
    let whole = done("redis://127.0.0.1:1/", &["man"]).ends(0).out;
    assert!(whole.starts_with(".ie") && whole.contains("redis\\-concurrent\\-run(1)"), "{whole}");
    let page = done("redis://127.0.0.1:1/", &["man", "run"]).ends(0).out;
    assert!(page.contains("once\\-for") && page.contains("\\-\\-at\\-most was over"), "{page}");
    done("redis://127.0.0.1:1/", &["man", "nothing"]).ends(64).says("nothing");
    assert!(!format!("{whole}{page}").contains("127.0.0.1:1"), "nothing of the environment is in it");
}

#[test]
fn the_help_and_the_page_name_the_same_exit_statuses() {
    let between = |text: &str, from: &str, to: &str| -> BTreeSet<u8> {
        let (part, _) = text.split_once(from).unwrap().1.split_once(to).unwrap();
        part.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let mut help = done("redis://127.0.0.1:1/", &["run", "--help"]).ends(0).out;
    // The statuses of COMMAND.
    for theirs in ["0..255 ", "128+n "] {
        help = help.replace(theirs, "");
    }
    let help = between(&help, "Exit status:\n", "--status-fd tells");
    let page =
        between(include_str!("../../../docs/command-line.md"), "own exit statuses are", "`--status-fd`");
    assert_eq!(help, page);
    assert_eq!(page, BTreeSet::from([64, 69, 70, 74, 75, 77, 78, 80, 124, 126, 127, 141]));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let mut command = std::process::Command::new("bash");
    let script = format!("{} completions bash | true; echo ${{PIPESTATUS[0]}}", crate::fixture::PROGRAM);
    let it = crate::fixture::Done::of(command.args(["-c", &script]).output().unwrap());
    // All of it may fit into the pipe before the pipe closes.
    assert!(["141\n", "0\n"].contains(&&*it.out) && it.err.is_empty(), "{it:?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = crate::fixture::program("redis://127.0.0.1:1/", &["man", "run"]);
    let status = command.stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(141));
}

#[test]
fn a_list_that_nobody_reads_ends_quietly() {
    let server = RedisServer::start().unwrap();
    let lock = client(&server).reentrant_lock("job");
    let guard = lock.lock_owned().unwrap();
    let unread = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = program(&server.url(), args);
        command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    for args in [&["ls"][..], &["ls", "--json"], &["show", "job"], &["doctor"]] {
        let it = unread(args).wait_with_output().unwrap();
        assert_eq!((it.status.code(), &*it.stderr), (Some(141), &b""[..]), "{args:?}");
    }
    // It ends at the first line that it tries to write. Each state lasts for some of its looks, so that it sees both.
    let _ = guard.unlock();
    let mut watch = unread(&["watch", "--every", "20ms"]);
    let mut held = None;
    wait_until(LONG, "it ends", || {
        held = if held.is_none() { lock.try_lock_owned().unwrap() } else { None };
        std::thread::park_timeout(Duration::from_millis(60));
        watch.try_wait().unwrap().is_some()
    });
    assert_eq!(watch.wait().unwrap().code(), Some(141));
}
