//! One attempt: all requests are written before any reply is waited for.

use std::sync::Arc;
use std::time::Duration;

use super::holding::{Call, Holding};
use super::members::{Query, ServerHold, caused_by, give_back};
use super::node::Voter;
use crate::clock::Moment;
use crate::engine::call::attempt::{BegunTry, OneTry, begin, unheard};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::acquired;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::Request;
use crate::error::{Error, ErrorKind};
use crate::sync::thread;
use crate::wait::Wait;

/// Why there was no majority.
pub(super) enum Missed {
    /// Other callers hold the lock, or asked at the same time.
    Busy,
    /// Too few servers can be asked, which may change.
    TooFew(Error),
    /// Permanent.
    Never(Error),
}

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

/// An attempt at the server with this index, whose request is in flight, or will be once there is a connection.
type Question<'a> = Query<'a, (usize, OneTry<'a>)>;

fn question<'a>(at: usize, node: &'a Arc<Voter>, entry: &'a LockEntry, attempt: OneTry<'a>) -> Question<'a> {
    let command = commands::acquire(entry, attempt.asking()).identified();
    Query::new((at, attempt), node, command)
}

/// The reply of a server.
enum Vote {
    Granted(ServerHold),
    Busy,
    /// Whether the error is permanent for this server.
    Failed(Error, bool),
}

impl RoundTerms {
    /// Waits for the reply. The grant of a server that does not count is released.
    fn hear(&self, question: Question<'_>) -> Vote {
        let node = question.node;
        let ((_, attempt), reply) = question.read(self.began, self.deadline, self.is_cut_short);
        let (entry, lease) = (attempt.entry().clone(), attempt.asking().terms.lease);
        let server = reply.as_ref().ok().and_then(|reply| reply.server.clone());
        let answer = reply.and_then(|reply| Ok((acquired(&reply.value, lease)?, reply.resent())));
        let is_final = answer.as_ref().is_err_and(Failure::is_final);
        match attempt.answered(answer, self.deadline) {
            Ok(Some(acquired)) => {
                let member = ServerHold { node: node.clone(), entry, ticket: acquired.ticket };
                let rejects = |lease| node.rejects(server.as_deref(), lease, self.began);
                let Some(error) = self.lease.and_then(rejects) else { return Vote::Granted(member) };
                member.defer();
                Vote::Failed(error, false)
            }
            Ok(None) => Vote::Busy,
            Err(error) => {
                let never = is_final || !error.is_unavailable();
                Vote::Failed(error, never)
            }
        }
    }
}

/// The replies so far.
struct Poll<'a> {
    call: &'a Call<'a>,
    granted: Vec<ServerHold>,
    busy: usize,
    /// The servers that were not asked, as an attempt of another call of this process was in the way.
    behind: Vec<usize>,
    /// By the index of the server, and whether it is permanent. If too few other servers are left then, further
    /// attempts would fail as well.
    errors: Vec<(usize, Error, bool)>,
}

/// Asks all servers once.
pub(super) fn attempt(call: &Call<'_>, request: &Request, wait: &Wait<'_>) -> Result<Arc<Holding>, Missed> {
    let (began, limit) = (Moment::now(), call.limit);
    let deadline = wait.limit(began, limit);
    let terms = RoundTerms {
        began,
        deadline,
        is_cut_short: deadline < began.after(limit),
        lease: (!call.servers.skips_startup_delay).then_some(call.lease),
    };
    let (granted, behind, errors) = Default::default();
    let mut poll = Poll { call, granted, busy: 0, behind, errors };
    let mut questions = poll.begin(request, &terms);
    if poll.granted.len() + questions.len() < call.servers.majority() {
        questions.into_iter().for_each(|question| question.item.1.called_off());
        // A lock that a process has kept is granted without a request.
        give_back(&poll.granted, wait.limit(Moment::now(), limit));
        return Err(poll.missed());
    }
    poll.post(&mut questions, &terms);
    let late = poll.listen(questions, &terms);
    poll.conclude(late, terms, wait)
}

impl<'a> Poll<'a> {
    /// Takes a position in the lock state of each server that is worth asking, beginning with those that
    /// usually reply soonest.
    fn begin(&mut self, request: &Request, terms: &RoundTerms) -> Vec<Question<'a>> {
        let nodes = &*self.call.servers.nodes;
        let (mut some, mut away) = (Vec::new(), Vec::new());
        for (at, node) in nodes.iter().enumerate() {
            if let Some(error) = terms.lease.and_then(|lease| node.young(lease, terms.began)) {
                self.errors.push((at, error, false));
            } else if let Some(error) = node.away() {
                away.push((at, error, false));
            } else {
                some.push(at);
            }
        }
        some.sort_by_key(|at| nodes[*at].usual());
        // A server that is down costs time, so it is asked only if there is no majority without it.
        if some.len() < self.call.servers.majority() {
            some.extend(away.into_iter().map(|(at, ..)| at));
        } else {
            self.errors.extend(away);
        }
        let mut questions = Vec::with_capacity(some.len());
        for at in some {
            let (node, entry) = (&nodes[at], &self.call.entries[at]);
            match begin(entry, request, terms.deadline) {
                Ok(BegunTry::Asks(attempt)) => questions.push(question(at, node, entry, attempt)),
                Ok(BegunTry::In(acquired)) => {
                    let (node, entry) = (node.clone(), entry.clone());
                    self.granted.push(ServerHold { node, entry, ticket: acquired.ticket });
                }
                Ok(BegunTry::Busy) => self.behind.push(at),
                Err(error) => {
                    let never = !error.is_unavailable();
                    self.errors.push((at, error, never));
                }
            }
        }
        questions
    }

    /// Writes the requests. A server without a free connection is waited for only if there is no majority
    /// without it.
    fn post(&self, questions: &mut [Question<'a>], terms: &RoundTerms) {
        // Only what can be written now: a missing connection is being opened, and not waited for.
        questions.iter_mut().for_each(|question| question.post(terms.began));
        let mut has = self.granted.len() + questions.iter().filter(|q| q.posted.is_some()).count();
        for question in questions.iter_mut().filter(|q| q.posted.is_none()) {
            if has < self.call.servers.majority() {
                question.post(terms.deadline);
                has += usize::from(question.posted.is_some());
            }
        }
    }

    /// Reads the replies until a majority has said yes. Returns the requests whose replies are then not worth
    /// waiting for.
    fn listen(&mut self, questions: Vec<Question<'a>>, terms: &RoundTerms) -> Vec<Question<'a>> {
        let (posted, mut late): (Vec<_>, Vec<_>) = questions.into_iter().partition(|q| q.posted.is_some());
        for question in posted {
            // A reply that should have arrived is read here even after a majority: a server that hangs costs
            // this once.
            if self.is_held() && question.node.is_slow(Moment::now().since(terms.began)) {
                late.push(question);
            } else {
                self.hear(question, terms);
            }
        }
        if !self.is_held() {
            late.drain(..).for_each(|question| self.hear(question, terms));
        }
        late
    }

    fn is_held(&self) -> bool {
        self.granted.len() >= self.call.servers.majority()
    }

    fn hear(&mut self, question: Question<'a>, terms: &RoundTerms) {
        let at = question.item.0;
        match terms.hear(question) {
            Vote::Granted(member) => self.granted.push(member),
            Vote::Busy => self.busy += 1,
            Vote::Failed(error, never) => self.errors.push((at, error, never)),
        }
    }

    /// Returns a hold if a majority has said yes and its lease has not expired; otherwise releases all
    /// grants.
    fn conclude(
        mut self,
        late: Vec<Question<'a>>,
        terms: RoundTerms,
        wait: &Wait<'_>,
    ) -> Result<Arc<Holding>, Missed> {
        let given_back_by = || wait.limit(Moment::now(), self.call.limit);
        if !self.is_held() {
            give_back(&self.granted, given_back_by());
            return Err(self.missed());
        }
        let members = std::mem::take(&mut self.granted);
        let holding = Holding::new(self.call, members);
        hear_later(late, terms, &holding);
        if holding.remaining().is_zero() {
            let _ = holding.end(given_back_by());
            let why = "the replies took longer than the lease";
            return Err(Missed::TooFew(Error::new(ErrorKind::Unavailable, self.call.name).because(why)));
        }
        Ok(holding)
    }

    /// Why there is no majority.
    fn missed(mut self) -> Missed {
        for at in std::mem::take(&mut self.behind) {
            match unheard(&self.call.entries[at]) {
                Some(error) => self.errors.push((at, error, false)),
                None => self.busy += 1,
            }
        }
        let (nodes, majority, name) =
            (&self.call.servers.nodes, self.call.servers.majority(), self.call.name);
        let n = nodes.len();
        let never: Vec<_> =
            self.errors.iter().filter(|(.., never)| *never).map(|(_, error, _)| error).collect();
        let rejected = never.len();
        // What most say: a minority that has forgotten a hold does not speak for it.
        let alike = |one: &&&Error| never.iter().filter(|other| other.kind() == one.kind()).count();
        if n - rejected < majority
            && let Some(&first) = never.iter().rev().max_by_key(alike)
        {
            let why = format!("rejected by {rejected} of {n} servers: {:#}", first.clone().about(""));
            return Missed::Never(first.clone().about(name).because(why).caused_by(first.clone()));
        }
        let reached = self.granted.len() + self.busy;
        if reached >= majority {
            return Missed::Busy;
        }
        let each = |(at, error, _): &(usize, Error, bool)| {
            format!("{}: {:#}", nodes[*at].address, error.clone().about(""))
        };
        let each: Vec<_> = self.errors.iter().map(each).collect();
        let why =
            format!("{reached} of {n} servers can vote now, {majority} are needed ({})", each.join("; "));
        let error = Error::new(ErrorKind::Unavailable, name).because(why);
        Missed::TooFew(caused_by(error, self.errors.first().map(|(_, first, _)| first.clone())))
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
    let late = questions.into_iter().map(|Query { item: (_, attempt), node, posted, .. }| {
        (node.clone(), attempt.entry().clone(), attempt.detach(), posted)
    });
    let late: Vec<_> = late.collect();
    let holding = Arc::downgrade(holding);
    let hearing = thread::Builder::new().name("rc-late".to_owned()).spawn(move || {
        for (node, entry, mut detached, posted) in late {
            let Some(attempt) = detached.attach() else { continue };
            let vote = terms.hear(Query { posted, ..question(0, &node, &entry, attempt) });
            match (vote, holding.upgrade()) {
                (Vote::Granted(member), Some(holding)) => holding.joined(member),
                (Vote::Granted(member), None) => member.defer(),
                _ => {}
            }
        }
    });
    if let Err(error) = hearing {
        tracing::error!(%error, "a thread for late answers could not be started");
    }
}
