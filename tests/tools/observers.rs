//! What `tracing` and the `metrics` facade get of what happens to locks, and that it is all of it.

mod play;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use parking_lot::Mutex;
use redis_concurrent::ErrorKind;
use redis_concurrent::observe::{AcquiredVia, LossReason, MetricsObserver};
use redis_concurrent_testkit::{RedisServer, released_all, wait_until};
use tracing::span;

use crate::diary::{Diary, Event};
use crate::support::{alone, builder, connect, connected};
use play::{all_there_is, play};

const LONG: Duration = Duration::from_secs(20);

/// What happened in one play, by each of the three observers.
struct Played {
    diary: Diary,
    figures: Vec<Figure>,
    log: String,
    /// Of one lock, by an observer that was asked for names.
    named: Vec<Figure>,
}

#[derive(Debug)]
struct Figure {
    name: String,
    labels: BTreeMap<String, String>,
    described: bool,
    in_seconds: bool,
    /// In seconds; of a counter as many as it counted, all nothing.
    values: Vec<f64>,
}

/// The recorder and the subscriber are the process's, so the play is given once.
fn played() -> &'static Played {
    static PLAYED: LazyLock<Played> = LazyLock::new(|| {
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        recorder.install().unwrap();
        let log = Log::default();
        let pen = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || pen.clone())
            .init();
        let diary = Diary::default();
        play(&diary, |builder| builder.observer(MetricsObserver::default()));
        let (figures, written) = (figures(&snapshots), String::from_utf8(log.0.lock().clone()).unwrap());
        let server = RedisServer::start().unwrap();
        let named = connected(|| {
            builder(&server.url()).observer(MetricsObserver::default().with_groups(str::to_owned))
        });
        named.simple_lock("stock:42").lock().unwrap().unlock().unwrap();
        Played { diary, figures, log: written, named: self::figures(&snapshots) }
    });
    &PLAYED
}

fn figures(snapshots: &Snapshotter) -> Vec<Figure> {
    let read = |(key, unit, description, value): (metrics_util::CompositeKey, Option<_>, Option<_>, _)| {
        let values: Vec<f64> = match value {
            DebugValue::Counter(n) => vec![0.0; n as usize],
            DebugValue::Histogram(values) => values.into_iter().map(f64::from).collect(),
            DebugValue::Gauge(now) => vec![now.into_inner()],
        };
        Figure {
            name: key.key().name().to_owned(),
            labels: key.key().labels().map(|l| (l.key().to_owned(), l.value().to_owned())).collect(),
            described: description.is_some(),
            in_seconds: unit == Some(metrics::Unit::Seconds),
            values,
        }
    };
    // What an earlier reading has emptied is still listed.
    snapshots.snapshot().into_vec().into_iter().map(read).filter(|it| !it.values.is_empty()).collect()
}

/// A file in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_play_has_everything() {
    for event in all_there_is() {
        assert!(played().diary.has(&event), "{event:?} did not happen: {:?}", played().diary.all());
    }
}

/// What the metrics call it, but for the label `kind`; and whether they measure it.
fn figure_of(event: &Event) -> (&'static str, &[(&'static str, &'static str)], bool) {
    match event {
        Event::Acquired(AcquiredVia::Free) => ("wait_seconds", &[("outcome", "free")], true),
        Event::Acquired(AcquiredVia::Granted) => ("wait_seconds", &[("outcome", "granted")], true),
        Event::Acquired(_) => ("wait_seconds", &[("outcome", "handed_off")], true),
        Event::NotAcquired(None) => ("wait_seconds", &[("outcome", "busy")], true),
        Event::NotAcquired(Some(ErrorKind::Cancelled)) => ("wait_seconds", &[("outcome", "cancelled")], true),
        Event::NotAcquired(Some(ErrorKind::Deadlock)) => ("wait_seconds", &[("outcome", "deadlock")], true),
        Event::Deadlock { .. } => ("deadlocks_total", &[("victim", "this")], false),
        Event::Released => ("hold_seconds", &[("end", "released")], true),
        Event::Deferred => ("hold_seconds", &[("end", "deferred")], true),
        Event::Renewed => ("renewal_left_seconds", &[], true),
        Event::Lost(LossReason::Expired) => ("losses_total", &[("why", "expired")], false),
        Event::Lost(LossReason::Revoked) => ("losses_total", &[("why", "revoked")], false),
        Event::Lost(LossReason::Forced) => ("losses_total", &[("why", "forced")], false),
        Event::Lost(_) => ("losses_total", &[("why", "closed")], false),
        Event::RenewalFailed => ("renewal_failures_total", &[], false),
        Event::Abandoned => ("releases_abandoned_total", &[], false),
        Event::UnlockFailed(ErrorKind::LeaseLost) => {
            ("unlock_failures_total", &[("error", "lease lost")], false)
        }
        Event::UnlockFailed(ErrorKind::OutcomeUnknown) => {
            ("unlock_failures_total", &[("error", "outcome unknown")], false)
        }
        Event::NoLongerKept(_) => ("kept_ends_total", &[("why", "wanted")], false),
        Event::Reconnected => ("inbox_down_seconds", &[], true),
        other => panic!("{other:?} was not in the play"),
    }
}

/// All values of a figure, of all kinds of lock, in order.
fn values(name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let name = format!("redis_concurrent_{name}");
    let is_it = |f: &&Figure| {
        f.name == name && labels.iter().all(|(key, value)| f.labels.get(*key).is_some_and(|it| it == value))
    };
    let mut values: Vec<f64> = played().figures.iter().filter(is_it).flat_map(|f| f.values.clone()).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[test]
fn the_metrics_agree_with_the_diary() {
    for event in all_there_is() {
        let (name, labels, measured) = figure_of(&event);
        let mut recorded: Vec<f64> = played().diary.times(&event).iter().map(Duration::as_secs_f64).collect();
        recorded.sort_by(f64::total_cmp);
        let metrics = values(name, labels);
        if measured {
            assert_eq!(metrics, recorded, "{event:?}");
        } else {
            assert_eq!(metrics.len(), recorded.len(), "{event:?}");
        }
    }
    // Nothing was counted that is not in the diary: each renewal is measured twice. (How they went out together is
    // not in them.)
    let others = ["load_ratio", "waiting", "held"];
    let of_locks = played().figures.iter().filter(|f| !others.iter().any(|other| f.name.ends_with(other)));
    let all: usize = of_locks.map(|f| f.values.len()).sum();
    assert_eq!(all, played().diary.all().len() + played().diary.count(&Event::Renewed));
    assert_eq!(values("renewal_lag_seconds", &[]).len(), played().diary.count(&Event::Renewed));
    assert!(values("renewal_load_ratio", &[]).iter().all(|ratio| *ratio > 0.0 && *ratio < 0.1));
}

/// Holds that began have ended, each once; calls came to a hold or to none.
#[test]
fn the_metrics_add_up() {
    let count = |name: &str, labels: &[(&str, &str)]| values(name, labels).len();
    let began: usize = ["free", "granted", "handed_off", "kept"]
        .iter()
        .map(|way| count("wait_seconds", &[("outcome", way)]))
        .sum();
    assert!(began > 0);
    assert_eq!(began, count("hold_seconds", &[]) + count("losses_total", &[]));
}

/// In the end nobody waits, and nothing is held.
#[test]
fn the_gauges_are_back_at_nothing() {
    for gauge in ["waiting", "held"] {
        let values = values(gauge, &[]);
        assert!(!values.is_empty() && values.iter().all(|value| *value == 0.0), "{gauge}: {values:?}");
    }
}

#[test]
fn each_figure_has_its_kind_a_description_and_a_line_in_the_documentation() {
    let page = include_str!("../../docs/operations.md");
    let documented: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `redis_concurrent_")?.split('`').next())
        .collect();
    let mut recorded = BTreeSet::new();
    for figure in &played().figures {
        recorded.insert(figure.name.strip_prefix("redis_concurrent_").unwrap());
        assert!(figure.described, "{figure:?}");
        assert_eq!(figure.in_seconds, figure.name.ends_with("_seconds"), "{figure:?}");
        let mut labels = figure.labels.clone();
        let kind = labels.remove("kind");
        if !figure.name.contains("inbox") && !figure.name.contains("load") {
            assert!(matches!(kind.as_deref(), Some("simple lock" | "reentrant lock")), "{figure:?}");
        }
        assert!(labels.len() <= 1 && !labels.contains_key("lock"), "a name without being asked: {figure:?}");
    }
    assert_eq!(recorded, documented);
}

#[test]
fn a_lock_s_name_is_a_label_where_it_is_asked_for() {
    let named: Vec<_> = played().named.iter().filter(|it| it.labels.contains_key("lock")).collect();
    assert_eq!(named.len(), 3, "a wait, a hold, what is held now: {named:?}");
    for figure in named {
        assert_eq!(figure.labels["lock"], "stock:42", "{figure:?}");
        assert_eq!(figure.labels["kind"], "simple lock", "{figure:?}");
    }
}

/// The level and the words of it in a log.
fn line_of(event: &Event) -> (&'static str, &'static str) {
    match event {
        Event::Acquired(AcquiredVia::Free) => ("TRACE", "via=\"free\""),
        Event::Acquired(AcquiredVia::Granted) => ("TRACE", "via=\"granted\""),
        Event::Acquired(_) => ("TRACE", "via=\"handed_off\""),
        Event::NotAcquired(None) => ("TRACE", "not acquired"),
        Event::NotAcquired(Some(ErrorKind::Deadlock)) => ("TRACE", "error=\"played\": deadlock"),
        Event::NotAcquired(Some(_)) => ("TRACE", "error=\"played\": cancelled"),
        Event::Deadlock { .. } => ("WARN", "chosen=true"),
        Event::Released => ("TRACE", "held="),
        Event::NoLongerKept(_) => ("TRACE", "why=\"wanted\""),
        Event::Renewed => ("TRACE", "lag="),
        Event::RenewalFailed => ("DEBUG", "not renewed"),
        Event::Lost(LossReason::Expired) => ("WARN", "why=\"its lease expired\""),
        Event::Lost(LossReason::Revoked) => ("WARN", "why=\"Redis no longer knows this hold\""),
        Event::Lost(LossReason::Forced) => ("WARN", "why=\"it was unlocked by force\""),
        Event::Lost(_) => ("WARN", "why=\"the client was closed\""),
        Event::Deferred => ("INFO", "a release continues in the background"),
        Event::Abandoned => ("WARN", "left to its lease"),
        Event::UnlockFailed(ErrorKind::LeaseLost) => ("DEBUG", "error=\"played\": lease lost"),
        Event::UnlockFailed(_) => ("DEBUG", "error=\"played\": outcome unknown"),
        Event::Reconnected => ("INFO", "listening for grants again"),
    }
}

#[test]
fn each_event_is_a_line_of_the_log() {
    // Other tests of this process have locks, too.
    let ours =
        |line: &&str| line.contains(" lock=\"played\" ") || line.contains("listening for grants again");
    let log: Vec<_> =
        played().log.lines().filter(|line| line.contains(" redis_concurrent: ")).filter(ours).collect();
    for event in all_there_is() {
        let (level, words) = line_of(&event);
        let mut lines =
            log.iter().filter(|line| line.contains(&format!(" {level} ")) && line.contains(words));
        let line = lines.next().unwrap_or_else(|| panic!("{event:?} is not in the log: {log:#?}"));
        if event != Event::Reconnected {
            assert!(line.contains(" lock=\"played\" ") && line.contains(" kind=\""), "{line}");
        }
    }
    // Nothing is told twice.
    let losses = log.iter().filter(|line| line.contains("a hold was lost")).count();
    assert_eq!(losses, values("losses_total", &[]).len());
}

/// Readers of one process share a grant, and lose it together: each of them held. One warning is enough.
#[test]
fn what_readers_lose_is_held_no_more() {
    alone("observers::what_readers_lose_is_held_no_more", || {
        const READERS: usize = 3;
        let recorder = DebuggingRecorder::new();
        let snapshots = recorder.snapshotter();
        recorder.install().unwrap();
        let log = Log::default();
        let pen = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || pen.clone()).init();
        let server = RedisServer::start().unwrap();
        let client =
            connected(|| builder(&server.url()).local_handoff(LONG).observer(MetricsObserver::default()));
        let lock = client.read_write_lock("shared");
        let values = |name: &str| -> Vec<f64> {
            let all = figures(&snapshots).into_iter().filter(|it| it.name.ends_with(name));
            all.flat_map(|it| it.values).collect()
        };
        // A reading sets it to nothing.
        let read = Cell::new(0.0);
        let held = || {
            read.set(read.get() + values("_held").iter().sum::<f64>());
            read.get()
        };
        let loses = |how: &dyn Fn()| {
            let guards: Vec<_> = (0..READERS).map(|_| lock.read_lock().lock_owned().unwrap()).collect();
            let lost: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
            assert_eq!(held(), READERS as f64);
            how();
            assert!(lost.iter().all(|lost| lost.wait_timeout(LONG)));
            // The observer is told after the guards.
            wait_until(LONG, "nothing is held", || held() == 0.0);
            drop(guards);
            assert_eq!(held(), 0.0);
        };
        let other = connect(&server).read_write_lock("shared");
        loses(&|| assert!(other.read_lock().force_unlock().unwrap().holders > 0));
        loses(&|| {
            let _ = released_all(&client.close());
        });
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(log.matches("a hold was lost").count(), 2, "one for each grant: {log}");
    });
}

/// Wants everything and can take nothing.
struct Broken;

impl tracing::Subscriber for Broken {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target() == "redis_concurrent" {
            // Without the hook's message on standard error.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A log that cannot be written costs no lock.
#[test]
fn a_broken_log_breaks_no_lock() {
    alone("observers::a_broken_log_breaks_no_lock", || {
        tracing::subscriber::set_global_default(Broken).unwrap();
        let server = RedisServer::start().unwrap();
        let lock = connect(&server).reentrant_lock("played");
        lock.lock().unwrap().unlock().unwrap();
        let guard = lock.lock().unwrap();
        assert!(connect(&server).reentrant_lock("played").try_lock().unwrap().is_none());
        server.flush_all().unwrap();
        assert!(guard.unlock().unwrap_err().is_lease_lost());
        drop(lock.lock().unwrap());
    });
}
