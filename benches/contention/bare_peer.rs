//! The floor for what takes two processes: the library's scripts are sent on a bare socket, and the waiting
//! thread itself reads the message that grants the lock, from another socket.

use std::io;

use redis_concurrent_testkit::scripts;
use uuid::Uuid;

use super::bare::{Bare, FIRST, Template, id, request};
use super::peer::{CONDITIONS, Done, Peer, Signaller};

/// A process that waits for and holds the lock without the library.
pub(crate) struct BarePeer {
    requests: Bare,
    inbox: Bare,
    acquire: Template,
    leave: Template,
    /// One request for each condition.
    waits: [Template; 2],
    signals: [Template; 2],
    counts: [Template; 2],
    /// The number in the owner id that it holds the lock with, or requests it with.
    turn: u64,
    sent: u64,
}

/// What a reply or a message says.
enum Answer {
    Busy,
    In(u64),
}

impl BarePeer {
    /// Connects a peer for the lock `name`, whose kind has the rule `rule`. If it `keeps` the lock, its owner
    /// ids are marked so.
    pub(crate) fn connect(port: u16, rule: &str, name: &str, keeps: bool) -> io::Result<BarePeer> {
        let (mut requests, mut inbox) = (Bare::connect(port)?, Bare::connect(port)?);
        let of = scripts(rule).map_err(io::Error::other)?;
        let uuid = Uuid::new_v4().to_string();
        inbox.exchange(&request(&["SUBSCRIBE", &format!("rc:inbox:{uuid}")]))?;
        let (own, from) = (id(&uuid, 0), id(&uuid, 1));
        let mark = if keeps { "~" } else { "" };
        let (marked, marked_from) = (format!("{own}{mark}"), format!("{from}{mark}"));
        let mut template = |script: &str, rest: &[&str]| {
            let sha = requests.load(script)?;
            let keys = ["", ":queue", ":positions", ":fence", ":tombstones", ":conditions"]
                .map(|key| format!("rc:{{{name}}}{key}"));
            let mut words = vec!["EVALSHA", &sha, "6"];
            words.extend(keys.iter().map(String::as_str));
            words.extend([marked.as_str(), "30000", "rc:inbox:", "3000"]);
            words.extend(rest);
            let ids: &[&str] = if rest.contains(&marked_from.as_str()) { &[&own, &from] } else { &[&own] };
            Template::new(&words, ids)
        };
        let record = format!("1 {} bench bench", std::process::id());
        let mut of_conditions = |script: &str, rest: [&str; 6], at: usize| {
            let mut with = |condition| {
                let mut rest = rest;
                rest[at] = condition;
                template(script, &rest)
            };
            Ok::<_, io::Error>([with(CONDITIONS[0])?, with(CONDITIONS[1])?])
        };
        let waits = of_conditions(&of.wait_for, ["wait", "", &record, &marked_from, "", ""], 5)?;
        let signals = of_conditions(&of.signal, ["", "one", "", "", "", ""], 0)?;
        let counts = of_conditions(&of.signal, ["", "count", "", "", "", ""], 0)?;
        let acquire = template(&of.acquire, &["wait", "", &record])?;
        let leave = template(&of.leave, &[])?;
        Ok(BarePeer { requests, inbox, acquire, leave, waits, signals, counts, turn: FIRST, sent: 0 })
    }

    /// Blocks until a message says that another process wants the lock that this peer keeps.
    pub(crate) fn until_wanted(&mut self) -> io::Result<()> {
        let id = format!(":{}~ wanted ", self.turn);
        while !String::from_utf8_lossy(self.inbox.read()?).contains(&id) {}
        Ok(())
    }

    /// Returns the grant number, from `reply` if that is the grant, otherwise from the message that grants
    /// the lock.
    fn until_in(&mut self, reply: Answer) -> io::Result<u64> {
        if let Answer::In(number) = reply {
            return Ok(number);
        }
        let id = format!(":{}", self.turn);
        loop {
            let message = String::from_utf8_lossy(self.inbox.read()?);
            let mut words = message.lines().last().unwrap_or_default().split(' ');
            let mine = words.next().is_some_and(|owner| owner.trim_end_matches('~').ends_with(&id));
            if mine && words.next() == Some("in") {
                let number = words.next().and_then(|number| number.parse().ok());
                return number.ok_or_else(|| io::Error::other("a grant without a number"));
            }
        }
    }
}

/// Parses the reply to an acquire, or to a wait for a condition.
fn answer(reply: &[u8]) -> io::Result<Answer> {
    let text = String::from_utf8_lossy(reply);
    let mut lines = text.lines();
    let list = text.starts_with('*');
    let mut number = || lines.find_map(|line| line.strip_prefix(':')).and_then(|n| n.parse().ok());
    match if list { number() } else { Some(1) } {
        Some(0) => Ok(Answer::Busy),
        Some(1) => number().map(Answer::In).ok_or_else(|| io::Error::other("a grant without a number")),
        _ => Err(io::Error::other(format!("a bare request was answered {text:?}"))),
    }
}

impl Peer for BarePeer {
    fn lock(&mut self) -> Done<u64> {
        (self.turn, self.sent) = (self.turn + 1, self.sent + 1);
        let reply = answer(self.requests.exchange(self.acquire.with(&[self.turn]))?)?;
        Ok(self.until_in(reply)?)
    }

    fn unlock(&mut self) -> Done<()> {
        self.sent += 1;
        let reply = self.requests.exchange(self.leave.with(&[self.turn]))?;
        if reply == b":1\r\n" { Ok(()) } else { Err("the bare lock was lost".into()) }
    }
}

impl Signaller for BarePeer {
    fn signal(&mut self, condition: usize) -> Done<()> {
        self.sent += 1;
        let reply = self.requests.exchange(self.signals[condition].with(&[self.turn]))?;
        if reply == b":1\r\n" { Ok(()) } else { Err("nobody was signalled".into()) }
    }

    fn wait(&mut self, condition: usize) -> Done<()> {
        (self.turn, self.sent) = (self.turn + 1, self.sent + 1);
        let wait = self.waits[condition].with(&[self.turn, self.turn - 1]);
        let reply = answer(self.requests.exchange(wait)?)?;
        self.until_in(reply)?;
        Ok(())
    }

    fn has_waiters(&mut self, condition: usize) -> Done<bool> {
        Ok(self.requests.exchange(self.counts[condition].with(&[self.turn]))? != b":0\r\n")
    }

    fn requests(&self) -> u64 {
        self.sent
    }
}
