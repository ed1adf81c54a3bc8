//! One attempt: all requests are written before any reply is waited for.

use std::sync::Arc;
use std::time::Duration;

use super::holding::Holding;
use super::late;
use super::member::Member;
use super::node::Node;
use super::release::give_back;
use super::servers::RedLock;
use super::vote::{Asked, Question, Vote};
use crate::clock::Moment;
use crate::engine::call::attempt::{Begun, begin};
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::Request;
use crate::error::{Error, ErrorKind};
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

/// The replies so far.
struct Poll<'a> {
    call: &'a Call<'a>,
    granted: Vec<Member>,
    /// Grants of servers that do not count.
    young: Vec<Member>,
    busy: usize,
    errors: Vec<(usize, Error)>,
    /// Permanent errors. If too few other servers are left, further attempts would fail as well.
    never: Vec<Error>,
}

/// Asks all servers once.
pub(super) fn attempt<'a>(
    call: &'a Call<'a>,
    request: &Request,
    wait: &Wait<'_>,
) -> Result<Arc<Holding>, Missed> {
    let began = Moment::now();
    let asked = Asked {
        began,
        deadline: wait.limit(began, call.limit),
        limit: call.limit,
        lease: request.terms.lease,
        skips_startup_delay: call.servers.skips_startup_delay,
    };
    let mut poll =
        Poll { call, granted: Vec::new(), young: Vec::new(), busy: 0, errors: Vec::new(), never: Vec::new() };
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
    fn begin(&mut self, request: &Request, asked: &Asked) -> Vec<Question<'a>> {
        let nodes = &self.call.servers.nodes;
        let mut some: Vec<(usize, &Arc<Node>)> = Vec::with_capacity(nodes.len());
        let mut away = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            if let Some(error) = node.young(asked.lease, asked.began).filter(|_| !asked.skips_startup_delay) {
                self.errors.push((at, error));
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
            self.errors.extend(away.into_iter().map(|(at, _, error)| (at, error)));
        }
        let mut questions = Vec::with_capacity(some.len());
        for (at, node) in some {
            let entry = &self.call.entries[at];
            match begin(entry, request, asked.deadline) {
                Ok(Begun::Asks(attempt)) => questions.push(Question { at, node, attempt, posted: None }),
                Ok(Begun::In(acquired)) => {
                    let member =
                        Member { at, node: node.clone(), entry: entry.clone(), ticket: acquired.ticket };
                    self.granted.push(member);
                }
                Ok(Begun::Busy) => self.busy += 1,
                Err(error) if error.is_unavailable() => self.errors.push((at, error)),
                Err(error) => self.never(at, error),
            }
        }
        questions
    }

    /// Writes the requests. A server without a free connection is waited for only if there is no majority
    /// without it.
    fn post(&mut self, questions: &mut [Question<'a>], asked: &Asked) {
        let mut posted = self.granted.len();
        // Only what can be written now: a missing connection is being opened, and not waited for.
        posted += questions.iter_mut().filter_map(|q| q.post(asked.began).ok()).count();
        for question in questions.iter_mut().filter(|q| q.posted.is_none()) {
            if posted < self.call.servers.majority() && question.post(asked.deadline).is_ok() {
                posted += 1;
            }
        }
    }

    /// Reads the replies until a majority has said yes. Returns the requests whose replies are then not worth
    /// waiting for.
    fn listen(&mut self, questions: Vec<Question<'a>>, asked: &Asked) -> Vec<Question<'a>> {
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

    fn hear(&mut self, question: Question<'a>, asked: &Asked) {
        let at = question.at;
        match question.answer(asked) {
            Vote::Yes(member) => self.granted.push(member),
            Vote::Busy => self.busy += 1,
            Vote::RecentlyStarted(member, error) => {
                self.young.push(member);
                self.errors.push((at, error));
            }
            Vote::Failed(error) => self.errors.push((at, error)),
            Vote::Never(error) => self.never(at, error),
        }
    }

    fn never(&mut self, at: usize, error: Error) {
        self.never.push(error.clone());
        self.errors.push((at, error));
    }

    /// Returns a hold if a majority has said yes and its lease has not expired; otherwise releases all
    /// grants.
    fn conclude(
        mut self,
        late: Vec<Question<'a>>,
        asked: Asked,
        wait: &Wait<'_>,
    ) -> Result<Arc<Holding>, Missed> {
        let (call, limit) = (self.call, self.call.limit);
        let given_back_by = || wait.limit(Moment::now(), limit);
        if !self.is_held() {
            let mut all = std::mem::take(&mut self.young);
            all.extend_from_slice(&self.granted);
            give_back(&all, given_back_by());
            return Err(self.missed());
        }
        let members = std::mem::take(&mut self.granted);
        let holding =
            Holding::new(asked.lease, limit, call.servers.majority(), self.call.entries[0].clone(), members);
        late::spawn(late, asked, &holding);
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
        let n = self.call.servers.nodes.len();
        let majority = self.call.servers.majority();
        let name = self.call.name;
        if n - self.never.len() < majority
            && let Some(first) = self.never.first()
        {
            let why =
                format!("rejected by {} of {n} servers: {:#}", self.never.len(), first.clone().about(""));
            return Missed::Never(first.clone().about(name).because(why).caused_by(first.clone()));
        }
        let reached = self.granted.len() + self.busy;
        if reached >= majority {
            return Missed::Busy;
        }
        let each = |(at, error): &(usize, Error)| {
            format!("{}: {:#}", self.call.servers.nodes[*at].address, error.clone().about(""))
        };
        let each: Vec<_> = self.errors.iter().map(each).collect();
        let why =
            format!("{reached} of {n} servers can vote now, {majority} are needed ({})", each.join("; "));
        let error = Error::new(ErrorKind::Unavailable, name).because(why);
        Missed::TooFew(match self.errors.first() {
            Some((_, first)) => error.caused_by(first.clone()),
            None => error,
        })
    }
}
