//! Each row of the table of exit statuses.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::fixture::{Done, LONG, Started, client, done, line_of, program, run, shared, until_heard};

#[test]
fn the_commands_own() {
    for code in [0, 1, 7, 64, 255] {
        run(&["own", "--", "sh", "-c", &format!("exit {code}")]).ends(code);
    }
    run(&["own", "--", "sh", "-c", "kill -9 $$"]).ends(137);
    run(&["own", "--", "sh", "-c", "kill -TERM $$"]).ends(143);
}

#[test]
fn arguments_and_input_arrive_unchanged() {
    let it = run(&["args", "printf", "%s|", "a  b", "c'd", "$HOME", "--json", "-n"]).ends(0);
    assert_eq!(it.out, "a  b|c'd|$HOME|--json|-n|");
    let mut command = program(&shared().url(), &["run", "--lease", "4s", "args", "wc", "-c"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for _ in 0..64 {
        input.write_all(&[b'x'; 65_536]).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), (64 * 65_536).to_string());
}

#[test]
fn a_text_goes_to_the_shell() {
    for form in [&["-c", "echo $((1 + 1)); exit 3", "shell"][..], &["shell", "-c", "echo $((1 + 1)); exit 3"]]
    {
        assert_eq!(run(form).ends(3).out, "2\n");
    }
}

#[test]
fn busy() {
    let lock = client(shared()).reentrant_lock("busy");
    let guard = lock.lock().unwrap();
    run(&["-n", "busy", "echo", "no"]).ends(75);
    // Repeated if a busy machine got no reply to its last request in time.
    wait_until(LONG, "its time is up", || {
        let it = run(&["-w", "1s", "busy", "echo", "no"]);
        if it.code == Some(69) {
            return false;
        }
        assert_eq!(it.ends(75).out, "");
        true
    });
    run(&["-n", "-E", "1", "busy", "echo", "no"]).ends(1);
    assert_eq!(run(&["--skip", "busy", "echo", "no"]).ends(0).out, "");
    guard.unlock().unwrap();
    assert_eq!(run(&["-n", "busy", "echo", "yes"]).ends(0).out, "yes\n");
}

#[test]
fn usage() {
    for (args, message) in [
        (&["run"][..], "required"),
        (&["run", "x"], "required"),
        (&["nothing"], "unrecognized"),
        (&["run", "--lease", "soon", "x", "true"], "\"soon\" is not a duration: 500ms, 30s"),
        (&["run", "-w", "400d", "x", "true"], "366 days"),
        (&["run", "--slots", "0", "x", "true"], "0 is not in 1..=2147483647"),
        (&["run", "-E", "256", "x", "true"], "256"),
        (&["run", "--kind", "fair", "x", "true"], "reentrant"),
        (&["run", "-n", "-w", "1s", "x", "true"], "cannot be used with"),
        (&["run", "--status-fd", "77", "x", "true"], "--status-fd 77"),
        (&["run", "--redisson", "--at", "x", "true"], "cannot be used with"),
        (&["run", "x", ""], "empty"),
        (&["run", "x", "--nothing", "true"], "--nothing is neither an option of run nor a COMMAND"),
        (&["run", "--slots", "2147483648", "x", "true"], "is not in 1..=2147483647"),
        (&["ls", "--rate", "4294967296"], "0..=4294967295"),
        (&["break", "x", "--token", "99999999999999999999"], "at most 18446744073709551615"),
    ] {
        let it = done(&shared().url(), args).ends(64).says(message);
        assert!(it.err.lines().all(|line| line.starts_with("redis-concurrent: ")), "{it:?}");
        assert_eq!(it.out, "");
    }
    for args in [&["--help"][..], &["run", "--help"], &["help", "run"], &["--version"]] {
        let it = done(&shared().url(), args).ends(0);
        let longest = it.out.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 80, "{args:?}: a line of {longest}");
    }
}

#[test]
fn no_server() {
    let nowhere = "redis://:hush@127.0.0.1:1/";
    for how in [&["-n"][..], &["--skip"], &["-w", "100ms"], &["--bear", "0"]] {
        let it = done(nowhere, &[&["run"], how, &["x", "true"]].concat()).ends(69);
        let it = it.says("127.0.0.1:1: unavailable: no connection");
        assert!(!format!("{it:?}").contains("hush"));
    }
    // The server comes back while the program tolerates its absence.
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let waits =
        Started::new(program(&server.url(), &["run", "-v", "--lease", "4s", "--bear", "30s", "x", "true"]));
    server.restart().unwrap();
    waits.done().ends(0);
}

#[test]
fn a_right_that_is_refused() {
    let server = RedisServer::builder().password("hush").start().unwrap();
    let at = |user: &str| format!("redis://{user}@127.0.0.1:{}/", server.port());
    for url in [format!("redis://127.0.0.1:{}/", server.port()), at(":wrong")] {
        let it = done(&url, &["run", "-n", "x", "true"]).ends(77);
        assert!(!format!("{it:?}").contains("wrong@"));
    }
    let mut redis = server.connection().unwrap();
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "dim", "on", ">shadow", "~rc:*", "&rc:*", "+@all", "-evalsha", "-eval"]);
    user.exec(&mut redis).unwrap();
    // Whatever the name has in common with the word that says so.
    done(&at("dim:shadow"), &["run", "-n", "N", "true"]).ends(77).says("evalsha");
    let it = done(&at("dim:shadow"), &["run", "-n", "x", "true"]).ends(77).says("evalsha");
    assert!(!format!("{it:?}").contains("shadow"));
    // The password from its own variable.
    let mut command =
        program(&format!("redis://127.0.0.1:{}/", server.port()), &["run", "--lease", "4s", "x", "true"]);
    assert!(command.env("REDISCLI_AUTH", "hush").status().unwrap().success());
    // An empty one is none.
    let mut command = program(&shared().url(), &["run", "--lease", "4s", "auth", "true"]);
    assert!(command.env("REDISCLI_AUTH", "").status().unwrap().success());
}

/// A file is read anew for the password in it, unless it is gone.
#[test]
fn a_password_that_is_rotated() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let mut has = |password: &str| {
        let mut user = redis::cmd("ACL");
        user.arg(&["SETUSER", "app", "reset", "on", &format!(">{password}"), "~*", "&*", "+@all"]);
        user.exec(&mut redis).unwrap();
        redis::cmd("CLIENT").arg(&["KILL", "USER", "app"]).query::<usize>(&mut redis).unwrap()
    };
    let url = |password: &str| server.url().replace("//", &format!("//app:{password}@"));
    let folder = tempfile::tempdir().unwrap();
    let files = ["rewritten", "deleted"].map(|name| folder.path().join(name));
    let write = |file: &std::path::Path, password: &str| {
        std::fs::write(file, url(password)).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    has("one");
    for file in &files {
        write(file, "one");
    }
    let start = |name: &str, from: &[&str]| {
        let ran = folder.path().join(name.to_owned() + ".ran");
        let command = ["sh", "-c", "echo > $0; exec sleep 60", ran.to_str().unwrap()];
        Started::new(program(&url("one"), &[from, &["run", "--lease", "4s", name], &command].concat()))
    };
    let from_file = |n: usize| ["--url-file", files[n].to_str().unwrap()];
    let mut rewritten = start("rewritten", &from_file(0));
    let deleted = start("deleted", &from_file(1));
    let fixed = start("fixed", &[]);
    let runs = |name: &&str| folder.path().join(name.to_string() + ".ran").exists();
    wait_until(LONG, "all hold", || ["rewritten", "deleted", "fixed"].iter().all(runs));
    std::fs::remove_file(&files[1]).unwrap();
    assert!(has("one") >= 3);
    let left = |name: &str| {
        let mut redis = server.connection().unwrap();
        redis::cmd("PTTL").arg(format!("rc:{{{name}}}")).query::<i64>(&mut redis).unwrap()
    };
    for name in ["rewritten", "deleted"] {
        let mut before = left(name);
        wait_until(LONG, "it is renewed", || std::mem::replace(&mut before, left(name)) < before);
    }
    write(&files[0], "two");
    assert!(has("two") >= 3);
    fixed.done().ends(80);
    deleted.done().ends(80);
    assert!(!rewritten.has_ended() && left("rewritten") > 0);
    rewritten.signal("TERM");
    rewritten.done();
}

/// Two callers that write the database in two ways must not hold the lock at once.
#[test]
fn each_part_of_a_url_is_understood_or_refused() {
    let at = |tail: &str| format!("redis://127.0.0.1:{}{tail}", shared().port());
    let holder = client(shared());
    let elsewhere = redis_concurrent::Client::connect(&at("/3")).unwrap();
    let _held =
        (holder.reentrant_lock("url").lock_owned().unwrap(), elsewhere.reentrant_lock("url").lock_owned());
    for url in [at("/3"), at("?db=3"), at("/?db=3&protocol=resp3"), at("/3?db=3")] {
        done(&url, &["run", "-n", "--lease", "4s", "url", "true"]).ends(75);
    }
    for (url, why) in
        [(at("?database=3"), "db, protocol"), (at("/0?db=3"), "two databases"), (at("/0#3"), "'#'")]
    {
        done(&url, &["run", "-n", "--lease", "4s", "url", "true"]).ends(78).says(why);
        done(&url, &["ls"]).ends(78).says(why);
    }
}

#[test]
fn the_number_of_slots_that_was_asked_for_last_counts() {
    let semaphore = client(shared()).semaphore("corrected");
    for (slots, says) in
        [("2", ""), ("3", "had 2 slots, and has 3"), ("3", ""), ("1", "had 3 slots, and has 1")]
    {
        run(&["--slots", slots, "corrected", "true"]).ends(0).says(says);
        assert_eq!(semaphore.permits().unwrap().map(|n| n.to_string()).as_deref(), Some(slots));
    }
}

#[test]
fn a_name_or_a_setting_that_cannot_work() {
    let server = shared();
    client(server).semaphore("config").set_permits(2).unwrap();
    run(&["config", "true"]).ends(78).says("is a semaphore, not a reentrant lock");
    // A name that reads as a right does that is refused.
    client(server).semaphore("NOAUTH").set_permits(2).unwrap();
    run(&["NOAUTH", "true"]).ends(78).says("is a semaphore, not a reentrant lock");
    run(&["", "true"]).ends(78).says("must not be empty");
    run(&[&"x".repeat(1025), "true"]).ends(78).says("at most 1024 bytes");
    run(&["--grace", "2s", "config2", "true"]).ends(78).says("half of --lease");
    for short in ["0", "1ms", "99ms"] {
        run(&["--grace", short, "config2", "true"]).ends(78).says("at least 100ms");
    }
    run(&["--grace", "100ms", "config2", "true"]).ends(0);
    done(&server.url(), &["run", "--lease", "50ms", "x", "true"])
        .ends(78)
        .says("100ms")
        .says("--lease, 50ms");
    done(&server.url(), &["run", "--lease", "0", "x", "true"]).ends(78).says("100ms").says("--lease, 0ns");
    done("", &["ls"]).ends(78).says("it is empty");
    // Ignored, each would have the lock elsewhere, where it keeps nobody out.
    for (variable, says) in [
        ("REDIS_URL", "$REDIS_URL is not UTF-8"),
        ("REDIS_CONCURRENT_NAMESPACE", "$REDIS_CONCURRENT_NAMESPACE is not UTF-8"),
        ("REDISCLI_AUTH", "not valid UTF-8"),
    ] {
        for command in [&["run", "-n", "config2", "true"][..], &["ls"]] {
            let mut command = program(&server.url(), command);
            let done = Done::of(command.env(variable, OsStr::from_bytes(b"\xff")).output().unwrap());
            done.ends(78).says(says);
        }
    }
    done("http://127.0.0.1/", &["run", "x", "true"]).ends(78).says("redis://");
    done("redis://:hush@127.0.0.1:65536/", &["ls"]).ends(78).says("between 1 and 65535, got 65536");
    for (database, message) in [
        ("16", "no database of this number"),
        ("2147483647", "no database of this number"),
        ("2147483648", "between 0 and 2147483647, got 2147483648"),
        ("-1", "between 0 and 2147483647, got -1"),
        ("9223372036854775808", "redis://host:6379/0"),
    ] {
        let url = format!("redis://127.0.0.1:{}/{database}", server.port());
        for command in [&["run", "x", "true"][..], &["ls"], &["show", "x"]] {
            done(&url, command).ends(78).says(message);
        }
    }
    let out_of_range = done(&format!("redis://127.0.0.1:{}/16", server.port()), &["doctor"]).ends(2);
    assert!(out_of_range.out.contains("out of range"), "{out_of_range:?}");
    run(&["--at-least", "41d", "config4", "true"]).ends(78).says("3456000s");
    run(&["--once-for", "41d", "config4", "true"]).ends(78).says("at most 40 days");
    let long = "x".repeat(1025);
    done(&server.url(), &["break", "--yes", "--whoever", "--reason", &long, "config4"]).ends(1);
    let held = client(server).reentrant_lock("config4").lock_owned().unwrap();
    done(&server.url(), &["break", "--yes", "--whoever", "--reason", &long, "config4"])
        .ends(78)
        .says("at most 1024 bytes");
    held.unlock().unwrap();
    for (many, code, message) in [
        ("redis+cluster://:hush@127.0.0.1:1/", 69, "no connection"),
        ("redis+sentinel://:hush@127.0.0.1:1/m?sentinel_password=hush", 69, "127.0.0.1:1"),
        ("redis+sentinel://:hush@127.0.0.1:1/", 78, "which primary is meant"),
        ("redis+cluster://:hush@127.0.0.1:1/3", 78, "database 0 only"),
        ("redis+cluster://:hu/sh@127.0.0.1:1", 78, "percent-encoded"),
    ] {
        let it = done(many, &["run", "-n", "x", "true"]).ends(code).says(message);
        assert!(!format!("{it:?}").contains("hush"));
    }
    done(&server.url(), &["run", "--namespace", "a{b", "x", "true"]).ends(78).says("braces");
    run(&["--at-least", "0.5ms", "config3", "true"]).ends(78).says("minimum hold time");
}

/// The key for a lock's last grant number contains a number that no program of ours writes.
#[test]
fn something_that_should_not_be() {
    let mut redis = shared().connection().unwrap();
    redis::cmd("SET").arg("rc:{odd}:fence").arg("4503599627370495").exec(&mut redis).unwrap();
    run(&["-n", "odd", "true"]).ends(70).says("protocol error").says("please report it");
    redis::cmd("DEL").arg("rc:{odd}:fence").exec(&mut redis).unwrap();
}

/// On Linux there is a file that behaves as a full disk.
#[test]
fn an_output_that_cannot_be_written() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [
        &["ls", "--all"][..],
        &["ls", "--json", "--all"],
        &["doctor"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        let held = client(shared()).reentrant_lock("full").lock_owned().unwrap();
        let it = Done::of(program(&shared().url(), args).stdout(full()).output().unwrap());
        it.ends(74).says("standard output cannot be written: No space left");
        held.unlock().unwrap();
    }
    // COMMAND's exit status is passed on; messages on standard error are lost.
    let args = ["run", "--lease", "4s", "--status-fd", "1", "full", "--", "sh", "-c", "exit 7"];
    Done::of(program(&shared().url(), &args).stdout(full()).output().unwrap())
        .ends(7)
        .says("--status-fd cannot be written: No space left");
    let mut command =
        program(&shared().url(), &["run", "-v", "--lease", "4s", "full", "--", "sh", "-c", "exit 7"]);
    assert_eq!(command.stderr(full()).status().unwrap().code(), Some(7));
}

#[test]
fn a_file_with_the_url() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("url");
    std::fs::write(&file, format!("{}\nanything else\n", shared().url())).unwrap();
    let path = file.to_str().unwrap();
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let args = ["run", "--lease", "4s", "--url-file", path, "file", "true"];
    let refused = |args: &[&str]| {
        done("redis://127.0.0.1:1/", args).ends(78).says("others may access it").says("chmod 600")
    };
    let public = [&["run", "--public-url-file"], &args[1..]].concat();
    for open in [0o644, 0o604, 0o444, 0o660, 0o620] {
        mode(open);
        refused(&args);
        match open & 0o033 {
            0 => drop(done("redis://127.0.0.1:1/", &public).ends(0)),
            _ => drop(refused(&public)),
        }
    }
    // As secrets are mounted into a container.
    for for_our_group in [0o640, 0o440] {
        mode(for_our_group);
        done("redis://127.0.0.1:1/", &args).ends(0);
    }
    if rustix::process::getuid().is_root() {
        let to = |group| std::os::unix::fs::chown(&file, Some(65_534), Some(group)).unwrap();
        to(54_321);
        refused(&args);
        to(rustix::process::getgid().as_raw());
        done("redis://127.0.0.1:1/", &args).ends(0);
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    mode(0o600);
    done("redis://127.0.0.1:1/", &args).ends(0);
    std::fs::write(&file, "\n").unwrap();
    done("redis://127.0.0.1:1/", &args).ends(78).says("empty");
    std::fs::write(&file, "redis://a".repeat(1 << 20)).unwrap();
    done("redis://127.0.0.1:1/", &args).ends(78).says("more than 16384 bytes");
    // A pipe, as a shell's `<(…)`, can be read only once.
    let pipe = path.to_owned() + ".pipe";
    assert!(std::process::Command::new("mkfifo").args(["-m", "600", &pipe]).status().unwrap().success());
    std::thread::scope(|scope| {
        let program = scope.spawn(|| done("redis://127.0.0.1:1/", &["doctor", "--url-file", &pipe]));
        std::fs::write(&pipe, shared().url()).unwrap();
        let it = program.join().unwrap();
        assert!(["reach", "role", "locks"].iter().all(|check| it.out.contains(check)), "{it:?}");
    });
    done("redis://127.0.0.1:1/", &["run", "--url-file", "/no/such", "x", "true"]).ends(78).says("/no/such");
}

#[test]
fn lost_or_about_to_be() {
    let server = RedisServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in");
    let sleeps = |terms: &[&str], script: &str| {
        let args = [&["run"], terms, &["--grace", "900ms", "x", "--", "sh", "-c", script]].concat();
        let it = Started::new(program(&server.url(), &args));
        line_of(&file);
        std::fs::remove_file(&file).unwrap();
        it
    };
    // Holds that should end have a short lease, and those that a later line needs a long one.
    let (short, long) = (["--lease", "2s"], ["--lease", "7s"]);
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", file.display());
    // Redis does not answer.
    let it = sleeps(&short, &script);
    server.stop().unwrap();
    it.done().ends(80).says("less than 900ms of the lock are certain");
    server.cont().unwrap();
    // The command ignores SIGTERM, and the exit status is the caller's.
    let it = sleeps(&[&short[..], &["--lost-exit", "9"]].concat(), &format!("trap '' TERM; {script}"));
    server.stop().unwrap();
    it.done().ends(9).says("COMMAND is killed");
    server.cont().unwrap();
    // The lock is taken away.
    let it = sleeps(&long, &script);
    let lock = client(&server).reentrant_lock("x");
    until_heard(&server);
    assert!(
        lock.force_unlock_if(&redis_concurrent::admin::HeldBy::Anyone, "by the test", false).unwrap().holders
            > 0
    );
    it.done().ends(80).says("by force: by the test");
    // Only a warning, and the command ends by itself.
    let quick = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; while [ ! -e {0}.go ]; do sleep 0.05; done",
        file.display()
    );
    let it = sleeps(&[&long[..], &["--on-loss", "warn"]].concat(), &quick);
    assert!(lock.force_unlock().unwrap().holders > 0);
    std::fs::write(file.with_extension("go"), "").unwrap();
    it.done().ends(80).says("lost");
}

/// The holder cannot reach the server any more, and another one can.
#[test]
fn with_the_shortest_grace_the_command_is_dead_before_another_begins() {
    let server = RedisServer::builder().start().unwrap();
    let proxy = redis_concurrent_testkit::Proxy::start(server.port()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let says = format!("date +%s.%N >> {}", file.display());
    let lives = format!("trap '' TERM; while :; do {says}; done");
    // One run is enough for the server to be trusted.
    done(&server.url(), &["run", "--lease", "1s", "short", "true"]).ends(0);
    for _ in 0..5 {
        proxy.heal().unwrap();
        let _ = std::fs::remove_file(&file);
        let terms = ["run", "--lease", "1s", "--grace", "100ms", "short", "--", "sh", "-c", &lives];
        let it = Started::new(program(&proxy.url(), &terms));
        line_of(&file);
        proxy.black_hole(true);
        let next = "date +%s.%N";
        let begun = done(&server.url(), &["run", "--lease", "1s", "-w", "30s", "short", "sh", "-c", next])
            .ends(0)
            .out;
        it.done().ends(80);
        let log = std::fs::read_to_string(&file).unwrap();
        let last = log.lines().last().unwrap();
        assert!(last < begun.trim(), "{last} is after {begun}");
    }
}

/// `break` leaves the lock to its holder until its command has ended; `--now` does not.
#[test]
fn what_is_taken_away_is_left_to_the_command_for_its_grace() {
    let server = shared();
    let folder = tempfile::tempdir().unwrap();
    let (file, clean) = (folder.path().join("in"), folder.path().join("clean"));
    let begin = |name: &str, grace: &str, at_term: &str| {
        let script = format!(
            "trap '{at_term}' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.02; done",
            file.display()
        );
        let terms = ["run", "--lease", "12s", "--grace", grace, name, "--", "sh", "-c", &script];
        let it = Started::new(program(&server.url(), &terms));
        line_of(&file);
        std::fs::remove_file(&file).unwrap();
        it
    };
    let cleans = |seconds: &str| format!("sleep {seconds}; echo clean > {}; exit 0", clean.display());
    let there = clean.to_str().unwrap();
    // The next command starts when this one has ended, and not before.
    let it = begin("gentle", "5s", &cleans("0.7"));
    let next =
        Started::new(program(&server.url(), &["run", "--lease", "12s", "gentle", "test", "-e", there]));
    wait_until(LONG, "another one waits", || {
        client(server).reentrant_lock("gentle").queue_length().unwrap() == 1
    });
    done(&server.url(), &["break", "--yes", "--whoever", "gentle"]).ends(0);
    let it = it.done().ends(80).says("COMMAND is ended");
    assert!(!it.err.contains("killed") && clean.exists(), "{it:?}");
    next.done().ends(0);
    // A command that ignores SIGTERM is killed.
    let it = begin("deaf", "2s", "");
    done(&server.url(), &["break", "--yes", "--whoever", "deaf"]).ends(0);
    it.done().ends(80).says("COMMAND is killed: its lock ends");
    // With `--now` another holder may have the lock.
    std::fs::remove_file(&clean).unwrap();
    let it = begin("now", "5s", &cleans("5"));
    done(&server.url(), &["break", "--yes", "--now", "--whoever", "now"]).ends(0);
    it.done().ends(80).says("COMMAND is killed: its lock ends");
    assert!(!clean.exists());
}

/// Nobody stops the work of a holder of another library.
#[test]
fn a_holder_of_another_library_is_taken_away_at_once_or_not_at_all() {
    let server = shared();
    let mut redis = server.connection().unwrap();
    let java = "0b1c9e8a-51d5-4a5c-8f4f-0d1b6c0e7a11:42";
    for (option, key, field) in
        [("--at", "theirs:1", ""), ("--redisson", "theirs:2", java), ("--at", "theirs:3", "")]
    {
        let has_lease = key != "theirs:3";
        match field {
            "" => redis::cmd("SET").arg(key).arg("their own").exec(&mut redis).unwrap(),
            field => redis::cmd("HSET").arg(key).arg(field).arg(1).exec(&mut redis).unwrap(),
        }
        if has_lease {
            redis::cmd("PEXPIRE").arg(key).arg(60_000).exec(&mut redis).unwrap();
        }
        let there =
            |redis: &mut redis::Connection| redis::cmd("EXISTS").arg(key).query::<bool>(redis).unwrap();
        done(&server.url(), &["break", "--yes", option, "--whoever", key])
            .ends(64)
            .says("as they do with --now");
        assert!(there(&mut redis));
        run(&["-n", option, key, "true"]).ends(75);
        done(&server.url(), &["break", "--yes", option, "--whoever", "--now", key]).ends(0);
        assert!(!there(&mut redis));
    }
}

#[test]
fn too_long() {
    run(&["--at-most", "200ms", "long", "sleep", "60"]).ends(124).says("--at-most");
    run(&["--at-most", "200ms", "--grace", "100ms", "long", "sh", "-c", "trap '' TERM; exec sleep 60"])
        .ends(124);
    run(&["--at-most", "60s", "long", "true"]).ends(0);
}

#[test]
fn a_command_that_cannot_be_executed() {
    run(&["none", "no-such-command"]).ends(127).says("no-such-command");
    run(&["none", "/etc/passwd"]).ends(126).says("/etc/passwd");
    run(&["none", "/etc"]).ends(126).says("/etc");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    run(&["none", file.to_str().unwrap()]).ends(127).says("script");
    // The longest argument that a command can be given; it would be too long with anything added to start it.
    let long = "x".repeat(131_071);
    run(&["none", "test", "-n", &long]).ends(0);
    run(&["-n", "none", "true"]).ends(0);
}
