//! Child processes.

use std::path::Path;

use redis_concurrent_testkit::*;

use super::{LONG, SHORT, exists};
use crate::support::alone;

#[test]
#[ignore = "a role, played by a child process"]
fn role_echo() {
    if is_role("harness::child::role_echo") {
        println!("noise");
        tell_parent(&std::env::var("GREETING").unwrap()).unwrap();
        while let Some(line) = hear_parent().unwrap() {
            assert_ne!(line, "fail");
            if line == "end" {
                return;
            }
            tell_parent(&line).unwrap();
        }
    }
}

fn echo() -> Child {
    let child = Child::spawn("harness::child::role_echo", &[("GREETING", "hello, you")]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "hello, you");
    child
}

#[test]
fn a_child_hears_and_answers() {
    let mut child = echo();
    for word in ["one", "two words"] {
        child.say(word).unwrap();
        assert_eq!(child.read_line_within(LONG).unwrap(), word);
    }
    let error = child.read_line_within(SHORT).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("noise"), "{error}");
    assert!(child.wait_within(SHORT).is_err());
    child.say("end").unwrap();
    assert!(child.wait_within(LONG).unwrap().success());
}

#[test]
fn a_child_is_stopped_and_goes_on() {
    let mut child = echo();
    child.stop().unwrap();
    child.say("later").unwrap();
    assert!(child.read_line_within(SHORT).is_err());
    child.cont().unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "later");
}

#[test]
fn a_child_that_fails_or_is_killed_is_no_success() {
    let mut child = echo();
    child.say("fail").unwrap();
    assert!(!child.wait_within(LONG).unwrap().success());
    let mut child = echo();
    child.stop().unwrap();
    assert!(!child.kill9().unwrap().success());
    let error = child.read_line_within(LONG).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(child.stop().is_err());
}

#[test]
fn a_dropped_child_is_gone() {
    let child = echo();
    let pid = child.pid();
    drop(child);
    assert!(!exists(pid));
}

/// How many processes of this one would kill an orphaned child.
fn watchdogs() -> usize {
    let ours = format!(" {} ", std::process::id());
    let is_one = |process: &Path| {
        let read = |file| std::fs::read_to_string(process.join(file)).unwrap_or_default();
        let (stat, command) = (read("stat"), read("cmdline"));
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.get(2..).is_some_and(|it| it.starts_with(&ours)))
            && command.contains("watchdog")
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(|it| is_one(&it.path())).count()
}

/// A watchdog that outlived its child would kill whatever process has that id then.
#[test]
fn a_child_that_has_ended_has_no_watchdog() {
    alone("harness::child::a_child_that_has_ended_has_no_watchdog", || {
        let mut children = [echo(), echo(), echo()];
        assert_eq!(watchdogs(), 3);
        children[0].say("end").unwrap();
        assert!(children[0].wait_within(LONG).unwrap().success());
        assert_eq!(watchdogs(), 2);
        children[1].kill9().unwrap();
        assert_eq!(watchdogs(), 1);
    });
}

#[test]
fn an_unknown_role_is_noticed() {
    let child = Child::spawn("harness::child::role_nobody_plays", &[]).unwrap();
    let error = child.read_line_within(LONG).unwrap_err().to_string();
    assert!(error.contains("running 0 tests"), "{error}");
}
