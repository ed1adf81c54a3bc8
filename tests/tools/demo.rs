//! The demo and the other examples, as somebody runs them from a shell.

mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use redis_concurrent_testkit::RedisServer;
use serde_json::Value;

const FIELDS: [&str; 9] = [
    "variant",
    "sold",
    "oversold",
    "lost_updates",
    "duplicates",
    "orders_per_s",
    "commands_per_order",
    "longest_wait_ms",
    "recovery_ms",
];

/// The built demo and examples, in the profile and the folder that this test was built in. Asking for one
/// test alone builds none of them, so they are built here.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let name = match profile.file_name().and_then(OsStr::to_str).unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut build = crate::cargo();
        build
            .args(["build", "--quiet", "--bin", "flash_sale", "--examples"])
            .args(["--profile", name, "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(profile.parent().unwrap());
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        profile.to_owned()
    });
    if name == "flash_sale" { folder.join(name) } else { folder.join("examples").join(name) }
}

fn run(name: &str, args: &[&OsStr], url: Option<&str>) -> Output {
    let mut command = Command::new(program(name));
    command.args(args).env_remove("REDIS_URL");
    if let Some(url) = url {
        command.env("REDIS_URL", url);
    }
    command.output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

/// The lines of `--json` by variant, each with the nine fields and no other.
fn runs(output: &Output) -> BTreeMap<String, Value> {
    let mut runs = BTreeMap::new();
    for line in stdout(output).lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        let fields: BTreeSet<_> = run.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, BTreeSet::from(FIELDS), "{line}");
        runs.insert(run["variant"].as_str().unwrap().to_owned(), run);
    }
    let variants: Vec<_> = runs.keys().map(String::as_str).collect();
    assert_eq!(
        variants,
        ["fair", "inventory", "none", "optimistic", "redlock", "reentrant", "reentrant+kill", "simple"]
    );
    runs
}

/// A file of a test's own, gone with it.
struct Orders(tempfile::TempDir);

impl Orders {
    fn new(text: &str) -> Orders {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("orders.csv"), text).unwrap();
        Orders(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("orders.csv")
    }

    /// One product, of which 200 pieces are ordered, so that there are 100. Every customer orders
    /// twice, one order right behind the other.
    fn of_a_rush() -> Orders {
        let mut text = "quantity,product,customer,id\n".to_owned();
        for i in 0..200 {
            text += &format!("1,lamp,c{},o{i}\n", i / 2);
        }
        Orders::new(&text)
    }
}

#[test]
fn the_drawn_orders_do_damage_without_a_lock_and_none_with_one() {
    // A tenth of what `make demo` sells.
    let output = run("flash_sale", &["--json", "--orders", "600"].map(OsStr::new), None);
    let damage = ["oversold", "lost_updates", "duplicates"];
    for (variant, run) in runs(&output) {
        for what in damage {
            let n = run[what].as_u64().unwrap();
            assert_eq!(n > 0, variant == "none", "{variant}: {what}: {n}");
        }
        assert!(run["orders_per_s"].as_f64().unwrap() > 0.0);
        let killed = variant == "reentrant+kill";
        let recovery = run["recovery_ms"].as_f64();
        assert_eq!(recovery.is_some(), killed, "{variant}");
        // A lease of 3 s was set or renewed at most a third of it before the kill; on a busy machine, some time more.
        assert!(recovery.is_none_or(|ms| (1_000.0..20_000.0).contains(&ms)), "{recovery:?}");
        assert!(!killed || run["longest_wait_ms"].as_f64().unwrap() >= 1_000.0);
        let commands = run["commands_per_order"].as_f64().unwrap();
        assert_eq!(commands > 1.0, variant != "none", "{variant}: {commands}");
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The bar is for people.
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_file_of_ones_own_is_sold_on_a_server_of_ones_own_and_nothing_is_left_there() {
    let server = RedisServer::start().unwrap();
    let orders = Orders::of_a_rush();
    let output = run("flash_sale", &["--json".as_ref(), orders.path().as_ref()], Some(&server.url()));
    let runs = runs(&output);
    for (variant, run) in runs.iter().filter(|(variant, _)| *variant != "none") {
        // Each of the 100 customers may have one piece, and there are 100.
        assert_eq!(run["sold"], 100, "{variant}");
    }
    assert!(runs["none"]["sold"].as_u64().unwrap() > 100, "{}", runs["none"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(server.keys().unwrap(), [""; 0]);
    assert!(server.command_calls().unwrap()["evalsha"] > 0, "the locks were on that server");
}

#[test]
fn the_table_is_for_people() {
    let orders = Orders::of_a_rush();
    let output = run("flash_sale", &[orders.path().as_ref()], None);
    let text = stdout(&output);
    assert!(text.starts_with("A flash sale: 200 orders from "), "{text}");
    let heads = ["variant ", "oversold ", "lost updates ", "duplicates ", "longest wait "];
    let table = text.lines().find(|line| heads.iter().all(|head| line.contains(head)));
    assert!(table.is_some(), "{text}");
    for variant in ["simple", "reentrant", "reentrant+kill", "fair", "redlock", "optimistic", "inventory"] {
        let accounts = text.lines().any(|line| {
            line.starts_with(&format!("{variant} "))
                && line.ends_with("200 orders = 100 sold + 100 refused + 0 sold out")
        });
        assert!(accounts, "{variant}: {text}");
    }
    assert!(text.lines().last().unwrap().starts_with("OK: without a lock "), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_bad_file_is_told_by_line_and_field() {
    let head = "id,customer,product,quantity\n";
    let cases = [
        ("a,b,c,many\n", "line 2, field \"quantity\": \"many\" is not a whole number from 1 to 1000000"),
        ("a,b,c,0\n", "line 2, field \"quantity\": \"0\" is not a whole number from 1 to 1000000"),
        ("a,b,c,1\n\n\nd,,c,1\n", "line 5, field \"customer\": it is empty"),
        ("a,b,c,1\r\nd,b\r\n", "line 3, field \"product\": it is missing"),
        ("a,b,c,1\na,b,c,1\n", "line 3, field \"id\": \"a\" is the order of line 2 already"),
        ("a,b,c,1,2\n", "line 2: 5 fields, and not 4"),
        ("", "there is no order in it"),
    ];
    for (rest, why) in cases {
        let orders = Orders::new(&format!("{head}{rest}"));
        let output = run("flash_sale", &["--json".as_ref(), orders.path().as_ref()], None);
        let stderr_text = stderr(&output);
        assert!(stderr_text.trim_end().ends_with(why), "{rest:?}: {stderr_text}");
        assert!(stderr_text.contains("orders.csv"), "{stderr_text}");
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{rest:?}");
    }
    let output = run("flash_sale", &[Orders::new("id,product,quantity\n").path().as_ref()], None);
    assert!(stderr(&output).contains("line 1: there is no column \"customer\""), "{}", stderr(&output));
}

#[test]
fn the_kind_of_ones_own_does_what_it_says() {
    let output = run("own_kind", &[], None);
    let yes = stdout(&output).lines().filter(|line| line.starts_with("yes: ")).count();
    assert_eq!((output.status.code(), yes), (Some(0), 4), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn the_gate_sells_each_lamp_once() {
    let output = run("flash_inventory", &[], None);
    let (text, errors) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    let figures: Vec<u64> = text.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    assert!(
        matches!(figures[..], [bought, 100, failed, none, ..] if bought > 0 && bought + failed + none == 100),
        "{text}"
    );
    assert!(text.trim_end().ends_with("left = 10"), "{text}");
}

#[test]
fn the_batch_starts_when_its_input_is_there_and_ends_with_its_last_part() {
    let output = run("batch_start", &[], None);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
    let (ready, works) = (["ready"; 4], ["works"; 4]);
    let expected = [&ready[..], &["the input is there"], &works, &["all 4 parts are done"]].concat();
    assert_eq!(lines, expected, "{text}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn the_phases_follow_each_other_until_a_process_is_killed() {
    let output = run("phases", &[], None);
    let text = stdout(&output);
    for phase in 1..=3 {
        let over = text.lines().filter(|line| line.contains(&format!(": phase {phase} is over, ")));
        let (stock, rest): (Vec<_>, Vec<_>) = over.partition(|line| line.ends_with(" and took stock"));
        assert_eq!((stock.len(), rest.len()), (1, 2), "{text}");
        assert!(stock[0].contains(", 0 came later"), "{text}");
    }
    assert!(text.lines().any(|line| line.ends_with(": broken")), "{text}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn three_leaders_follow_each_other_by_an_orderly_end_and_a_kill() {
    let output = run("leader", &[], None);
    let text = stdout(&output);
    let (leads, led): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.contains(" leads, "));
    assert_eq!((leads.len(), led.len()), (3, 2), "{text}");
    assert!(led.iter().all(|line| line.ends_with("led: Ok(())")), "{text}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn each_message_is_charged_once_although_a_consumer_is_killed() {
    let output = run("idempotent", &[], None);
    let text = stdout(&output);
    let charged = text.lines().filter(|line| line.contains(": charged")).count();
    let before = text.lines().filter(|line| line.contains(": was charged before, receipt ")).count();
    assert_eq!((charged, before), (5, 2), "{text}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

/// No times: a loaded machine may be slower than a lease.
#[test]
fn a_worker_that_is_told_to_end_releases_and_one_that_is_killed_does_not() {
    let output = run("shutdown", &[], None);
    let text = stdout(&output);
    let ends: Vec<_> = text.lines().skip(1).map(|line| line.rsplit(" ms: ").next().unwrap()).collect();
    let expired = "the lease had to expire";
    let stderr_text = ["the worker released it", "the worker was told: Closed", "the guard was dropped"];
    assert_eq!(ends, [&stderr_text[..], &[expired; 3]].concat(), "{text}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn never_more_licences_are_out_than_there_are() {
    let output = run("licences", &[], None);
    let (text, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && text.ends_with("all 10 are back\n"), "{text}{errors}");
}

#[test]
fn the_job_of_all_nodes_is_run_by_one() {
    let output = run("cron_once", &[], None);
    let (text, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && text.ends_with("the report was sent 1 time\n"), "{text}{errors}");
    assert_eq!(text.matches("leaves it").count(), 2, "{text}");
}

#[test]
fn the_bounded_buffer_loses_nothing() {
    let output = run("bounded_buffer", &[], None);
    let says = stdout(&output).starts_with("200 items by 2 producers ");
    assert!(output.status.success() && says, "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn the_cache_is_filled_once_each_time_that_it_is_stale() {
    let output = run("cached", &[], None);
    let (text, errors) = (stdout(&output), stderr(&output));
    let figures: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    assert!(matches!(figures[..], [401, stale, filled] if stale > 0 && filled == stale + 1), "{text}");
}

#[test]
fn the_example_of_an_observer_shows_events_and_figures() {
    let output = run("observe", &[], None);
    let text = stdout(&output);
    for event in [
        "TRACE redis_concurrent: acquired lock=\"observed-",
        "TRACE redis_concurrent: released lock=\"observed-",
        "TRACE redis_concurrent: renewed lock=\"observed-",
        "TRACE redis_concurrent: not acquired lock=\"observed-",
        " WARN redis_concurrent: a hold was lost lock=\"observed-",
    ] {
        assert!(text.lines().any(|line| line.starts_with(event)), "{event}: {text}");
    }
    for figure in [
        "redis_concurrent_hold_seconds{kind=\"reentrant lock\",end=\"released\"} 9 times, at most ",
        "redis_concurrent_wait_seconds{kind=\"reentrant lock\",outcome=\"busy\"} 1 times, at most ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(figure)), "{figure}: {text}");
    }
    // A renewal may have found out before the message came.
    let lost = ["forced", "revoked"]
        .map(|why| format!("redis_concurrent_losses_total{{kind=\"reentrant lock\",why=\"{why}\"}} 1"));
    assert!(text.lines().any(|line| lost.iter().any(|lost| line.starts_with(lost))), "{lost:?}: {text}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}
