//! From lines to holds and waits.

use std::collections::BTreeMap;

use crate::history::log::{Event, Line, Who};

/// A hold, as its process wrote it down. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub who: Who,
    pub lock: String,
    pub token: u64,
    pub held: u64,
    /// Until when `remaining()` has said at the least that it lasts.
    pub promised: u64,
    /// It is valid up to here: to what was promised, but no longer than until its thread was about
    /// to give it back. A process that dies keeps its promise: nobody else may come in before.
    pub until: u64,
    /// When its release was done with, and how.
    pub released: Option<(u64, String)>,
}

impl Hold {
    /// Whether it was a hold at all when its thread could say so.
    pub fn was_valid(&self) -> bool {
        self.held < self.until
    }

    /// The grant it belongs to: what Redis granted, without the hand-offs.
    pub fn grant(&self) -> u64 {
        self.token >> 12
    }
}

/// A thread that waited, until it was let in, gave up, or was no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub who: Who,
    pub lock: String,
    pub form: String,
    pub called: u64,
    pub ended: u64,
    /// `held`, `none`, an error, or `open`: neither when its process or the run ended.
    pub how: String,
}

/// All that was written down in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By the time of `held`.
    pub holds: Vec<Hold>,
    pub waits: Vec<Wait>,
    pub lines: Vec<Line>,
}

impl History {
    /// `ends` tells when a process was killed; the others lived until `end`.
    pub fn of(lines: Vec<Line>, ends: &BTreeMap<u64, u64>, end: u64) -> Self {
        let mut rounds: BTreeMap<Who, Vec<&Line>> = BTreeMap::new();
        for line in &lines {
            rounds.entry(line.who).or_default().push(line);
        }
        let (mut holds, mut waits) = (Vec::new(), Vec::new());
        for (who, lines) in rounds {
            let Some(mut wait) = lines.iter().find_map(|line| called(line)) else { continue };
            wait.ended = ends.get(&who.process).copied().unwrap_or(end);
            let mut hold: Option<Hold> = None;
            for line in lines {
                match (&line.event, &mut hold) {
                    (Event::Held { token, left }, _) => {
                        (wait.how, wait.ended) = ("held".into(), line.at);
                        hold = Some(Hold {
                            who,
                            lock: wait.lock.clone(),
                            token: *token,
                            held: line.at,
                            promised: line.at + left,
                            until: line.at + left,
                            released: None,
                        });
                    }
                    (Event::Ended { how }, _) => (wait.how, wait.ended) = (how.clone(), line.at),
                    (Event::Release { left }, Some(hold)) => {
                        if *left > 0 {
                            hold.promised = hold.promised.max(line.at + left);
                            hold.until = line.at;
                        }
                        hold.until = hold.until.min(line.at);
                    }
                    (Event::Released { how }, Some(hold)) => hold.released = Some((line.at, how.clone())),
                    _ => {}
                }
            }
            holds.extend(hold);
            waits.push(wait);
        }
        holds.sort_by_key(|hold| hold.held);
        History { holds, waits, lines }
    }

    /// The names of the locks in it.
    pub fn locks(&self) -> Vec<&str> {
        let mut locks: Vec<&str> = self.waits.iter().map(|wait| wait.lock.as_str()).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }
}

fn called(line: &Line) -> Option<Wait> {
    let Event::Called { lock, form } = &line.event else { return None };
    let (lock, form) = (lock.clone(), form.clone());
    Some(Wait { who: line.who, lock, form, called: line.at, ended: 0, how: "open".into() })
}
