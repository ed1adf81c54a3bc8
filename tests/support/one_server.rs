//! A server of a test's own, with the lock that the test is about: each client stands for another process.

// Each test binary uses only part of it.
#![allow(dead_code)]

use std::marker::PhantomData;

use redis::FromRedisValue;
use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::server_days::ask;
use crate::support::{LONG, SOON, connect, connected, nothing_left, patient, unhurried};

/// A server, for tests of locks of the type `L`.
pub struct Fixture<L> {
    pub server: RedisServer,
    lock: PhantomData<fn() -> L>,
}

/// The lock that tests are about.
pub trait Subject {
    /// Where those that wait for it stand.
    const QUEUE: &str = "rc:{it}:queue";

    fn of(client: &Client) -> Self;
}

impl<L> Fixture<L> {
    pub fn new() -> Self {
        Fixture { server: RedisServer::start().unwrap(), lock: PhantomData }
    }

    pub fn client(&self) -> Client {
        connect(&self.server)
    }

    pub fn client_with(&self, set: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
        connected(|| set(unhurried(&self.server.url())))
    }

    /// One command from outside.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.server, words)
    }

    /// Nothing is left in Redis, and nothing in these clients.
    #[track_caller]
    pub fn end(&self, clients: &[&Client]) {
        nothing_left(&self.server);
        for client in clients {
            wait_until(SOON, "no lock is in use", || lock_count(client) == 0);
            client.close().unwrap();
        }
    }
}

impl<L: Subject> Fixture<L> {
    /// The lock, for a client of its own.
    pub fn lock(&self) -> L {
        L::of(&self.client())
    }

    /// The lock, for a [patient] client: a caller that comes in looks because of a holder elsewhere, or was let in.
    pub fn patient(&self) -> L {
        L::of(&patient(&self.server))
    }

    /// Returns how many owners wait for the lock.
    pub fn queued(&self) -> usize {
        self.ask(&["ZCARD", L::QUEUE])
    }

    #[track_caller]
    pub fn await_queued(&self, n: usize) {
        wait_until(LONG, &format!("{n} wait for the lock"), || self.queued() == n);
    }
}
