//! Connections over the network of an execution, with the methods of the `redis` and `r2d2` crates that the engine uses.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use r2d2::ManageConnection;
use redis::{ConnectionInfo, RedisError, RedisResult, Value};

use crate::clock::Moment;
use crate::engine::redis::connection::{self, ConnectionManager};
use crate::engine::redis::credentials::Credentials;
use crate::settings::Config;
use crate::sync::{Condvar, Mutex, thread, time};

/// What connections lead over, to a Redis in memory.
pub(crate) trait Network: Send + Sync {
    /// Whether anything on it takes time.
    fn takes_time(&self) -> bool {
        true
    }
    /// Returns the number of a new connection to this address.
    fn connect(&self, address: &str, limit: Duration) -> RedisResult<u64>;
    fn send(&self, connection: u64, command: Vec<String>) -> RedisResult<()>;
    /// Returns the next reply, or the next message to a subscriber.
    fn receive(&self, connection: u64, until: Moment) -> RedisResult<Value>;
    fn hang_up(&self, connection: u64);
}

// All threads of an execution run on one OS thread.
thread_local!(static NETWORK: RefCell<Option<Arc<dyn Network>>> = const { RefCell::new(None) });

/// From now on, all connections lead over this network.
pub(crate) fn lead_over(network: Arc<dyn Network>) {
    NETWORK.set(Some(network));
}

pub(crate) fn connect(
    info: &ConnectionInfo,
    _credentials: &Credentials,
    limit: Duration,
) -> RedisResult<Connection> {
    let network = NETWORK.with_borrow(Clone::clone).ok_or_else(refused)?;
    let id = network.connect(&info.addr().to_string(), limit)?;
    Ok(Connection { network, id })
}

pub(crate) fn refused() -> RedisError {
    io::Error::from(io::ErrorKind::ConnectionRefused).into()
}

pub(crate) fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// Removes the first command from what was sent, if there is one.
fn command(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let number = |bytes: &mut &[u8]| -> Option<usize> {
        let end = bytes.iter().position(|b| *b == b'\r')?;
        let n = std::str::from_utf8(&bytes[1..end]).ok()?.parse().ok()?;
        *bytes = &bytes[end + 2..];
        Some(n)
    };
    let parts = number(bytes)?;
    let part = |_| {
        let n = number(bytes)?;
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        *bytes = &bytes[n + 2..];
        Some(text)
    };
    (0..parts).map(part).collect()
}

pub(crate) struct Connection {
    network: Arc<dyn Network>,
    id: u64,
}

impl Connection {
    pub(crate) fn set_write_timeout(&mut self, _limit: Option<Duration>) -> RedisResult<()> {
        Ok(())
    }

    pub(crate) fn send_packed_command(&mut self, mut bytes: &[u8]) -> RedisResult<()> {
        while let Some(command) = command(&mut bytes) {
            self.network.send(self.id, command)?;
        }
        Ok(())
    }

    pub(crate) fn recv_response(&mut self, _now: Moment, until: Moment) -> RedisResult<Value> {
        self.network.receive(self.id, until)
    }

    pub(crate) fn ask<const N: usize>(
        &mut self,
        requests: [Vec<u8>; N],
        until: Moment,
    ) -> RedisResult<[Value; N]> {
        self.send_packed_command(&requests.concat())?;
        let mut replies = [const { Value::Nil }; N];
        for (reply, _) in replies.iter_mut().zip(&requests).filter(|(_, request)| !request.is_empty()) {
            *reply = self.recv_response(Moment::now(), until)?;
        }
        Ok(replies)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A test that has failed must not fail again.
        if !std::thread::panicking() {
            self.network.hang_up(self.id);
        }
    }
}

/// Lets another thread take the next step.
pub(crate) fn breathe() {
    shuttle::thread::yield_now();
}

/// A pool with up to a client's maximum of connections at a time. Each is used once, but by a client whose drops do
/// not wait: those leave a reply only on one that is idle, and has been used before.
#[derive(Clone)]
pub(crate) struct Pool {
    manager: ConnectionManager,
    room: Arc<Room>,
}

struct Room {
    left: Mutex<u32>,
    idle: Mutex<Vec<Box<connection::Connection>>>,
    keeps: bool,
    changed: Condvar,
}

/// Whether all connections that the pool may have are in use.
pub(crate) fn is_exhausted(pool: &Pool) -> bool {
    *pool.room.left.lock() == 0
}

pub(crate) struct Pools {
    most: u32,
    keeps: bool,
    pub(crate) threads: Threads,
}

/// The threads of a real pool: where time passes, one for each task. (Elsewhere what is unread is read by the next user,
/// or at close.)
#[derive(Clone)]
pub(crate) struct Threads;

impl Threads {
    pub(crate) fn execute_with_dynamic_delay(
        &self,
        first: Duration,
        mut task: impl FnMut() -> Option<Duration> + Send + 'static,
    ) {
        let runs = move || {
            let mut pause = Some(first);
            while let Some(lasts) = pause {
                thread::sleep(lasts);
                pause = task();
            }
        };
        if time::passes() {
            let _ = thread::Builder::new().name("pool".to_owned()).spawn(runs);
        }
    }
}

impl Pools {
    pub(crate) fn new(config: &Config, _threads: usize) -> io::Result<Pools> {
        Ok(Pools { most: config.max_connections, keeps: !config.drop_waits, threads: Threads })
    }

    pub(crate) fn pool(&self, manager: ConnectionManager) -> Pool {
        let (idle, changed) = (Mutex::new(Vec::new()), Condvar::new());
        let room = Room { left: Mutex::new(self.most), idle, keeps: self.keeps, changed };
        Pool { manager, room: Arc::new(room) }
    }
}

impl Pool {
    pub(crate) fn try_get(&self) -> Option<Pooled> {
        let connection = self.room.idle.lock().pop()?;
        *self.room.left.lock() -= 1;
        Some(Pooled { connection: Some(connection), room: self.room.clone() })
    }

    pub(crate) fn get_timeout(&self, limit: Duration) -> RedisResult<Pooled> {
        let until = Moment::now().after(limit);
        let mut left = self.room.left.lock();
        while *left == 0 {
            if self.room.changed.wait_until(&mut left, until) {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        *left -= 1;
        drop(left);
        let mut pooled = Pooled { connection: None, room: self.room.clone() };
        let idle = self.room.idle.lock().pop();
        let mut connection = idle.map_or_else(|| self.connect(until), Ok)?;
        connection.discarded = !self.room.keeps;
        pooled.connection = Some(connection);
        Ok(pooled)
    }

    /// Connects; where that takes time, in a thread of its own, as a pool does.
    fn connect(&self, until: Moment) -> RedisResult<Box<connection::Connection>> {
        if !NETWORK.with_borrow(|network| network.as_ref().is_some_and(|it| it.takes_time())) {
            return self.manager.connect();
        }
        let made = Arc::new((Mutex::new(None), Condvar::new()));
        let (manager, makes) = (self.manager.clone(), made.clone());
        thread::Builder::new().name("pool".to_owned()).spawn(move || {
            let connection = manager.connect();
            *makes.0.lock() = Some(connection);
            makes.1.notify_all();
        })?;
        let mut there = made.0.lock();
        while there.is_none() && Moment::now() < until {
            made.1.wait_until(&mut there, until);
        }
        there.take().unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }
}

/// One of the pool's connections, while it is in use.
pub(crate) struct Pooled {
    connection: Option<Box<connection::Connection>>,
    room: Arc<Room>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // A test that has failed must not fail again.
        if std::thread::panicking() {
            return;
        }
        let idle = self.connection.take().filter(|it| it.is_sound());
        self.room.idle.lock().extend(idle);
        *self.room.left.lock() += 1;
        self.room.changed.notify_one();
    }
}

impl Deref for Pooled {
    type Target = connection::Connection;

    fn deref(&self) -> &connection::Connection {
        self.connection.as_ref().expect("until it is dropped")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut connection::Connection {
        self.connection.as_mut().expect("until it is dropped")
    }
}
