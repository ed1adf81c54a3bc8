//! What the options of `run` do to the lock, and what the command knows about it.

use std::time::Duration;

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{LONG, Started, client, done, line_of, program, run, shared};

#[test]
fn the_command_knows_its_lock() {
    let it = run(&["--and", "env2", "env1", "sh", "-c", "env | grep ^REDIS_CONCURRENT | sort"]).ends(0);
    let lines: Vec<_> = it.out.lines().collect();
    assert_eq!(lines[0], "REDIS_CONCURRENT_LEASE_MS=4000");
    assert_eq!(lines[1..3], ["REDIS_CONCURRENT_LOCK=env1", "REDIS_CONCURRENT_NAMESPACE=rc"]);
    let token = |line: &str, name: &str| {
        let token = line.strip_prefix(&format!("REDIS_CONCURRENT_{name}=")).unwrap().to_owned();
        assert!(token.len() == 19 && token.parse::<u64>().unwrap() > 0, "{token}");
        token
    };
    let first = token(lines[3], "TOKEN");
    token(lines[4], "TOKEN_1");
    assert_eq!(lines.len(), 5);
    let next = run(&["env1", "sh", "-c", "echo $REDIS_CONCURRENT_TOKEN"]).ends(0).out;
    assert!(next.trim() > first.as_str(), "tokens grow, as texts too");
    assert_eq!(run(&["-s", "env3", "sh", "-c", "echo $REDIS_CONCURRENT_TOKEN"]).ends(0).out, "\n");
}

#[test]
fn a_lock_that_was_waited_for_has_its_whole_grace() {
    // More than the three seconds for which such a hold is granted at first.
    let terms = ["run", "--lease", "12s", "--grace", "3500ms"];
    let begin = |name| {
        Started::new(program(
            &shared().url(),
            &[&terms[..], &[name, "--", "sh", "-c", "sleep 0.5; exit 7"]].concat(),
        ))
    };
    // The command runs once the server is old enough; the hold is renewed during that wait.
    begin("grace").done().ends(7);
    let lock = client(shared()).reentrant_lock("grace");
    let guard = lock.lock().unwrap();
    let waits = begin("grace");
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    guard.unlock().unwrap();
    waits.done().ends(7);
}

#[test]
fn it_stays_for_the_rest_of_a_time() {
    run(&["--at-least", "60s", "least", "false"]).ends(1);
    run(&["-n", "least", "true"]).ends(75);
    let left =
        client(shared()).reentrant_lock("least").holder().unwrap().and_then(|it| it.remaining).unwrap();
    assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(60), "{left:?}");
}

#[test]
fn only_success_is_kept() {
    run(&["--once-for", "60s", "once", "false"]).ends(1);
    let status = format!("{}; echo $?", "true");
    run(&["--once-for", "60s", "once", "sh", "-c", &status]).ends(0);
    run(&["--skip", "--once-for", "60s", "once", "echo", "again"]).ends(0);
    run(&["-n", "once", "true"]).ends(75);
}

#[test]
fn kinds_exclude_as_they_do_in_programs() {
    let client = client(shared());
    let reader = client.read_write_lock("halves").read_lock().lock_owned().unwrap();
    run(&["-n", "-s", "halves", "true"]).ends(0);
    run(&["-n", "-x", "halves", "true"]).ends(75);
    run(&["-n", "--kind", "read", "halves", "true"]).ends(0);
    reader.unlock().unwrap();
    run(&["-n", "--kind", "write", "halves", "true"]).ends(0);
    let plain = client.simple_lock("plain").lock_owned().unwrap();
    run(&["-n", "--kind", "simple", "plain", "true"]).ends(75);
    plain.unlock().unwrap();
    let mut redis = shared().connection().unwrap();
    redis::cmd("SET").arg("job-lock:prod:a").arg("theirs").arg("PX").arg(60_000).exec(&mut redis).unwrap();
    run(&["-n", "--at", "job-lock:prod:a", "true"]).ends(75);
    run(&["-n", "--at", "job-lock:prod:b", "true"]).ends(0);
    let java = client.redisson_lock("java").lock_owned().unwrap();
    run(&["-n", "--redisson", "java", "true"]).ends(75);
    java.unlock().unwrap();
    run(&["-n", "--redisson", "java", "true"]).ends(0);
    // All or none.
    let busy = client.reentrant_lock("and2").lock_owned().unwrap();
    run(&["-n", "--and", "and2", "and1", "true"]).ends(75);
    run(&["-n", "and1", "true"]).ends(0);
    busy.unlock().unwrap();
    run(&["-n", "--fair", "--and", "and2", "and1", "true"]).ends(0);
}

#[test]
fn as_many_as_there_are_slots() {
    let url = shared().url();
    let sleep = |n: &str| program(&url, &["run", "--slots", "2", "--label", n, "slots", "sleep", "60"]);
    let both = ["one", "two"].map(|n| Started::new(sleep(n)));
    let semaphore = client(shared()).semaphore("slots");
    wait_until(LONG, "both run", || semaphore.holders().is_ok_and(|it| it.len() == 2));
    run(&["-n", "--slots", "2", "slots", "true"]).ends(75);
    let mut labels: Vec<_> =
        semaphore.holders().unwrap().into_iter().map(|it| it.process.unwrap().client_name).collect();
    labels.sort();
    assert_eq!(labels, ["one", "two"]);
    let [first, second] = both;
    first.signal("TERM");
    first.done().ends(143);
    run(&["-w", "30s", "--slots", "2", "slots", "true"]).ends(0);
    drop(second);
}

/// With its data the server loses how many slots there are, which all of its waiters find out.
#[test]
fn slots_are_waited_for_while_the_server_loses_its_data() {
    let server = RedisServer::start().unwrap();
    let semaphore = client(&server).semaphore("lost");
    semaphore.set_permits(1).unwrap();
    let _held = semaphore.acquire(1).unwrap();
    let args = ["run", "--lease", "4s", "--trust-server", "--slots", "1", "lost", "true"];
    let waiters = [(); 2].map(|()| Started::new(program(&server.url(), &args)));
    wait_until(LONG, "both wait", || semaphore.queue_length().unwrap() == 2);
    redis::cmd("FLUSHALL").exec(&mut server.connection().unwrap()).unwrap();
    for it in waiters {
        it.done().ends(0);
    }
}

#[test]
fn a_slot_has_a_number_that_no_other_holder_has() {
    let client = client(shared());
    let semaphore = client.semaphore("numbered");
    let folder = tempfile::tempdir().unwrap();
    let begin = |file: &str| {
        let file = folder.path().join(file);
        let script = format!(
            "echo $REDIS_CONCURRENT_SLOT ${{#REDIS_CONCURRENT_TOKEN_1}} > {}; exec sleep 60",
            file.display()
        );
        let args = ["run", "--lease", "4s", "--slots", "5", "numbered", "sh", "-c", &script];
        (Started::new(program(&shared().url(), &args)), file)
    };
    let (first, file) = begin("first");
    assert_eq!(line_of(&file), "0 19", "the number, and the length of its token");
    let (second, file) = begin("second");
    assert_eq!(line_of(&file), "1 19");
    // The permits of a program have no numbers.
    let two = semaphore.acquire(2).unwrap();
    let number = ["-n", "--slots", "5", "numbered", "sh", "-c", "echo $REDIS_CONCURRENT_SLOT"];
    assert_eq!(run(&number).ends(0).out, "2\n");
    two.release().unwrap();
    first.signal("TERM");
    first.done().ends(143);
    assert_eq!(run(&number).ends(0).out, "0\n");
    // Where none is free, one is waited for, with the permit.
    let taken =
        [0, 2, 3, 4].map(|it| client.simple_lock(&format!("numbered#slot{it}")).lock_owned().unwrap());
    run(&number).ends(75);
    run(&[&["-w", "1s"], &number[1..]].concat()).ends(75);
    assert_eq!(semaphore.available().unwrap(), 4, "the permits were given back");
    let waits = Started::new(program(&shared().url(), &[&["run", "--lease", "4s"], &number[1..]].concat()));
    wait_until(LONG, "it waits with its permit", || semaphore.available().unwrap() == 3);
    let [zero, ..] = taken;
    zero.unlock().unwrap();
    assert_eq!(waits.done().ends(0).out, "0\n");
    // The command ends with its number.
    done(&shared().url(), &["break", "numbered#slot1", "--whoever", "--yes", "--reason", "test"]).ends(0);
    second.done().ends(80).says("test");
    // The number of an enclosing lock is not this lock's.
    let mut inner = program(&shared().url(), &["run", "--lease", "4s", "inner", "env"]);
    let out = inner.env("REDIS_CONCURRENT_SLOT", "7").output().unwrap().stdout;
    assert!(!String::from_utf8(out).unwrap().contains("REDIS_CONCURRENT_SLOT"));
}

#[test]
fn the_end_is_told_to_a_file_descriptor() {
    let args = ["run", "--lease", "4s", "--once-for", "60s", "told", "sh", "-c", "exit 0"];
    let shell = format!("{} \"$@\" 3>&1 >/dev/null", crate::fixture::PROGRAM);
    let with = |args: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &shell, "sh"]).args(args).env("REDIS_URL", shared().url());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect(text);
    let args = [&["run", "--status-fd", "3"], &args[1..]].concat();
    let first = parsed(&with(&args));
    assert_eq!(
        (&first["acquired"], &first["child"]["code"], &first["lost"]),
        (&true.into(), &0.into(), &false.into())
    );
    assert!(
        first["token"].as_str().unwrap().len() == 19 && first["stays_s"].as_f64().unwrap() > 10.0,
        "{first}"
    );
    let second = parsed(&with(&["run", "--status-fd", "3", "-n", "told", "true"]));
    assert_eq!(
        (&second["acquired"], &second["child"], &second["exit"]),
        (&false.into(), &().into(), &75.into())
    );
    // A file to which the caller writes, too.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    for fd in ["1", "3"] {
        let shell = format!(
            "(echo before; {} \"$@\"; echo behind) >{file} {fd}>&1",
            crate::fixture::PROGRAM,
            file = file.display()
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &shell, "sh", "run", "--status-fd", fd, "-n", "told", "true"]);
        assert!(command.env("REDIS_URL", shared().url()).status().unwrap().success());
        let log = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = log.lines().collect();
        assert!(lines.len() == 3 && (lines[0], lines[2]) == ("before", "behind"), "{log}");
        assert_eq!(parsed(lines[1])["exit"], 75);
    }
    let third =
        parsed(&with(&["run", "--lease", "4s", "--status-fd", "3", "told2", "sh", "-c", "kill -9 $$"]));
    assert_eq!((&third["child"]["signal"], &third["exit"]), (&9.into(), &137.into()));
}

#[test]
fn a_status_that_nobody_reads_changes_no_exit_status() {
    let (reader, writer) = std::io::pipe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (file, go) = (folder.path().join("in"), folder.path().join("go"));
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.02; done; exit 7",
        file.display(),
        go.display()
    );
    let args = ["run", "--lease", "4s", "--status-fd", "1", "unread", "sh", "-c", &script];
    let mut command = program(&shared().url(), &args);
    let child = command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(command); // it holds the pipe's end, too
    line_of(&file);
    drop(reader);
    std::fs::write(go, "").unwrap();
    let it = child.wait_with_output().unwrap();
    assert_eq!(it.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&it.stderr).contains("--status-fd cannot be written"), "{it:?}");
}
