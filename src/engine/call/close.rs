//! Closing a client: everything that it holds or waits for leaves Redis, and its threads end.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::commands;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::PendingRelease;
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::sync::thread;

/// How long `close` may take in all.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(900);
/// The part of that time that is reserved for the threads to end.
const END_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a server that refuses a leave for now is left alone.
const AGAIN: Duration = Duration::from_millis(50);

/// A leave to send, and the entry of its lock.
type Leaving = (Arc<LockEntry>, PendingRelease);
/// A leave that was not executed, and why.
type Left = (Leaving, Failure);

/// See [`Client::close`](crate::Client::close).
pub(crate) fn close(shared: &Arc<Shared>) -> Result<(), Error> {
    shared.same_process()?;
    let limit = Moment::now().after(CLOSE_TIMEOUT);
    // What guards that were dropped have sent: the outcome is theirs to report.
    for server in shared.route.servers() {
        server.backend.aside.read_older_than(Moment::NEVER, limit.before(END_TIMEOUT * 2));
    }
    // First all guards and waiters are notified, then Redis.
    let Some(leaving) = end(shared) else { return Ok(()) };
    let left = release_all(shared, leaving, limit.before(END_TIMEOUT));
    for ((entry, _), why) in &left {
        let error = ErrorKind::Closed.because("not released in time: the hold expires with its lease");
        let error = entry.error(error.caused_by(why.clone().error()));
        shared.observers.tell(|o| o.unlock_failed(entry.observed(), &error));
    }
    shared.route.end();
    let servers = &shared.route.servers();
    // A message to our own inbox ends the listener's read at once.
    let bye = redis::cmd("PUBLISH").arg(shared.channel()).arg("bye").clone();
    for server in servers {
        if server.inbox.is_up() {
            let _ = server.backend.command(&bye, limit.before(END_TIMEOUT / 2));
        }
        server.backend.close();
    }
    let lines_ended = shared.renewer.wait_for_end(servers, limit);
    let ended = servers.iter().fold(lines_ended, |ended, server| server.wait_for_end(limit) && ended);
    // Last, as the others may have had a loss to report.
    let reported = shared.observers.wait_for_end(limit);
    if !(ended && reported) {
        tracing::warn!("a thread of the closed client is still ending");
    }
    let Some((_, why)) = left.first() else { return Ok(()) };
    let what = format!("{} locks could not be released in time and expire with their leases", left.len());
    Err(ErrorKind::OutcomeUnknown.because(what).caused_by(why.clone().error()))
}

/// Closes a client that another process has as well, as one of the two is a copy of the other. Nothing leaves
/// Redis: what is held there is the other's. Sends nothing.
pub(in crate::engine) fn abandon(shared: &Shared) {
    shared.is_a_copy();
    if end(shared).is_some() {
        tracing::error!(client = shared.uuid, "closed: this process is a copy of another, which goes on");
        shared.route.servers().iter().for_each(|server| server.backend.close());
    }
}

/// Ends whatever the client does, without a request. Returns what must leave Redis, unless the client was
/// closed before.
fn end(shared: &Shared) -> Option<Vec<Leaving>> {
    if !shared.begin_close() {
        return None;
    }
    shared.ended.cancel();
    let leaving = end_all(shared);
    shared.route.servers().iter().for_each(|server| server.stop());
    shared.renewer.remove(shared.id);
    Some(leaving)
}

/// Closes all lock states of the client. Returns what must leave Redis.
fn end_all(shared: &Shared) -> Vec<Leaving> {
    let mut leaving = Vec::new();
    // Not in the head of the loop: that would keep the table locked for all of it.
    let entries = shared.entries.lock().all();
    for entry in entries {
        let mut core = entry.core.lock();
        let mine = core.lock_state.close(Moment::now());
        // For each grant, the number of holds that are lost with it. A kept grant is no caller's hold, and gone.
        let lost = mine.iter().filter_map(|l| {
            let token = core.requested_loss_token(l.owner);
            core.forget(l.owner)?;
            Some((token, core.lock_state.grant(l.owner)?.holds))
        });
        let lost: Vec<_> = lost.collect();
        let under_way = core.leaves.clone();
        core.wake_all();
        drop(core);
        lost.iter().flat_map(|(token, _)| token).for_each(CancellationToken::cancel);
        for (_, holds) in lost {
            shared.observers.tell_of_each(holds, |o| o.lost(entry.observed(), LossReason::Closed));
        }
        // Their senders have no reply yet: a copy may run later.
        let under_way = under_way.into_iter().map(|l| PendingRelease { maybe_in_flight: true, ..l });
        leaving.extend(mine.into_iter().chain(under_way).map(|l| (entry.clone(), l)));
    }
    leaving
}

/// Sends these leaves, each to the server that has its lock. As long as there is time, sends those again that a server
/// refuses for now; in a cluster, all without an answer, as their locks may have moved, or may be moving. Returns those
/// that were not answered in time.
fn release_all(shared: &Shared, mut leaving: Vec<Leaving>, limit: Moment) -> Vec<Left> {
    loop {
        let left = release_at_once(leaving, limit);
        let now = Moment::now();
        let Some(((entry, _), why)) = left.first().filter(|_| now < limit) else { return left };
        if !shared.route.lost(entry.server(), limit) {
            if !matches!(why, Failure::Later(_)) || limit <= now.after(2 * AGAIN) {
                return left;
            }
            thread::sleep(AGAIN);
        }
        leaving = left.into_iter().map(|(leave, _)| leave).collect();
    }
}

/// Sends these leaves to the server that has them, in parallel where there are several: one that hangs does not delay
/// the others. Returns the leaves that were not answered in time.
fn release_at_once(mut leaving: Vec<Leaving>, limit: Moment) -> Vec<Left> {
    let server = |(entry, _): &Leaving| entry.server().id;
    leaving.sort_by_cached_key(server);
    let mut parts = leaving.chunk_by(|one, next| server(one) == server(next));
    let Some(own) = parts.next() else { return Vec::new() };
    thread::scope(|scope| {
        let started = parts.map(|part| {
            let thread = thread::Builder::new().name("rc-close".to_owned());
            (thread.spawn_scoped(scope, move || release(part, limit)), part)
        });
        let started: Vec<_> = started.collect();
        let mut left = release(own, limit);
        for (thread, part) in started {
            let released = thread.ok().and_then(|thread| thread.join().ok());
            // The thread could not be started, or panicked.
            left.extend(released.unwrap_or_else(|| release(part, limit)));
        }
        left
    })
}

/// Sends these leaves to the server of the first. Returns those that it did not answer in time.
fn release(leaving: &[Leaving], limit: Moment) -> Vec<Left> {
    let Some((first, _)) = leaving.first() else { return Vec::new() };
    let commands: Vec<_> =
        leaving.iter().map(|(entry, leaving)| commands::leave_alone(entry, leaving)).collect();
    let outcomes = first.server().backend.outcomes(&commands, limit);
    let left = |(leave, outcome): (&Leaving, Result<_, _>)| Some((leave.clone(), outcome.err()?));
    leaving.iter().zip(outcomes).filter_map(left).collect()
}
