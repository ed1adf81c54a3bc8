//! One attempt: all requests are written before any reply is waited for.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::holding::{Holding, Quorum, ServerHold, give_back};
use super::node::{JITTER, Query, Voter};
use crate::clock::Moment;
use crate::engine::call::attempt::{OneTry, begin, unheard};
use crate::engine::call::waiter::{Progress, this_name};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::acquired;
use crate::engine::state::lock_state::Request;
use crate::error::{Error, ErrorKind};
use crate::sync::spawn;
use crate::wait::Wait;

/// What all the requests of an attempt have in common.
#[derive(Clone, Copy)]
struct RoundTerms {
    began: Moment,
    /// Until when to wait for replies: for the node timeout, or until the call is over.
    deadline: Moment,
    /// Whether the call is over before the node timeout: then a server that has not replied may still be healthy.
    is_cut_short: bool,
    /// For how long a server must have been there to count, unless all count.
    lease: Option<Duration>,
}

/// An attempt at the server with this index.
struct Question<'a> {
    at: usize,
    /// How long its replies usually take.
    usual: Duration,
    attempt: OneTry,
    query: Query<'a>,
}

fn query<'a>(node: &'a Arc<Voter>, entry: &'a LockEntry, attempt: &OneTry) -> Query<'a> {
    Query::new(node, commands::acquire(entry, &attempt.asking).identified())
}

impl RoundTerms {
    /// Waits for the reply. Returns the grant, or `None` if the lock is busy there. The grant of a server that does
    /// not count is released.
    fn hear(&self, attempt: OneTry, query: &mut Query<'_>) -> Result<Option<ServerHold>, Error> {
        let node = query.node;
        let reply = query.read(self.began, self.deadline, self.is_cut_short);
        let (entry, lease) = (attempt.entry.clone(), attempt.asking.terms.lease);
        let server = reply.as_ref().ok().and_then(|reply| reply.server.clone());
        let answer = reply.and_then(|reply| Ok((acquired(&reply.value, lease)?, reply.resent())));
        let Some(acquired) = attempt.answered(answer, self.deadline)? else { return Ok(None) };
        let member = ServerHold { node: node.clone(), entry, ticket: acquired.ticket };
        match self.lease.and_then(|lease| node.rejects(server.as_deref(), lease, self.began)) {
            None => Ok(Some(member)),
            Some(error) => {
                member.defer();
                Err(error)
            }
        }
    }
}

/// The replies so far.
struct Poll<'a> {
    quorum: &'a Quorum,
    terms: RoundTerms,
    granted: Vec<ServerHold>,
    busy: usize,
    /// The servers that were not asked, as an attempt of another call of this process was in the way.
    behind: Vec<usize>,
    /// By the index of the server. If too few servers are left without those that are not retryable, further
    /// attempts would fail as well.
    errors: Vec<(usize, Error)>,
}

/// Asks all servers once. Returns `None` if other callers hold the lock, or asked at the same time.
///
/// # Errors
/// Not retryable if a majority says so.
pub(super) fn attempt(
    quorum: &Quorum,
    request: &Request,
    wait: &Wait<'_>,
) -> Result<Option<Arc<Holding>>, Error> {
    let (began, limit) = (Moment::now(), quorum.limit());
    let deadline = wait.limit(began, limit);
    let terms = RoundTerms {
        began,
        deadline,
        is_cut_short: deadline < began.after(limit),
        lease: (!quorum.servers.skips_startup_delay).then_some(quorum.terms.lease),
    };
    let (granted, behind, errors) = (Vec::with_capacity(quorum.entries.len()), Vec::new(), Vec::new());
    let mut poll = Poll { quorum, terms, granted, busy: 0, behind, errors };
    let questions = poll.begin(request);
    let late = poll.ask(questions);
    let given_back_by = || wait.limit(Moment::now(), limit);
    if !poll.is_held() {
        give_back(&poll.granted, given_back_by());
        return poll.missed();
    }
    let holding = Holding::new(quorum, mem::take(&mut poll.granted));
    hear_later(late, terms, &holding);
    if holding.remaining().is_zero() {
        let _ = holding.end(given_back_by());
        let why = "the replies took longer than the lease";
        return Err(Error::new(ErrorKind::Unavailable, quorum.name()).because(why));
    }
    Ok(Some(holding))
}

impl<'a> Poll<'a> {
    /// Takes a position in the lock state of each server that is worth asking, beginning with those that
    /// usually reply soonest.
    fn begin(&mut self, request: &Request) -> Vec<Question<'a>> {
        let RoundTerms { began, deadline, lease, .. } = self.terms;
        let nodes = &*self.quorum.servers.nodes;
        let (mut some, mut away) = (Vec::with_capacity(nodes.len()), Vec::new());
        for (at, node) in nodes.iter().enumerate() {
            match node.usual(lease, began) {
                Ok(usual) => some.push((usual, at)),
                Err((error, true)) => away.push((at, error)),
                Err((error, false)) => self.errors.push((at, error)),
            }
        }
        some.sort_unstable();
        // A server that is down costs time, so it is asked only if there is no majority without it.
        if some.len() < self.quorum.servers.majority() {
            some.extend(away.into_iter().map(|(at, _)| (Duration::MAX, at)));
        } else {
            self.errors.extend(away);
        }
        let mut questions = Vec::with_capacity(some.len());
        for (usual, at) in some {
            let (node, entry) = (&nodes[at], &self.quorum.entries[at]);
            match begin(entry, request, began, deadline) {
                Ok(Progress::Next(attempt)) => {
                    let query = query(node, entry, &attempt);
                    questions.push(Question { at, usual, attempt, query });
                }
                // A lock that a process has kept is granted without a request.
                Ok(Progress::In(acquired)) => {
                    let (node, entry) = (node.clone(), entry.clone());
                    self.granted.push(ServerHold { node, entry, ticket: acquired.ticket });
                }
                Ok(Progress::Out) => self.behind.push(at),
                Err(error) => self.errors.push((at, error)),
            }
        }
        questions
    }

    /// Writes the requests, and reads the replies until a majority has said yes. Returns those whose replies are
    /// then not worth waiting for.
    fn ask(&mut self, mut questions: Vec<Question<'a>>) -> Vec<Question<'a>> {
        let RoundTerms { began, deadline, .. } = self.terms;
        let missing = self.quorum.servers.majority().saturating_sub(self.granted.len());
        if questions.len() < missing {
            questions.into_iter().for_each(|question| question.attempt.called_off());
            return Vec::new();
        }
        // A connection that is being opened is waited for only if there is no majority without it.
        let mut written = questions.iter_mut().filter_map(|it| it.query.post(began).then_some(())).count();
        for question in &mut questions {
            written += usize::from(written < missing && question.query.post(deadline));
        }
        questions.sort_by_key(|it| it.query.posted.is_none());
        let mut late = Vec::new();
        for mut question in questions {
            // A reply that should have arrived is read here even after a majority: a server that hangs costs
            // this once.
            let is_due = || question.usual <= Moment::now().since(began) * 2 + JITTER;
            if self.is_held() && !(question.query.posted.is_some() && is_due()) {
                late.push(question);
                continue;
            }
            match self.terms.hear(question.attempt, &mut question.query) {
                Ok(Some(member)) => self.granted.push(member),
                Ok(None) => self.busy += 1,
                Err(error) => self.errors.push((question.at, error)),
            }
        }
        late
    }

    fn is_held(&self) -> bool {
        self.granted.len() >= self.quorum.servers.majority()
    }

    /// Why there is no majority.
    fn missed<T>(mut self) -> Result<Option<T>, Error> {
        for at in mem::take(&mut self.behind) {
            match unheard(&self.quorum.entries[at]) {
                Some(error) => self.errors.push((at, error)),
                None => self.busy += 1,
            }
        }
        let (nodes, majority) = (&self.quorum.servers.nodes, self.quorum.servers.majority());
        let n = nodes.len();
        let errors = || self.errors.iter().map(|(_, error)| error);
        let never: Vec<_> = errors().filter(|error| !error.is_retryable()).collect();
        let rejected = never.len();
        // What most say: a minority that has forgotten a hold does not speak for it.
        let alike = |one: &&&Error| never.iter().filter(|other| other.kind() == one.kind()).count();
        if n - rejected < majority
            && let Some(&first) = never.iter().rev().max_by_key(alike)
        {
            let why = format!("rejected by {rejected} of {n} servers: {:#}", first.clone().about(""));
            return Err(first.clone().about(self.quorum.name()).because(why).caused_by(first.clone()));
        }
        let reached = self.granted.len() + self.busy;
        if reached >= majority {
            return Ok(None);
        }
        let each =
            |(at, error): &(usize, Error)| format!("{}: {:#}", nodes[*at].address, error.clone().about(""));
        let each: Vec<_> = self.errors.iter().map(each).collect();
        let why =
            format!("{reached} of {n} servers can vote now, {majority} are needed ({})", each.join("; "));
        let error = Error::new(ErrorKind::Unavailable, self.quorum.name()).because(why);
        Err(error.perhaps_by(errors().next().cloned()))
    }
}

/// Reads the replies that a majority did not wait for, in a thread of its own, each within its timeout; the
/// thread ends with the last one. A server that says yes becomes a member like the others if the hold still
/// exists; otherwise its grant is released.
fn hear_later(questions: Vec<Question<'_>>, terms: RoundTerms, holding: &Arc<Holding>) {
    if questions.is_empty() {
        return;
    }
    // What is dropped unread gives back what it was granted.
    let late = questions.into_iter().map(|mut it| {
        // The request may have to be sent again, by a thread that has not asked.
        it.attempt.asking.thread = this_name();
        (it.query.node.clone(), it.attempt, it.query.posted)
    });
    let late: Vec<_> = late.collect();
    let holding = Arc::downgrade(holding);
    let hearing = spawn("rc-late", move || {
        for (node, attempt, posted) in late {
            let entry = attempt.entry.clone();
            let mut query = query(&node, &entry, &attempt);
            query.posted = posted;
            let Ok(Some(member)) = terms.hear(attempt, &mut query) else { continue };
            match holding.upgrade() {
                Some(holding) => holding.joined(member),
                None => member.defer(),
            }
        }
    });
    if let Err(error) = hearing {
        tracing::error!(error = %format_args!("{error:#}"), "late replies are not read");
    }
}
