//! The dashboard and the alerts of `docs/`: what they ask for is what an exporter exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use parking_lot::Mutex;
use redis_concurrent::observe::{AcquiredVia, KeptEnd, LockInfo, LossReason, MetricsObserver, Observer};
use redis_concurrent::{Error, ErrorKind};
use redis_concurrent_testkit::RedisServer;

use crate::support::builder;

const DASHBOARD: &str = include_str!("../../docs/grafana.json");
const ALERTS: &str = include_str!("../../docs/alerts.yaml");
/// As the page says.
const BUCKETS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];
/// What Prometheus adds to all series.
const ADDED: [&str; 2] = ["job", "instance"];

/// Tells a `MetricsObserver` everything there is of the first lock that it hears of.
struct Everything(Arc<Mutex<PrometheusRecorder>>);

impl Observer for Everything {
    fn acquired(&self, lock: LockInfo<'_>, time: Duration, _: AcquiredVia) {
        let recorder = self.0.lock();
        metrics::with_local_recorder(&*recorder, || {
            let (it, error) = (MetricsObserver::default(), |kind| Error::new(kind, lock.name));
            it.wait_began(lock);
            it.wait_ended(lock);
            use AcquiredVia::{Adopted, Free, Granted, HandedOff, Joined, Kept};
            [Free, Granted, HandedOff, Joined, Kept, Adopted]
                .iter()
                .for_each(|way| it.acquired(lock, time, *way));
            it.not_acquired(lock, time, None);
            it.not_acquired(lock, time, Some(&error(ErrorKind::Unavailable)));
            [true, false].iter().for_each(|chosen| it.deadlock(lock, "", *chosen));
            it.released(lock, time);
            use KeptEnd::{Lost, Replaced, Unheard, Wanted};
            [Wanted, KeptEnd::Expired, Replaced, Unheard, Lost]
                .iter()
                .for_each(|why| it.no_longer_kept(lock, *why));
            it.release_deferred(lock, time);
            use LossReason::{Closed, Expired, Forced, Revoked};
            [Expired, Revoked, Forced, Closed].iter().for_each(|why| it.lost(lock, *why));
            it.renewed(lock, time, time);
            it.renewal_failed(lock, time, &error(ErrorKind::Unavailable));
            it.renewal_load(1, 2);
            it.release_abandoned(lock, &error(ErrorKind::OutcomeUnknown));
            it.unlock_failed(lock, &error(ErrorKind::OutcomeUnknown));
            it.reconnected(time);
        });
    }
}

/// The series by name: their labels, with all values.
fn exported() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let builder_of = PrometheusBuilder::new();
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let recorder = builder_of.set_buckets_for_metric(seconds, &BUCKETS).unwrap().build_recorder();
    let handle = recorder.handle();
    let server = RedisServer::start().unwrap();
    let observer = Everything(Arc::new(Mutex::new(recorder)));
    let client = builder(&server.url()).observer(observer).connect().unwrap();
    client.simple_lock("stock:42").lock().unwrap().unlock().unwrap();
    let mut series = BTreeMap::<String, BTreeMap<_, BTreeSet<_>>>::new();
    for line in handle.render().lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let of_it = series.entry(name.to_owned()).or_default();
        for (label, value) in pairs(labels.rsplit_once('}').map_or("", |(labels, _)| labels)) {
            of_it.entry(label).or_default().insert(value);
        }
    }
    series
}

/// The labels of `a="x", b=~"y"`, with their values.
fn pairs(labels: &str) -> Vec<(String, String)> {
    let mut words = labels.split('"');
    let mut pairs = Vec::new();
    while let (Some(label), Some(value)) = (words.next(), words.next()) {
        pairs.push((label.trim_matches([',', ' ', '=', '~']).to_owned(), value.to_owned()));
    }
    pairs
}

/// What is asked for, by where.
fn queries() -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            queries.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    let lines: Vec<_> = ALERTS.lines().map(str::trim).collect();
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("- alert: ")) {
        assert_eq!(lines[i + 1], "expr: >-", "{line}");
        queries.push(((*line).to_owned(), lines[i + 2].to_owned()));
    }
    assert!(queries.len() > 20, "{queries:?}");
    queries
}

#[test]
fn each_query_is_for_series_and_labels_that_are_exported() {
    let exported = exported();
    let mut queried = BTreeSet::new();
    for (at, query) in queries() {
        let mut labels = BTreeSet::new();
        for (start, _) in query.match_indices("redis_concurrent_") {
            let rest = &query[start..];
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let series = exported.get(&rest[..end]).unwrap_or_else(|| panic!("{at}: no {}", &rest[..end]));
            queried.insert(rest[..end].to_owned());
            labels.extend(series.keys().cloned());
            let Some(matchers) = rest[end..].strip_prefix('{') else { continue };
            for (label, values) in pairs(matchers.split_once('}').unwrap().0) {
                if ADDED.contains(&&*label) {
                    continue;
                }
                let there = series.get(&label).unwrap_or_else(|| panic!("{at}: no label {label}"));
                for value in values.split('|') {
                    assert!(there.contains(value), "{at}: {label} is never {value}, but {there:?}");
                }
            }
        }
        for by in ["by (", "on ("].iter().flat_map(|word| query.split(word).skip(1)) {
            for label in by.split(')').next().unwrap().split(',').map(str::trim) {
                assert!(
                    ADDED.contains(&label) || labels.contains(label),
                    "{at}: no label {label} in {query}"
                );
            }
        }
        let balance = |open, close| query.matches(open).count() == query.matches(close).count();
        assert!(balance('(', ')') && balance('{', '}') && balance('[', ']'), "{at}: {query}");
    }
    // And nothing is left out: each figure is on the dashboard or in an alert.
    let figure = |series: &str| {
        series.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_sum").to_owned()
    };
    let queried: BTreeSet<_> = queried.iter().map(|it| figure(it)).collect();
    let there: BTreeSet<_> = exported.keys().map(|it| figure(it)).collect();
    assert_eq!(queried, there);
}

/// By Prometheus itself, where it is installed or `ci/setup.sh promtool` has fetched it.
#[test]
fn the_alerts_are_rules_of_prometheus_and_the_queries_its_language() {
    let folder = tempfile::tempdir().unwrap();
    // A rule of each query, where Grafana's variables have values. (JSON is YAML.)
    let dashboard = queries().into_iter().filter(|(at, _)| !at.starts_with("- alert: "));
    let rules: Vec<_> = dashboard
        .map(|(_, query)| query.replace("$__rate_interval", "5m").replace("$job", ".*"))
        .inspect(|query| assert!(!query.contains('$'), "{query}"))
        .enumerate()
        .map(|(i, expr)| serde_json::json!({"record": format!("query:{i}"), "expr": expr}))
        .collect();
    let file = folder.path().join("dashboard.yaml");
    let text = serde_json::json!({"groups": [{"name": "dashboard", "rules": &rules}]}).to_string();
    std::fs::write(&file, text).unwrap();
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.yaml");
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/promtool");
    let promtool = if fetched.exists() { fetched.as_os_str() } else { "promtool".as_ref() };
    for (file, rules) in [(&alerts, 11), (&file, rules.len())] {
        match Command::new(promtool).args(["check", "rules"]).arg(file).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
                assert!(text.contains(&format!("{rules} rules found")), "{text}");
            }
            Err(error) => {
                eprintln!("NOT CHECKED: the alerts and queries: no promtool (ci/setup.sh promtool): {error}");
            }
        }
    }
}
