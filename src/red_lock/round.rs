//! One attempt: all requests are written before any reply is waited for.

use std::sync::Arc;
use std::time::Duration;

use super::holding::Holding;
use super::members::{ServerHold, caused_by, give_back};
use super::node::Voter;
use super::servers::RedLock;
use crate::clock::Moment;
use crate::engine::call::attempt::{BegunTry, OneTry, begin};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::acquired;
use crate::engine::redis::exchange::{Command, Posted};
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

/// What all attempts of a call have in common.
pub(super) struct Call<'a> {
    pub(super) servers: &'a RedLock,
    pub(super) name: &'a str,
    /// The lock's entry for each server, in the order of the servers.
    pub(super) entries: &'a [Arc<LockEntry>],
    /// The node timeout.
    pub(super) limit: Duration,
}

/// What all the requests of an attempt have in common.
#[derive(Clone, Copy)]
struct RoundTerms {
    began: Moment,
    /// Until when to wait for replies: for the node timeout, or until the call is over.
    deadline: Moment,
    /// Whether the call is over before the node timeout: then a server that has not replied may still be healthy.
    is_cut_short: bool,
    lease: Duration,
    /// Whether recently started servers count.
    skips_startup_delay: bool,
}

/// A request that is in flight, or will be once there is a connection for it.
struct Question<'a> {
    at: usize,
    node: &'a Arc<Voter>,
    entry: &'a Arc<LockEntry>,
    attempt: OneTry<'a>,
    command: [Command<'a>; 1],
    posted: Option<Posted>,
}

/// The reply of a server: busy if it has granted nothing and there is no error.
struct Vote {
    member: Option<ServerHold>,
    /// With a member: the server does not count yet.
    error: Option<Error>,
    /// Whether the error is permanent for this server.
    never: bool,
}

impl<'a> Question<'a> {
    fn new(at: usize, node: &'a Arc<Voter>, entry: &'a Arc<LockEntry>, attempt: OneTry<'a>) -> Self {
        let command = [commands::acquire(entry, attempt.asking()).identified()];
        Question { at, node, entry, attempt, command, posted: None }
    }

    /// Writes the request if there is a connection for it by `limit`; otherwise one is being opened.
    fn post(&mut self, limit: Moment) {
        self.posted = self.node.server.backend.post(&self.command, limit).ok();
    }

    /// Waits for the reply.
    fn answer(self, asked: &RoundTerms) -> Vote {
        let Question { node, entry, attempt, command, posted, .. } = self;
        let (awaited, backend) = (Moment::now(), &node.server.backend);
        let posted = posted.map_or_else(|| backend.post(&command, asked.deadline), Ok);
        let reply = posted.and_then(|posted| backend.read(posted, &command, asked.deadline));
        if reply.is_ok() || !asked.is_cut_short {
            node.heard(&reply, asked.began, awaited);
        }
        let lease = attempt.asking().terms.lease;
        let server = reply.as_ref().ok().and_then(|reply| reply.server.clone());
        let answer = reply.and_then(|reply| Ok((acquired(&reply.value, lease)?, reply.resent())));
        let is_final = answer.as_ref().is_err_and(Failure::is_final);
        match attempt.answered(answer, asked.deadline) {
            Ok(Some(acquired)) => {
                let counts = || node.counts(server.as_deref(), asked.lease, asked.began).err();
                let error = if asked.skips_startup_delay { None } else { counts() };
                let member = ServerHold { node: node.clone(), entry: entry.clone(), ticket: acquired.ticket };
                Vote { member: Some(member), error, never: false }
            }
            Ok(None) => Vote { member: None, error: None, never: false },
            Err(error) => {
                let never = is_final || !error.is_unavailable();
                Vote { member: None, error: Some(error), never }
            }
        }
    }
}

/// The replies so far.
struct Poll<'a> {
    call: &'a Call<'a>,
    granted: Vec<ServerHold>,
    /// Grants of servers that do not count.
    young: Vec<ServerHold>,
    busy: usize,
    /// By the index of the server, and whether it is permanent. If too few other servers are left then, further
    /// attempts would fail as well.
    errors: Vec<(usize, Error, bool)>,
}

/// Asks all servers once.
pub(super) fn attempt(call: &Call<'_>, request: &Request, wait: &Wait<'_>) -> Result<Arc<Holding>, Missed> {
    let began = Moment::now();
    let deadline = wait.limit(began, call.limit);
    let asked = RoundTerms {
        began,
        deadline,
        is_cut_short: deadline < began.after(call.limit),
        lease: request.terms.lease,
        skips_startup_delay: call.servers.skips_startup_delay,
    };
    let mut poll = Poll { call, granted: Vec::new(), young: Vec::new(), busy: 0, errors: Vec::new() };
    let mut questions = poll.begin(request, &asked);
    if poll.granted.len() + questions.len() < call.servers.majority() {
        questions.into_iter().for_each(|q| q.attempt.called_off());
        // A lock that a process has kept is granted without a request.
        give_back(&poll.granted, wait.limit(Moment::now(), call.limit));
        return Err(poll.missed());
    }
    poll.post(&mut questions, &asked);
    let late = poll.listen(questions, &asked);
    poll.conclude(late, asked, wait)
}

impl<'a> Poll<'a> {
    /// Takes a position in the lock state of each server that is worth asking, beginning with those that
    /// usually reply soonest.
    fn begin(&mut self, request: &Request, asked: &RoundTerms) -> Vec<Question<'a>> {
        let (mut some, mut away) = (Vec::new(), Vec::new());
        for (at, node) in self.call.servers.nodes.iter().enumerate() {
            if let Some(error) = node.young(asked.lease, asked.began).filter(|_| !asked.skips_startup_delay) {
                self.errors.push((at, error, false));
            } else if let Some(error) = node.away() {
                away.push((at, node, error));
            } else {
                some.push((at, node));
            }
        }
        some.sort_by_key(|(_, node)| node.usual());
        // A server that is down costs time, so it is asked only if there is no majority without it.
        if some.len() < self.call.servers.majority() {
            some.extend(away.into_iter().map(|(at, node, _)| (at, node)));
        } else {
            self.errors.extend(away.into_iter().map(|(at, _, error)| (at, error, false)));
        }
        let mut questions = Vec::with_capacity(some.len());
        for (at, node) in some {
            let entry = &self.call.entries[at];
            match begin(entry, request, asked.deadline) {
                Ok(BegunTry::Asks(attempt)) => questions.push(Question::new(at, node, entry, attempt)),
                Ok(BegunTry::In(acquired)) => {
                    let (node, entry) = (node.clone(), entry.clone());
                    self.granted.push(ServerHold { node, entry, ticket: acquired.ticket });
                }
                Ok(BegunTry::Busy) => self.busy += 1,
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
    fn post(&self, questions: &mut [Question<'a>], asked: &RoundTerms) {
        // Only what can be written now: a missing connection is being opened, and not waited for.
        questions.iter_mut().for_each(|question| question.post(asked.began));
        let posted = |q: &&Question<'a>| q.posted.is_some();
        let mut missing = self.call.servers.majority().saturating_sub(self.granted.len());
        missing = missing.saturating_sub(questions.iter().filter(posted).count());
        for question in questions.iter_mut().filter(|q| q.posted.is_none()) {
            if missing > 0 {
                question.post(asked.deadline);
                missing -= usize::from(question.posted.is_some());
            }
        }
    }

    /// Reads the replies until a majority has said yes. Returns the requests whose replies are then not worth
    /// waiting for.
    fn listen(&mut self, questions: Vec<Question<'a>>, asked: &RoundTerms) -> Vec<Question<'a>> {
        let (posted, mut late): (Vec<_>, Vec<_>) = questions.into_iter().partition(|q| q.posted.is_some());
        for question in posted {
            // A reply that should have arrived is read here even after a majority: a server that hangs costs
            // this once.
            if self.is_held() && question.node.is_slow(Moment::now().since(asked.began)) {
                late.push(question);
            } else {
                self.hear(question, asked);
            }
        }
        if self.is_held() {
            return late;
        }
        late.into_iter().for_each(|question| self.hear(question, asked));
        Vec::new()
    }

    fn is_held(&self) -> bool {
        self.granted.len() >= self.call.servers.majority()
    }

    fn hear(&mut self, question: Question<'a>, asked: &RoundTerms) {
        let at = question.at;
        let Vote { member, error, never } = question.answer(asked);
        match (member, error.is_some()) {
            (Some(member), false) => self.granted.push(member),
            (Some(member), true) => self.young.push(member),
            (None, is_error) => self.busy += usize::from(!is_error),
        }
        self.errors.extend(error.map(|error| (at, error, never)));
    }

    /// Returns a hold if a majority has said yes and its lease has not expired; otherwise releases all
    /// grants.
    fn conclude(
        mut self,
        late: Vec<Question<'a>>,
        asked: RoundTerms,
        wait: &Wait<'_>,
    ) -> Result<Arc<Holding>, Missed> {
        let (call, limit) = (self.call, self.call.limit);
        let given_back_by = || wait.limit(Moment::now(), limit);
        if !self.is_held() {
            self.young.extend_from_slice(&self.granted);
            give_back(&self.young, given_back_by());
            return Err(self.missed());
        }
        let members = std::mem::take(&mut self.granted);
        let holding =
            Holding::new(asked.lease, limit, call.servers.majority(), call.entries[0].clone(), members);
        hear_later(late, asked, &holding);
        give_back(&self.young, given_back_by());
        if holding.remaining().is_zero() {
            let _ = holding.end_by(given_back_by());
            let why = "the replies took longer than the lease";
            return Err(Missed::TooFew(Error::new(ErrorKind::Unavailable, call.name).because(why)));
        }
        Ok(holding)
    }

    /// Why there is no majority.
    fn missed(&self) -> Missed {
        let RedLock { nodes, .. } = self.call.servers;
        let (n, majority, name) = (nodes.len(), self.call.servers.majority(), self.call.name);
        let mut never = self.errors.iter().filter(|(.., never)| *never).map(|(_, error, _)| error);
        let rejected = never.clone().count();
        if n - rejected < majority
            && let Some(first) = never.next()
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
fn hear_later(questions: Vec<Question<'_>>, asked: RoundTerms, holding: &Arc<Holding>) {
    if questions.is_empty() {
        return;
    }
    // What is dropped unread gives back what it was granted.
    let late = questions.into_iter().map(|Question { node, entry, attempt, posted, .. }| {
        let (node, entry, attempt) = (node.clone(), entry.clone(), attempt.detach());
        (node, entry, attempt, posted)
    });
    let late: Vec<_> = late.collect();
    let holding = Arc::downgrade(holding);
    let hearing = thread::Builder::new().name("rc-late".to_owned()).spawn(move || {
        for (node, entry, mut detached, posted) in late {
            let Some(attempt) = detached.attach() else { continue };
            let vote = Question { posted, ..Question::new(0, &node, &entry, attempt) }.answer(&asked);
            match (vote.member, vote.error, holding.upgrade()) {
                (Some(member), None, Some(holding)) => holding.joined(member),
                (Some(member), ..) => member.defer(),
                _ => {}
            }
        }
    });
    if let Err(error) = hearing {
        tracing::error!(%error, "a thread for late answers could not be started");
    }
}
