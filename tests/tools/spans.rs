//! Spans of `tracing`: one for each wait in which a thread sleeps, one for each hold.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redis_concurrent::{MultiLock, RedLockClient};
use redis_concurrent_testkit::RedisServer;
use tracing::field::{Field, Visit};
use tracing::{Event, Id, Level, Metadata, Subscriber, span};

use crate::support::{alone, builder, connected, in_brief, ms};

/// What was opened and closed on this thread, in order.
#[derive(Clone, Default)]
struct Spans {
    next: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<(u64, String)>>>,
    log: Arc<Mutex<Vec<String>>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && *metadata.level() == Level::DEBUG && metadata.target() == "redis_concurrent"
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> Id {
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut Fields(&mut text));
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.lock().push(format!("+ {text}"));
        self.open.lock().push((id, text));
        Id::from_u64(id)
    }
    fn try_close(&self, id: Id) -> bool {
        let mut open = self.open.lock();
        let at = open.iter().position(|(it, _)| *it == id.into_u64()).expect("it was opened");
        self.log.lock().push(format!("- {}", open.remove(at).1));
        true
    }
    fn record(&self, _: &Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// In a process of its own: a span that a thread without a subscriber is the first to make is none of anybody's from then on.
#[test]
fn a_wait_and_a_hold_are_spans() {
    alone("spans::a_wait_and_a_hold_are_spans", a_wait_and_a_hold);
}

fn a_wait_and_a_hold() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connected(|| builder(&server.url())), connected(|| builder(&server.url())));
    let lock = client.reentrant_lock("it");
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || {
        let guard = lock.lock().unwrap();
        let again = lock.lock().unwrap(); // the same hold
        drop((again, guard));
        let held = other.reentrant_lock("it").lock_owned().unwrap();
        assert!(lock.try_lock().unwrap().is_none()); // sleeps for nothing
        assert!(in_brief(lock.try_lock_for(ms(300))).is_none());
        drop(held);
    });
    let [wait, hold] = ["wait", "hold"].map(|it| format!("lock.{it} lock=\"it\" kind=\"reentrant lock\""));
    let expected = [("+", &hold), ("-", &hold), ("+", &hold), ("+", &wait), ("-", &wait), ("-", &hold)];
    let expected: Vec<_> = expected.iter().map(|(what, span)| format!("{what} {span}")).collect();
    assert_eq!(*spans.log.lock(), expected);
}

#[test]
fn the_hold_of_several_locks_and_of_several_servers_is_one_span() {
    alone("spans::the_hold_of_several_locks_and_of_several_servers_is_one_span", holds_of_several);
}

fn holds_of_several() {
    let servers = [(); 3].map(|()| RedisServer::start().unwrap());
    let clients = servers.each_ref().map(|server| connected(|| builder(&server.url())));
    let (a, b) = (clients[0].simple_lock("a"), clients[0].simple_lock("b"));
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay();
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || {
        MultiLock::new(&[&a, &b]).lock_owned().unwrap().unlock().unwrap();
        drop(red.lock("c").lock_owned().unwrap());
    });
    let [both, red] = ["lock=\"a + b\" kind=\"multi-lock\"", "lock=\"c\" kind=\"red lock\""];
    let expected =
        [("+", both), ("-", both), ("+", red), ("-", red)].map(|(what, it)| format!("{what} lock.hold {it}"));
    assert_eq!(*spans.log.lock(), expected);
}
