//! A request that is written now and whose reply is read later, so that requests to several servers are in
//! flight at the same time.

use std::sync::Arc;

use redis::{ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::redis::backend::Backend;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Pooled;
use crate::engine::redis::refusal::{no_primary, refused, unanswered};
use crate::engine::redis::server_info::ServerInfo;

/// A request that was written. If it is dropped unread, its connection is closed.
pub(crate) struct Posted {
    connection: Pooled,
    /// The first reply is what the server says about itself.
    asks_server: bool,
    /// When it was written. Several servers are waited for one after another, so the wait for the last one
    /// may be short.
    sent: Moment,
}

/// A script's reply, and the server that sent it, if that is known.
pub(crate) struct Told {
    pub(crate) answer: Result<Value, Failure>,
    pub(crate) server: Option<Arc<ServerInfo>>,
    /// If the request was sent twice: when the connection of the first copy was made.
    pub(crate) first_by: Option<Moment>,
}

impl Posted {
    /// Reads the reply to a request that may be sent twice, waiting until `limit`; an error reply of the
    /// server is an error here. `full` is sent if Redis does not know the script, and as a second copy if the
    /// connection broke: on one dialled since, as what broke one has often broken them all.
    pub(crate) fn told(mut self, backend: &Backend, limit: Moment, full: impl Fn() -> Vec<u8>) -> Told {
        let answer = self.hear(backend, limit, &full);
        let told = Told { answer, server: self.connection.server.clone(), first_by: None };
        let (first_by, now) = (self.connection.born, Moment::now());
        drop(self);
        let Err(Failure::Unanswered(first)) = &told.answer else { return told };
        if limit <= now {
            return told;
        }
        let Ok(mut again) = backend.post_to_known(&full(), limit, Some(now)) else { return told };
        let answer = again.hear(backend, limit, &full).map_err(|failure| match failure {
            // The first copy may still run.
            Failure::Unsent(_) | Failure::Later(_) | Failure::Denied(_) => Failure::Unanswered(first.clone()),
            failure => failure,
        });
        Told { answer, server: again.connection.server.clone(), first_by: Some(first_by) }
    }

    fn hear(
        &mut self,
        backend: &Backend,
        limit: Moment,
        full: impl Fn() -> Vec<u8>,
    ) -> Result<Value, Failure> {
        if self.asks_server {
            let told = self.receive(limit)?;
            self.connection.server = Some(Arc::new(ServerInfo::read(&told, Moment::now())));
        }
        let mut value = self.receive(limit)?;
        if matches!(&value, Value::ServerError(e) if e.kind() == Some(ServerErrorKind::NoScript)) {
            backend.count(1);
            let sent = self.connection.link.send_packed_command(&full());
            sent.map_err(|e| self.connection.unanswered(e))?;
            value = self.receive(limit)?;
        }
        self.connection.broken = no_primary(&value).is_some();
        if let Value::ServerError(e) = value { Err(refused(e.into())) } else { Ok(value) }
    }

    fn receive(&mut self, limit: Moment) -> Result<Value, Failure> {
        self.connection.limit_to(limit);
        let answer = self.connection.link.recv_response();
        answer.map_err(|e| Failure::Unanswered(unanswered(e, Moment::now().since(self.sent))))
    }
}

impl Backend {
    /// Writes one request, whose reply is read later, so that requests to several servers are in flight at
    /// the same time.
    pub(crate) fn post(&self, packed: &[u8], limit: Moment) -> Result<Posted, Failure> {
        Ok(self.write(self.connection(limit, None)?, packed, false))
    }

    /// Like [`post`](Backend::post), for a caller that has to know which server replies: on a new connection,
    /// the same write asks for that. With `dialled_since`, only a connection that was dialled since then will
    /// do.
    pub(crate) fn post_to_known(
        &self,
        packed: &[u8],
        limit: Moment,
        dialled_since: Option<Moment>,
    ) -> Result<Posted, Failure> {
        let connection = self.connection(limit, dialled_since)?;
        if connection.server.is_some() {
            return Ok(self.write(connection, packed, false));
        }
        self.count(1);
        let mut both = ServerInfo::request();
        both.extend_from_slice(packed);
        Ok(self.write(connection, &both, true))
    }

    fn write(&self, mut connection: Pooled, packed: &[u8], asks_server: bool) -> Posted {
        self.count(1);
        let sent = Moment::now();
        // An error shows up when the reply is read.
        let _ = connection.link.send_packed_command(packed);
        // Until the reply is read, the next request would take it for its own.
        connection.broken = true;
        Posted { connection, asks_server, sent }
    }
}
