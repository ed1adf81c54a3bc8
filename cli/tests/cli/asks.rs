//! `ls`, `show`, `watch`, `break`: what an operator sees and does.

use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redis_concurrent::inventory::Order;
use redis_concurrent::{CancellationToken, Client, Wait};
use redis_concurrent_partitions::Partitions;
use redis_concurrent_testkit::{RedisServer, wait_until};
use serde_json::Value;

use crate::fixture::{LONG, Started, client, done, is_alive, line_of, program, until_heard};

fn labelled(server: &RedisServer, label: &str) -> Client {
    Client::builder().url(&server.url()).client_name(label).connect().unwrap()
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn the_list_reads_like_ps() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    assert_eq!(done(&url, &["ls"]).ends(0).out, "");
    done(&url, &["ls", "--exit-code"]).ends(1);
    let (billing, shop) = (labelled(&server, "billing"), labelled(&server, "the shop"));
    let first = billing.reentrant_lock("stock:42").lock_owned().unwrap();
    shop.semaphore("gpu").set_permits(4).unwrap();
    let _permits = shop.semaphore("gpu").acquire(2).unwrap();
    shop.reentrant_lock("done").lock().unwrap().unlock_staying(Duration::from_secs(60)).unwrap();
    billing.count_down_latch("latch").try_set_count(2).unwrap();

    let it = done(&url, &["ls"]).ends(0);
    let lines: Vec<_> = it.out.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[0].ends_with("TOKEN"), "{}", it.out);
    assert_eq!(lines.len(), 4, "{}", it.out);
    assert!(
        lines[1].starts_with("stock:42  reentrant lock")
            && lines[1].contains(&format!("{}@", std::process::id()))
            && lines[1].contains(" billing ")
    );
    assert!(lines[1].ends_with(&format!("{:019}", first.token())), "{}", lines[1]);
    assert!(
        lines[2].contains("the shop") && lines[2].contains("(2)") && lines[3].contains(", stays"),
        "{}",
        it.out
    );
    let names = |args: &[&str]| -> Vec<String> {
        let out = done(&url, &[&["ls", "--json"], args].concat()).ends(0).out;
        json(&out).iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["stock:42", "gpu", "done"]);
    assert_eq!(names(&["sto", "gp"]), ["stock:42", "gpu"]);
    assert_eq!(names(&["--kind", "semaphore"]), ["gpu"]);
    assert_eq!(names(&["--label", "shop"]), ["gpu", "done"]);
    assert_eq!(names(&["--older", "1h"]), [""; 0]);
    assert_eq!(names(&["--host", "elsewhere"]), [""; 0]);
    assert_eq!(names(&["--waiting"]), [""; 0]);
    assert!(names(&["--all"]).contains(&"latch".to_owned()));
    redis::cmd("SET").arg("job-lock:a").arg("theirs").exec(&mut server.connection().unwrap()).unwrap();
    assert!(names(&["--at", "job-lock:*"]).contains(&"job-lock:a".to_owned()));
    assert_eq!(json(&done(&url, &["ls", "--json", "stock"]).out)[0]["holder"]["label"], "billing");
}

#[test]
fn a_key_that_can_be_no_lock_keeps_no_other_from_the_list() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let long = "x".repeat(1025);
    for key in [&b"\xff"[..], long.as_bytes(), b"a}b", b"{}", b"good", b"wanted"] {
        redis::cmd("SET").arg(key).arg("theirs").exec(&mut redis).unwrap();
    }
    let client = client(&server);
    let names = |args: &[&str]| -> Vec<String> {
        let out = done(&server.url(), &[&["ls", "--json", "--at", "*"], args].concat()).ends(0).out;
        json(&out).iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["good", "wanted"]);
    // The filters apply to them, too.
    assert_eq!(names(&["goo"]), ["good"]);
    assert_eq!(names(&["--kind", "simple"]).len(), 2);
    for none in [["--kind", "reentrant"], ["--host", "elsewhere"], ["--label", "x"], ["--older", "0"]] {
        assert_eq!(names(&none), [""; 0], "{none:?}");
    }
    let lock = client.simple_lock_at("wanted");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.try_lock_for(LONG).map(|guard| guard.is_some()));
        wait_until(LONG, "one waits", || lock.queue_length().unwrap() == 1);
        // It waits in Redis, and not only in its process.
        wait_until(LONG, "it is listed", || names(&["--waiting"]) == ["wanted"]);
        redis::cmd("DEL").arg("wanted").exec(&mut redis).unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
}

#[test]
fn one_name_is_shown_in_full() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    done(&url, &["show", "stock:42"]).ends(1).says("there is no");
    let guard = labelled(&server, "billing").reentrant_lock("stock:42").lock_owned().unwrap();
    let mut waits =
        Started::new(program(&url, &["run", "--lease", "4s", "--label", "shop", "stock:42", "true"]));
    let lock = client(&server).reentrant_lock("stock:42");
    wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
    let mut second = Started::new(program(&url, &["run", "--label", "second", "stock:42", "true"]));
    wait_until(LONG, "another one waits", || lock.queue_length().unwrap() == 2);
    let it = &json(&done(&url, &["show", "--json", "stock:42"]).ends(0).out)[0];
    let holder = &it["holders"][0];
    assert_eq!(
        (&it["kind"], &holder["label"], &holder["stays"]),
        (&"reentrant lock".into(), &"billing".into(), &false.into())
    );
    assert_eq!(holder["token"], format!("{:019}", guard.token()));
    let since = holder["since"].as_str().unwrap();
    assert!(since.len() == 24 && since.ends_with('Z') && since.starts_with("20"), "{since}");
    assert_eq!((&it["waiters"][0]["label"], &it["waiters"][0]["threads"]), (&"shop".into(), &1.into()));
    let ahead = |i: usize| it["waiters"][i]["ahead"].as_u64().unwrap();
    assert_eq!((ahead(0), ahead(1)), (0, 1));
    assert!(it["keys"].as_array().unwrap().iter().any(|key| key["key"] == "rc:{stock:42}:queue"));
    let text = done(&url, &["show", "stock:42"]).ends(0).out;
    for part in ["holders:", "waiters:", "keys:", "billing", "0 ahead: shop", "1 ahead: second", "token 0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    guard.unlock().unwrap();
    waits.ended();
    second.ended();
}

#[test]
fn changes_are_told_as_they_happen() {
    let server = RedisServer::start().unwrap();
    let lock = labelled(&server, "billing").reentrant_lock("job");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let mut command = program(&server.url(), &["watch", "--every", "50ms", "--json"]);
    command.stdout(std::fs::File::create(&file).unwrap());
    let mut watch = command.spawn().unwrap();
    let lines = || json(std::fs::read_to_string(&file).unwrap().rsplit_once('\n').map_or("", |it| it.0));
    wait_until(LONG, "a grant is told", || {
        // One cannot see from outside whether the first look has been made, so there is more than one change.
        let guard = lock.lock_owned().unwrap();
        std::thread::park_timeout(Duration::from_millis(150));
        guard.unlock().unwrap();
        lines().iter().any(|it| it["to"].as_str().unwrap().starts_with("billing"))
    });
    wait_until(LONG, "a release is told", || {
        lines().iter().any(|it| it["to"] == "-" && it["held_s"].is_number())
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn a_lock_is_taken_from_the_holder_that_was_looked_at() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", file.display());
    for now in [false, true] {
        done(&url, &["break", "--yes", "job", "--whoever"]).ends(1).says("nobody holds");
        let holder = Started::new(program(&url, &["run", "--lease", "8s", "job", "sh", "-c", &script]));
        let pid: u32 = line_of(&file).parse().unwrap();
        std::fs::remove_file(&file).unwrap();
        until_heard(&server);
        let look = &json(&done(&url, &["show", "--json", "job"]).out)[0]["holders"][0];
        let (owner, token) = (look["owner"].as_str().unwrap(), look["token"].as_str().unwrap());
        done(&url, &["break", "--yes", "job", "--owner", &format!("{owner}0")])
            .ends(75)
            .says("another one holds it");
        done(&url, &["break", "--yes", "job", "--token", "4096"]).ends(75);
        assert!(is_alive(pid));
        let args = ["break", "--yes", "job", "--token", token, "--reason", "stuck since noon"];
        let it = if now { done(&url, &[&args[..], &["--now"]].concat()) } else { done(&url, &args) };
        it.ends(0).says("its holder was notified");
        // The holder's command is dead before another holder has the lock.
        done(&url, &["run", "-w", "60s", "--lease", "8s", "job", "true"]).ends(0);
        assert!(now || !is_alive(pid));
        holder.done().ends(80).says("stuck since noon (by ");
    }
    done(&url, &["break", "job"]).ends(64).says("--whoever");
    client(&server).count_down_latch("latch").try_set_count(1).unwrap();
    done(&url, &["break", "latch", "--whoever"]).ends(78).says("reset or delete its count");
}

#[test]
fn it_tells_for_how_long_those_that_were_taken_keep_others_out() {
    let server = RedisServer::start().unwrap();
    let brief = Client::builder().url(&server.url()).lease(Duration::from_secs(20)).connect().unwrap();
    let lasting = Client::builder().url(&server.url()).lease(Duration::from_secs(300)).connect().unwrap();
    brief.semaphore("slots").set_permits(2).unwrap();
    let _permits = [&brief, &lasting].map(|it| it.semaphore("slots").acquire(1).unwrap());
    let _read = lasting.read_write_lock("pages").read_lock().lock_owned().unwrap();
    lasting.inventory("sale").add_stock("mug", 2).unwrap();
    let _reserved = lasting.inventory("sale").try_reserve(&Order::of("mug", 1)).unwrap().unwrap();
    let taken = |args: &[&str]| {
        let it = done(&server.url(), &[&["break", "--yes", "--json"], args].concat()).ends(0);
        let stays = json(&it.out)[0]["stays_s"].as_f64().unwrap();
        assert_eq!(it.err.contains("others get it"), stays > 0.0, "{it:?}");
        stays
    };
    let holders = brief.semaphore("slots").holders().unwrap();
    let first = holders.iter().min_by_key(|it| it.remaining).unwrap();
    let stays = taken(&["slots", "--owner", &first.owner]);
    assert!(stays > 1.0 && stays <= 20.0, "{stays}");
    for name in ["pages", "sale"] {
        let stays = taken(&[name, "--whoever"]);
        assert!(stays > 100.0 && stays <= 300.0, "{name}: {stays}");
        assert_eq!(taken(&[name, "--whoever", "--now"]), 0.0, "{name}");
    }
}

#[test]
fn locks_at_keys_of_users_are_shown_and_taken_away() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let mut redis = server.connection().unwrap();
    let mut run = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis).unwrap();
    };
    // Locks of other programs.
    run("SET job-lock:prod:a theirs PX 60000");
    run("HSET stock 67e55044-10b1-426f-9247-bb680e5fe0c8:7 1");
    run("PEXPIRE stock 60000");
    for (option, name, owner, kind) in [
        ("--at", "job-lock:prod:a", "theirs", "simple lock"),
        ("--redisson", "stock", "67e55044-10b1-426f-9247-bb680e5fe0c8:7", "Redisson lock"),
    ] {
        let shown = &json(&done(&url, &["show", "--json", option, name]).ends(0).out)[0];
        assert_eq!((&shown["kind"], &shown["holders"][0]["owner"]), (&kind.into(), &owner.into()));
        done(&url, &["break", "--yes", option, name, "--owner", "another"])
            .ends(75)
            .says("another one holds it");
        // A token is never another program's.
        done(&url, &["break", "--yes", option, name, "--token", "4096"]).ends(75);
        done(&url, &["break", "--yes", option, name, "--owner", owner])
            .ends(64)
            .says("as they do with --now");
        done(&url, &["break", "--yes", option, name, "--owner", owner, "--now"])
            .ends(0)
            .says("was taken away");
        done(&url, &["break", "--yes", option, name, "--whoever"]).ends(1).says("nobody holds");
        // A lock of ours: kept from others until its command has been stopped.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", file.display());
        let args = ["run", "--lease", "4s", "--bear", "30s", option, name, "sh", "-c", &script];
        let holder = Started::new(program(&url, &args));
        let pid: u32 = line_of(&file).parse().unwrap();
        let shown = &json(&done(&url, &["show", "--json", option, name]).ends(0).out)[0];
        let token = shown["holders"][0]["token"].as_str().unwrap();
        done(&url, &["break", "--yes", option, name, "--token", token, "--reason", "by hand"]).ends(0);
        let wait = ["run", "-w", "60s", "--lease", "4s", option, name, "true"];
        done(&url, &wait).ends(0);
        assert!(!is_alive(pid));
        holder.done().ends(80).says("COMMAND is ended");
    }
    done(&url, &["break", "--redisson", "--at", "x", "--whoever"]).ends(64).says("cannot be used with");
    run("HSET map field value");
    let map = &json(&done(&url, &["show", "--json", "--redisson", "map"]).ends(0).out)[0];
    assert_eq!((&map["kind"], map["holders"].as_array().unwrap().len()), (&"a hash".into(), 0));
    done(&url, &["break", "--yes", "--redisson", "map", "--whoever"]).ends(78).says("not a Redisson lock");
    done(&url, &["break", "--yes", "--at", "map", "--whoever"]).ends(78).says("not a simple lock");
}

#[test]
fn stock_and_threads_are_shown() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    let shop = labelled(&server, "shop");
    shop.inventory("sale").add_stock("mug|blue", 5).unwrap();
    let _reserved = shop.inventory("sale").try_reserve(&Order::of("mug|blue", 2)).unwrap().unwrap();
    let it = &json(&done(&url, &["show", "--json", "sale"]).ends(0).out)[0];
    let stock = serde_json::json!(
        [{"sku": "mug|blue", "stocked": 5, "available": 3, "reserved": 2, "sold": 0}]
    );
    assert_eq!(it["stock"], stock);
    let text = done(&url, &["show", "sale"]).ends(0).out;
    assert!(text.contains("mug|blue: stocked 5, available 3, reserved 2, sold 0"), "{text}");
    let lock = shop.reentrant_lock("job");
    let worker = std::thread::Builder::new().name("worker 7".to_owned());
    let guard = worker.spawn(move || lock.lock_owned().unwrap()).unwrap().join().unwrap();
    let it = &json(&done(&url, &["show", "--json", "job"]).ends(0).out)[0];
    assert_eq!(
        (&it["holders"][0]["thread"], &it["holders"][0]["label"]),
        (&"worker 7".into(), &"shop".into())
    );
    assert!(done(&url, &["show", "job"]).ends(0).out.contains("thread \"worker 7\""));
    guard.unlock().unwrap();
}

#[test]
fn a_hundred_thousand_names_occupy_no_server() {
    // In full: RUNS=100000 cargo test --release --package redis-concurrent-cli --test cli hundred_thousand
    let names: usize = std::env::var("RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let owner = "7f3b1f5e-5a0c-4a52-9c3d-0e9a3f1c2b4d";
    for chunk in (0..names).collect::<Vec<_>>().chunks(1000) {
        let mut pipe = redis::pipe();
        for i in chunk {
            let key = format!("rc:{{name:{i}}}");
            pipe.cmd("HSET").arg(&key).arg(&["kind", "reentrant lock", "number", "217000000000000"]);
            pipe.arg(&["owner", &format!("{owner}:{i}"), "record", "0 4711 host label"]).ignore();
            pipe.cmd("PEXPIRE").arg(&key).arg(600_000).ignore();
            pipe.cmd("SET").arg(format!("{key}:fence")).arg("217000000000000").ignore();
        }
        pipe.exec(&mut redis).unwrap();
    }
    redis::cmd("CONFIG").arg(&["SET", "slowlog-log-slower-than", "1000"]).exec(&mut redis).unwrap();
    redis::cmd("SLOWLOG").arg("RESET").exec(&mut redis).unwrap();
    let began = std::time::Instant::now();
    let it = done(&server.url(), &["ls", "--json"]).ends(0);
    let took = began.elapsed();
    assert_eq!(it.out.lines().count(), names);
    let slow: Vec<redis::Value> = redis::cmd("SLOWLOG").arg("GET").query(&mut redis).unwrap();
    println!("{names} names in {took:?}, {} commands above 1 ms", slow.len());
    if names >= 100_000 {
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(slow.is_empty(), "{slow:?}");
    }
}

#[test]
fn colours_are_never_printed() {
    for colour in [None, Some("1")] {
        let mut command = Command::new(crate::fixture::PROGRAM);
        command.args(["run", "--nothing"]).env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
        if let Some(no) = colour {
            command.env("NO_COLOR", no).env_remove("CLICOLOR_FORCE");
        }
        let output = command.output().unwrap();
        assert!(!output.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn members_and_who_owns_which_partition_are_listed() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    done(&url, &["members", "orders"]).ends(1).says("no members under \"orders\"");
    done(&url, &["partitions", "orders"]).ends(1).says("nobody shares partitions of \"orders\"");
    let client = labelled(&server, "billing");
    let share = Partitions::new(&client, "orders", 2).join("10.0.0.7").unwrap();
    let _owned = [(); 2].map(|()| share.partitions().recv_timeout(LONG).unwrap());
    let lines = |out: &str| -> Vec<Vec<String>> {
        out.lines().map(|it| it.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let members = lines(&done(&url, &["members", "orders:partition:members"]).ends(0).out);
    assert_eq!((&*members[1][0], &*members[1][1], members.len()), ("10.0.0.7", "billing", 2));
    let process = format!("{}@", std::process::id());
    let owners = lines(&done(&url, &["partitions", "orders"]).ends(0).out);
    assert_eq!(owners[0], ["PARTITION", "MEMBER", "OWNER"]);
    for (k, owner) in owners[1..].iter().enumerate() {
        assert_eq!((&owner[0], &*owner[1], &*owner[2]), (&k.to_string(), "10.0.0.7", "billing"));
        assert!(owner[3].starts_with(&process), "{owner:?}");
    }
    let held = done(&url, &["ls", "orders"]).ends(0).out;
    assert!(held.contains("orders:partition:0") && held.contains("orders:partition:1"), "{held}");
    println!("{held}{}", done(&url, &["show", "orders:partition:members"]).out);
}

/// Calls `does` while two threads wait for each other: each holds a read lock, and waits to read what the other one
/// has, behind a writer. So none of them is chosen to give up.
pub fn in_a_deadlock<R>(url: &str, does: impl FnOnce() -> R) -> R {
    let (both, stop) = (&Barrier::new(2), &CancellationToken::new());
    let wait = || Wait::timeout(LONG).cancelled_by(stop);
    let connected = |label: &str| {
        let builder = Client::builder().url(url).client_name(label);
        builder
            .waiter_timeout(Duration::from_millis(900))
            .deadlock_timeout(Duration::from_millis(100))
            .connect()
    };
    thread::scope(|scope| {
        for [held, wanted] in [["left", "right"], ["right", "left"]] {
            let client = connected(held).unwrap();
            let thread = thread::Builder::new().name(format!("reads-{held}"));
            let reads = thread.spawn_scoped(scope, move || {
                let _held = client.read_write_lock(held).read_lock().lock().unwrap();
                both.wait();
                let lock = client.read_write_lock(wanted);
                thread::scope(|scope| {
                    scope.spawn(|| drop(lock.write_lock().lock_with(wait())));
                    let queued = || lock.write_lock().queue_length().unwrap() > 0;
                    // A writer whose process stalls for a waiter timeout is passed over, and enqueues again.
                    while !stop.is_cancelled() {
                        wait_until(LONG, "a writer waits", queued);
                        drop(lock.read_lock().lock_with(wait()));
                    }
                });
            });
            reads.unwrap();
        }
        let client = connected("looks").unwrap();
        wait_until(LONG, "the circle is known", || !client.deadlocks().unwrap().is_empty());
        let result = does();
        stop.cancel();
        result
    })
}

#[test]
fn threads_that_wait_for_each_other_are_listed() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    assert_eq!(done(&url, &["deadlocks"]).ends(0).out, "");
    let (listed, json, doctor) = in_a_deadlock(&url, || {
        let [listed, json] =
            [&["deadlocks"][..], &["deadlocks", "--json"]].map(|args| done(&url, args).ends(1).out);
        (listed, json, done(&url, &["doctor", "--json"]).out)
    });
    assert_eq!((listed.lines().count(), json.lines().count()), (1, 1), "{listed}{json}");
    let process = format!("{}@", std::process::id());
    for part in ["left", "right", &process, "which holds", "has waited"] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["deadlock"].as_str().unwrap().matches("which holds").count(), 2);
    let threads = json["threads"].as_array().unwrap();
    for (thread, other) in threads.iter().zip([1, 0]) {
        let held = thread["holds"].as_str().unwrap();
        assert_eq!((&thread["label"], &thread["pid"]), (&held.into(), &std::process::id().into()), "{json}");
        assert_eq!(
            (&thread["thread"], &thread["waits_for"]),
            (&format!("reads-{held}").into(), &threads[other]["holds"])
        );
    }
    let check = doctor.lines().find(|line| line.contains("\"deadlocks\"")).unwrap();
    assert!(check.contains("warn") && check.contains("which holds"), "{check}");
}
