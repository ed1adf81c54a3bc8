//! One connection for several requests: Redis watches keys per connection, and reports on it whether another
//! client has changed one since.

use std::sync::Arc;

use redis::{Cmd, Pipeline, ServerErrorKind, Value, cmd};

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Given;
use crate::engine::redis::refusal::refused;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// A connection on which keys are watched. When this is dropped, it returns to the pool without a watch:
/// Redis has ended it, or was told to, or else the connection is closed.
pub(crate) struct Watching<'a> {
    shared: &'a Shared,
    server: Arc<Server>,
    connection: Given,
    wait: &'a Wait<'a>,
    /// Whether Redis may still be watching.
    watched: bool,
}

impl<'a> Watching<'a> {
    /// Makes Redis watch the keys, from now until the reply to [`exec`](Self::exec).
    pub(crate) fn begin(shared: &'a Shared, keys: &[Vec<u8>], wait: &'a Wait<'a>) -> Result<Self, Failure> {
        shared.usable().map_err(Failure::Never)?;
        let limit = wait.limit(Moment::now(), shared.config.command_timeout);
        // If MULTI were rejected (by the user's rights, say), the commands that follow it would be executed at
        // once, whatever has changed. So it is tried before anything depends on it.
        let watch = [Command::plain(cmd("WATCH").arg(keys)).transacted()];
        let slot = shared.route.slot(keys.first().map_or(b"", Vec::as_slice));
        let mut kept = None;
        let mut act = |server: &Arc<Server>| {
            let mut exchanged = server.backend.exchange(None, &watch, limit)?;
            kept = exchanged.connection.take().map(|connection| (server.clone(), connection));
            exchanged.reply(&watch)
        };
        match &shared.route {
            Route::One(server) => act(server)?,
            Route::Cluster(cluster) => cluster.follow(slot, limit, false, act)?,
        };
        let Some((server, connection)) = kept else { return Err(lost_before()) };
        server.backend.keeps(true);
        Ok(Watching { shared, server, connection, wait, watched: true })
    }

    /// Redis rejected a request: if the error says where the keys are, the route learns that.
    fn refused(&self, e: redis::ServerError) -> Failure {
        let failure = refused(e.into());
        self.shared.route.learn(&self.server, &failure);
        failure
    }

    /// Sends one command, and waits for its reply until the call's timeout at most. After an I/O error it is
    /// not sent again: on another connection, these keys are not watched.
    pub(crate) fn query(&mut self, cmd: &Cmd) -> Result<Value, Failure> {
        self.ready()?;
        let limit = self.limit();
        match self.server.backend.exchange_on(&mut self.connection, &[Command::plain(cmd)], limit)?.pop() {
            Some(Value::ServerError(e)) => Err(self.refused(e)),
            value => Ok(value.unwrap_or(Value::Nil)),
        }
    }

    /// Executes the commands, all at once, if no client has changed a key since the watch began, and returns
    /// their replies; `None` if one has. They are sent only once, as two copies would do more than one.
    ///
    /// # Errors
    /// `OutcomeUnknown` if they may have been executed.
    pub(crate) fn exec(self, commands: &Pipeline) -> Result<Option<Vec<Value>>, Error> {
        self.executed(commands).map_err(|failure| match failure {
            Failure::Unanswered(e) => {
                let why = match e.kind() {
                    ErrorKind::Protocol => "it was written, perhaps over another client's change",
                    _ => "all or none of it was written, or may still be",
                };
                ErrorKind::OutcomeUnknown.because(why).caused_by(e)
            }
            Failure::Unsent(e) => e,
            failure => failure.error().because("Redis rejected it, nothing was written"),
        })
    }

    fn executed(mut self, commands: &Pipeline) -> Result<Option<Vec<Value>>, Failure> {
        self.ready()?;
        let limit = self.limit();
        if !self.server.backend.is_still_open(&mut self.connection, limit)? {
            return Err(lost_before());
        }
        let (multi, exec) = (cmd("MULTI"), cmd("EXEC"));
        let commands: Vec<_> =
            [&multi].into_iter().chain(commands.cmd_iter()).chain([&exec]).map(Command::plain).collect();
        let mut answers = self.server.backend.exchange_on(&mut self.connection, &commands, limit)?;
        let exec = answers.pop();
        if ran_alone(&answers) {
            self.connection.broken = true;
            let error = ErrorKind::Protocol
                .because("the transaction was refused, and commands ran one by one, without protection");
            let first = answers.into_iter().next().map(Value::extract_error);
            return Err(Failure::Unanswered(match first {
                Some(Err(refusal)) => error.caused_by(refusal),
                _ => error,
            }));
        }
        match exec {
            Some(done @ (Value::Array(_) | Value::Nil)) => {
                self.watched = false;
                Ok(if let Value::Array(answers) = done { Some(answers) } else { None })
            }
            Some(Value::ServerError(e)) => {
                self.watched = e.kind() != Some(ServerErrorKind::ExecAbort);
                // If a command was the reason, its own reply says so.
                let of = |answer| if let Value::ServerError(first) = answer { Some(first) } else { None };
                Err(self.refused(answers.into_iter().find_map(of).unwrap_or(e)))
            }
            other => {
                self.connection.broken = true;
                let error = ErrorKind::Protocol.because(format!("unexpected reply to EXEC: {other:?}"));
                Err(Failure::Never(error))
            }
        }
    }

    /// Fails if the connection is out of step, or belongs to another process.
    fn ready(&self) -> Result<(), Failure> {
        self.shared.same_process().map_err(Failure::Never)?;
        if self.connection.broken || self.connection.demoted { Err(lost_before()) } else { Ok(()) }
    }

    fn limit(&self) -> Moment {
        self.wait.limit(Moment::now(), self.shared.config.command_timeout)
    }
}

impl Drop for Watching<'_> {
    /// Also runs when the code that reads has panicked.
    fn drop(&mut self) {
        self.server.backend.keeps(false);
        if self.watched && !self.query(&cmd("UNWATCH")).is_ok_and(|answer| answer == Value::Okay) {
            self.connection.broken = true;
        }
    }
}

fn lost_before() -> Failure {
    Failure::Unsent(ErrorKind::Unavailable.because("the connection was lost before, nothing was written"))
}

/// Whether a command behind `MULTI` took effect at once, by the replies to all that precedes `EXEC`.
fn ran_alone(answers: &[Value]) -> bool {
    let Some((multi, commands)) = answers.split_first() else { return false };
    commands.iter().any(|answer| match answer {
        Value::ServerError(e) => {
            *multi != Value::Okay
                && !matches!(refused(e.clone().into()), Failure::Denied(_) | Failure::Later(_))
        }
        Value::SimpleString(queued) => queued != "QUEUED",
        _ => true,
    })
}
