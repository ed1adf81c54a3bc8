//! What goes to one server in one round: written at once, its answers read one by one.

use std::time::Duration;

use redis::Value;

use super::Task;
use crate::clock::Moment;
use crate::engine::refusal::no_primary;
use crate::engine::wire::Connection;

/// How many answers are read before the time limit is set anew.
const READS: usize = 16;

/// What goes to one server in one round.
pub(super) struct Batch {
    pub(super) tasks: Vec<(Task, Moment)>,
    pub(super) bytes: Vec<u8>,
    pub(super) answers: Vec<Option<Value>>,
    pub(super) connection: Option<Connection>,
    /// There was a connection to begin with.
    pub(super) connected: bool,
}

impl Batch {
    pub(super) fn new() -> Self {
        Batch {
            tasks: Vec::new(),
            bytes: Vec::new(),
            answers: Vec::new(),
            connection: None,
            connected: false,
        }
    }

    /// A task whose request was added to the bytes.
    pub(super) fn push(&mut self, task: Task) {
        self.tasks.push((task, Moment::default()));
        self.answers.push(None);
    }

    pub(super) fn sent(&self) -> usize {
        if self.connected { self.tasks.len() } else { 0 }
    }

    pub(super) fn send(&mut self, patience: Duration) {
        self.connected = self.connection.is_some();
        let now = Moment::now();
        for (_, sent) in &mut self.tasks {
            *sent = now;
        }
        if let Some(connection) = &mut self.connection {
            let sent = connection
                .set_write_timeout(Some(patience))
                .and_then(|()| connection.send_packed_command(&self.bytes));
            if sent.is_err() {
                self.connection = None;
            }
        }
    }

    /// Reads the answers until `limit`. One that does not come leaves the connection out of step,
    /// and with it goes whatever else was on it.
    pub(super) fn receive(&mut self, limit: Moment) {
        for (i, answer) in self.answers.iter_mut().enumerate() {
            let Some(connection) = &mut self.connection else { return };
            let read = if i % READS == 0 {
                let left = limit.since(Moment::now()).max(Duration::from_millis(1));
                connection.set_read_timeout(Some(left))
            } else {
                Ok(())
            };
            match read.and_then(|()| connection.recv_response()) {
                Ok(value) => *answer = Some(value),
                Err(_) => self.connection = None,
            }
        }
        // A server that is no longer the primary: perhaps a new connection leads to the new one.
        if self.answers.iter().flatten().any(|answer| no_primary(answer).is_some()) {
            self.connection = None;
        }
    }
}
