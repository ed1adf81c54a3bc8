//! Checks `docs/cli.schema.json` against the output: each key that is printed is in the schema, with its
//! type, and each key of the schema is printed. The table of the page has the same keys.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_partitions::Partitions;
use redis_concurrent_testkit::{RedisServer, wait_until};
use serde_json::Value;

use crate::fixture::{LONG, done, program};

const SCHEMA: &str = include_str!("../../../docs/cli.schema.json");
const PAGE: &str = include_str!("../../../docs/command-line.md");

/// The schema, and the paths in it that were seen: `show`, `show.fenced`, and so on.
struct Schema {
    all: Value,
    seen: BTreeSet<String>,
}

impl Schema {
    fn new() -> Schema {
        Schema { all: serde_json::from_str(SCHEMA).unwrap(), seen: BTreeSet::new() }
    }

    fn def(&self, name: &str) -> Value {
        self.all["$defs"][name].clone()
    }

    /// Checks each line against the definition of this name.
    fn hold(&mut self, name: &str, lines: &str) {
        assert!(!lines.is_empty(), "{name} printed nothing");
        for line in lines.lines() {
            let value = serde_json::from_str(line).expect(line);
            let fits = self.fits(name, &self.def(name), &value);
            fits.unwrap_or_else(|why| panic!("{why}: {line}"));
        }
    }

    fn fits(&mut self, at: &str, schema: &Value, value: &Value) -> Result<(), String> {
        // A value that may be null counts as seen only if it was not null.
        if !value.is_null() {
            self.seen.insert(at.to_owned());
        }
        if let Some(named) = schema["$ref"].as_str() {
            let name = named.rsplit('/').next().unwrap();
            return self.fits(name, &self.def(name), value);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let is_null = |it: &Value| it["type"] == "null";
            let choice = choices.iter().find(|it| is_null(it) == value.is_null());
            return self.fits(at, choice.ok_or(format!("{at} is none of its choices"))?, value);
        }
        let allowed = match &schema["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(some) => some.iter().map(|it| it.as_str().unwrap().to_owned()).collect(),
            _ => schema["enum"].as_array().map(|all| all.contains(value)).map_or(vec![], |is_one| {
                assert!(is_one, "{at} is {value}");
                vec!["string".to_owned()]
            }),
        };
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = allowed.iter().any(|it| it == is || (it == "number" && is == "integer"));
        if !fits {
            return Err(format!("{at} is {is}, and not one of {allowed:?}"));
        }
        if let Some(text) = value.as_str().filter(|_| schema["format"] == "date-time") {
            assert!(text.len() == 24 && text.ends_with('Z'), "{at}: {text}");
        }
        for item in value.as_array().into_iter().flatten() {
            self.fits(at, &schema["items"], item)?;
        }
        let Some(object) = value.as_object() else { return Ok(()) };
        let properties = &schema["properties"];
        for (key, value) in object {
            let schema = properties.get(key).unwrap_or(&schema["additionalProperties"]);
            if schema.is_null() {
                return Err(format!("{at} has {key}"));
            }
            let at = if properties.get(key).is_some() { format!("{at}.{key}") } else { at.to_owned() };
            self.fits(&at, schema, value)?;
        }
        let missing = names(&schema["required"]).find(|it| !object.contains_key(it));
        missing.map_or(Ok(()), |key| Err(format!("{at} has no {key}")))
    }
}

fn names(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().cloned().unwrap_or_default().into_iter().map(|it| it.as_str().unwrap().to_owned())
}

/// All keys of the definitions, as `show.fenced`.
fn keys(schema: &Value) -> BTreeSet<String> {
    let defs = schema["$defs"].as_object().unwrap().iter();
    let of = |(name, def): (&String, &Value)| {
        let keys: Vec<_> = def["properties"].as_object().unwrap().keys().cloned().collect();
        let mut required: Vec<_> = names(&def["required"]).collect();
        required.sort();
        assert_eq!(required, keys, "of {name} all are required");
        keys.into_iter().map(|key| format!("{name}.{key}")).collect::<Vec<_>>()
    };
    defs.flat_map(of).collect()
}

#[test]
fn each_key_that_is_printed_is_in_the_schema_and_each_of_the_schema_is_printed() {
    let mut schema = Schema::new();
    let server = Arc::new(RedisServer::start().unwrap());
    let url = server.url();
    let client = Client::builder().url(&url).client_name("billing").connect().unwrap();
    let job = client.reentrant_lock("job");
    let worker = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
    };
    // A waiter for a signal, a holder, a waiter; permits; stock; a token.
    let other = Client::connect(&url).unwrap();
    let (end, waits_for_end) = (redis_concurrent::CancellationToken::new(), other.reentrant_lock("job"));
    let ended = end.clone();
    let signalled = worker(
        "waits for a signal",
        Box::new(move || {
            let mut guard = waits_for_end.lock_owned().unwrap();
            let ready = waits_for_end.condition("ready");
            let _ = ready.wait_with(&mut guard, redis_concurrent::Wait::forever().cancelled_by(&ended));
        }),
    );
    let ready = job.condition("ready");
    wait_until(LONG, "it waits for a signal", || {
        client.inspect("job").unwrap().is_some_and(|it| !it.condition_waiters.is_empty())
    });
    let held = job.lock_owned().unwrap();
    let (third, ended) = (Client::builder().url(&url).client_name("shop").connect().unwrap(), end.clone());
    let waits = worker("waits", Box::new(move || drop(third.reentrant_lock("job").lock_owned_with(&ended))));
    wait_until(LONG, "it waits", || job.queue_length().unwrap() > 0);
    client.semaphore("gpu").set_permits(3).unwrap();
    let permits = client.semaphore("gpu").acquire(2).unwrap();
    client.inventory("sale").add_stock("mug", 5).unwrap();
    client.fenced("price").set(held.token(), "7").unwrap();

    schema.hold("ls", &done(&url, &["ls", "--all", "--json"]).ends(0).out);
    let _term = client.election("boss").value("10.0.0.7").campaign().unwrap();
    for name in ["job", "gpu", "sale", "price", "boss"] {
        schema.hold("show", &done(&url, &["show", "--json", name]).ends(0).out);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("watched");
    let mut watch = program(&url, &["watch", "--every", "50ms", "--json"]);
    let mut watch = watch.stdout(std::fs::File::create(&file).unwrap()).spawn().unwrap();
    let lock = client.reentrant_lock("watched");
    let output = || {
        std::fs::read_to_string(&file).unwrap().rsplit_once('\n').map_or(String::new(), |it| it.0.to_owned())
    };
    wait_until(LONG, "a release is told", || {
        // One cannot see from outside whether the first look has been made, so there is more than one change.
        let guard = lock.lock_owned().unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
        guard.unlock().unwrap();
        output().lines().any(|line| line.contains(r#""to":"-""#))
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
    schema.hold("watch", &output());
    let share = Partitions::new(&client, "orders", 2).join("10.0.0.7").unwrap();
    let _owned = [(); 2].map(|()| share.partitions().recv_timeout(LONG).unwrap());
    let deadlocks = crate::asks::in_a_deadlock(&url, || done(&url, &["deadlocks", "--json"]).ends(1).out);
    schema.hold("deadlocks", &deadlocks);
    schema.hold("members", &done(&url, &["members", "--json", "orders:partition:members"]).ends(0).out);
    schema.hold("partitions", &done(&url, &["partitions", "--json", "orders"]).ends(0).out);
    schema.hold("doctor", &done(&url, &["doctor", "--json"]).out);
    schema.hold("doctor", &done("redis+sentinel://127.0.0.1:1/m", &["doctor", "--json"]).ends(2).out);
    schema.hold("bench", &done(&url, &["bench", "--json", "--seconds", "400ms"]).ends(0).out);
    schema.hold("break", &done(&url, &["break", "--yes", "--json", "--now", "--whoever", "gpu"]).ends(0).out);
    for script in ["exit 3", "kill -9 $$"] {
        let shell = format!("{} \"$@\" 3>&1 >/dev/null", crate::fixture::PROGRAM);
        let mut command = std::process::Command::new("sh");
        let run =
            ["-c", &shell, "sh", "run", "--lease", "4s", "--status-fd", "3", "told", "sh", "-c", script];
        let output = command.args(run).env("REDIS_URL", &url).output().unwrap();
        schema.hold("status", &String::from_utf8(output.stdout).unwrap());
    }
    let unseen: Vec<_> = keys(&schema.all).difference(&schema.seen).cloned().collect();
    assert!(unseen.is_empty(), "never printed, but as null: {unseen:?}");
    end.cancel();
    drop((held, permits, ready));
    signalled.join().unwrap();
    waits.join().unwrap();
}

/// Returns what a value is, in a word or two.
fn kind(schema: &Value) -> String {
    let is = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    match schema {
        Value::String(name) => name.clone(),
        Value::Array(some) => some.iter().map(kind).collect::<Vec<_>>().join(" or "),
        _ if schema["$ref"].is_string() => is(&schema["$ref"]).rsplit('/').next().unwrap().to_owned(),
        _ if schema["enum"].is_array() => "string".to_owned(),
        _ if schema["oneOf"].is_array() => kind(&schema["oneOf"]),
        _ if schema["type"] == "array" => format!("list of {}", kind(&schema["items"])),
        _ => kind(&schema["type"]),
    }
}

#[test]
fn the_page_has_the_keys_of_the_schema() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (name, def) in schema["$defs"].as_object().unwrap() {
        // The others are those of a waiter.
        let own = |key: &String| name != "condition" || key == "condition";
        let typed = |key: String| match kind(&def["properties"][&key]) {
            _ if !def["properties"][&key]["description"].is_string() => {
                panic!("{name}.{key} is not described")
            }
            kind if kind == "string" => format!("`{key}`"),
            kind => format!("`{key}` {kind}"),
        };
        let all: Vec<_> = names(&def["required"]).filter(own).map(typed).collect();
        let others = if name == "condition" { "those of a waiter, " } else { "" };
        let row = format!("| `{name}` | {others}{} |", all.join(", "));
        assert!(PAGE.contains(&row), "docs/command-line.md lacks {row}");
    }
}
