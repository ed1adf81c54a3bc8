//! The owners that end in `~`: their process keeps the lock, and is told when another caller wants it.

use redis::{Connection, PubSub};
use redis_concurrent::kinds::{Kind, Reentrant, Simple};

use crate::rig::{Rig, server};
use crate::support::ms;

/// What a client is told, up to a message of our own.
struct Inbox<'a> {
    pubsub: PubSub<'a>,
    channel: String,
}

impl Inbox<'_> {
    fn all(&mut self, rig: &mut Rig) -> Vec<String> {
        redis::cmd("PUBLISH").arg(&self.channel).arg("mark").exec(&mut rig.con).unwrap();
        let mut all = Vec::new();
        loop {
            let text: String = self.pubsub.get_message().unwrap().get_payload().unwrap();
            if text == "mark" {
                return all;
            }
            all.push(text.split(' ').nth(1).unwrap_or_default().to_owned());
        }
    }
}

fn listen<'a>(con: &'a mut Connection, rig: &Rig, who: &str) -> Inbox<'a> {
    let id = rig.id(who, 1);
    let channel = format!("rc:inbox:{}", id.split(':').next().unwrap());
    let mut pubsub = con.as_pubsub();
    pubsub.set_read_timeout(Some(ms(20_000))).unwrap();
    pubsub.subscribe(&channel).unwrap();
    Inbox { pubsub, channel }
}

fn each(name: &str, test: impl Fn(&mut Rig)) {
    for (kind, rule) in [("simple lock", Simple::RULE), ("reentrant lock", Reentrant::RULE)] {
        test(&mut Rig::of(server(), kind, rule, name));
    }
}

fn keeper(rig: &Rig, who: &str) -> String {
    format!("{}~", rig.id(who, 1))
}

#[test]
fn an_attempt_that_finds_it_busy_tells_its_keeper() {
    each("linger-1", |rig| {
        let server = server();
        let mut con = server.connection().unwrap();
        let mut inbox = listen(&mut con, rig, "a");
        let a = keeper(rig, "a");
        assert_eq!(rig.try_(&a)[0], "1");
        let none: [&str; 0] = [];
        assert_eq!(inbox.all(rig), none, "nobody wants it");
        assert_eq!(rig.try_(&rig.b())[0], "0");
        assert_eq!(inbox.all(rig), ["wanted"], "by one attempt: {}", rig.kind);
        rig.leave(&a);
    });
}

#[test]
fn each_heartbeat_tells_the_keeper_again() {
    each("linger-2", |rig| {
        let server = server();
        let (mut con, mut recorder) = (server.connection().unwrap(), server.connection().unwrap());
        let mut inbox = listen(&mut con, rig, "a");
        let _b = listen(&mut recorder, rig, "b");
        let (a, b) = (keeper(rig, "a"), rig.b());
        assert_eq!(rig.try_(&a)[0], "1");
        assert_eq!(rig.wait(&b)[0], "0");
        assert_eq!(inbox.all(rig), ["wanted"], "by a waiter: {}", rig.kind);
        assert_eq!(rig.keep(&b)[0], "0");
        assert_eq!(inbox.all(rig), ["wanted"], "by its heartbeat: {}", rig.kind);
        rig.leave(&a);
        rig.leave(&b);
    });
}

#[test]
fn a_keeper_is_told_with_its_grant_that_there_are_waiters() {
    each("linger-3", |rig| {
        let server = server();
        let (mut con, mut recorder) = (server.connection().unwrap(), server.connection().unwrap());
        let (a, b, c) = (rig.a(), keeper(rig, "b"), rig.c());
        let mut inbox = listen(&mut con, rig, "b");
        let _c = listen(&mut recorder, rig, "c");
        assert_eq!(rig.try_(&a)[0], "1");
        rig.wait(&b);
        rig.wait(&c);
        rig.leave(&a);
        assert_eq!(inbox.all(rig), ["in", "wanted"], "{}", rig.kind);
        // And whenever it asks, and is inside.
        assert_eq!(rig.try_(&b)[0], "1");
        assert_eq!(inbox.all(rig), ["wanted"], "{}", rig.kind);
        rig.leave(&b);
        rig.leave(&c);
    });
}

#[test]
fn others_are_told_nothing() {
    each("linger-4", |rig| {
        let server = server();
        let (mut con, mut recorder) = (server.connection().unwrap(), server.connection().unwrap());
        let mut inbox = listen(&mut con, rig, "a");
        let _b = listen(&mut recorder, rig, "b");
        let (a, b) = (rig.a(), rig.b());
        assert_eq!(rig.try_(&a)[0], "1");
        rig.wait(&b);
        rig.keep(&b);
        rig.try_(&rig.c());
        let none: [&str; 0] = [];
        assert_eq!(inbox.all(rig), none, "{}", rig.kind);
        rig.leave(&a);
        rig.leave(&b);
    });
}
