//! What each process writes down of its holds: a line an event, in a file of its own.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Whose event it is: a process of the run, a thread of it, and its so-manyth round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    pub process: u64,
    pub thread: u64,
    pub round: u64,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.process, self.thread, self.round)
    }
}

/// What happened. Times and `left`, what `remaining()` said, are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is about to ask for this lock, in this way.
    Called { lock: String, form: String },
    /// It got a hold; `left` was asked for after the time of the line.
    Held { token: u64, left: u64 },
    /// It did not: `None`, or the kind of an error.
    Ended { how: String },
    /// The counter took its write over the value that it had read.
    Wrote { read: u64 },
    /// The counter refused its token.
    Refused { left: u64 },
    /// It is about to give its hold back.
    Release { left: u64 },
    /// It has: `ok`, or the kind of an error.
    Released { how: String },
    /// A thread that slept was woken much too late; it had fallen asleep at `from`.
    Stalled { from: u64 },
    /// The observer heard of a loss.
    Lost { lock: String, why: String },
    /// The same, of a hold inside that of its round: its thread comes in again.
    Again(Box<Event>),
    /// What must never be, as seen by the process itself.
    Odd { what: String },
}

/// An event and its time, on the clock that all processes of a machine share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at: u64,
    pub who: Who,
    pub event: Event,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Called { lock, form } => write!(f, "called {lock} {form}"),
            Event::Held { token, left } => write!(f, "held {token} {left}"),
            Event::Ended { how } => write!(f, "ended {how}"),
            Event::Wrote { read } => write!(f, "wrote {read}"),
            Event::Refused { left } => write!(f, "refused {left}"),
            Event::Release { left } => write!(f, "release {left}"),
            Event::Released { how } => write!(f, "released {how}"),
            Event::Stalled { from } => write!(f, "stalled {from}"),
            Event::Lost { lock, why } => write!(f, "lost {lock} {why}"),
            Event::Again(event) => write!(f, "again {event}"),
            Event::Odd { what } => write!(f, "odd {what}"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at, self.who, self.event)
    }
}

impl Line {
    /// Reads what `Display` wrote; `None` if it is something else.
    fn parse(text: &str) -> Option<Self> {
        let (at, rest) = text.split_once(' ')?;
        let (who, rest) = rest.split_once(' ')?;
        let mut who = who.split('.').map(|n| n.parse().ok());
        let who = Who { process: who.next()??, thread: who.next()??, round: who.next()?? };
        Some(Line { at: at.parse().ok()?, who, event: Event::parse(rest)? })
    }
}

impl Event {
    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        let pair = || rest.split_once(' ');
        let event = match word {
            "called" => pair().map(|(lock, form)| Event::Called { lock: lock.into(), form: form.into() })?,
            "held" => {
                let (token, left) = pair()?;
                Event::Held { token: token.parse().ok()?, left: left.parse().ok()? }
            }
            "ended" => Event::Ended { how: rest.into() },
            "wrote" => Event::Wrote { read: rest.parse().ok()? },
            "refused" => Event::Refused { left: rest.parse().ok()? },
            "release" => Event::Release { left: rest.parse().ok()? },
            "released" => Event::Released { how: rest.into() },
            "stalled" => Event::Stalled { from: rest.parse().ok()? },
            "lost" => pair().map(|(lock, why)| Event::Lost { lock: lock.into(), why: why.into() })?,
            "again" => Event::Again(Box::new(Event::parse(rest)?)),
            "odd" => Event::Odd { what: rest.into() },
            _ => return None,
        };
        Some(event)
    }
}

/// The file that one process writes.
pub struct Journal(File);

impl Journal {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::options().create(true).append(true).open(path).map(Self)
    }

    /// Adds a line, in one write: a process that is killed leaves whole lines.
    pub fn note(&self, at: u64, who: Who, event: Event) {
        let line = format!("{}\n", Line { at, who, event });
        (&mut &self.0).write_all(line.as_bytes()).unwrap();
    }
}

/// All lines of all processes that wrote into this folder, in order of time.
pub fn read_all(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|it| it == "holds") {
            for text in std::fs::read_to_string(&path).unwrap().lines() {
                let line = Line::parse(text);
                lines.push(line.unwrap_or_else(|| panic!("{}: no event: {text:?}", path.display())));
            }
        }
    }
    // Stable: lines of one thread and one microsecond stay in their order.
    lines.sort_by_key(|line| line.at);
    lines
}

#[test]
fn what_is_written_is_read() {
    let who = Who { process: 3, thread: 1, round: 44 };
    let events = [
        Event::Called { lock: "a".into(), form: "try_lock_for fair".into() },
        Event::Held { token: u64::MAX, left: 0 },
        Event::Ended { how: "none".into() },
        Event::Wrote { read: 7 },
        Event::Refused { left: 1 },
        Event::Release { left: 2 },
        Event::Released { how: "ok".into() },
        Event::Stalled { from: 3 },
        Event::Lost { lock: "a".into(), why: "Expired".into() },
        Event::Again(Box::new(Event::Held { token: 4, left: 5 })),
        Event::Odd { what: "two words".into() },
    ];
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("3.holds")).unwrap();
    let lines: Vec<_> = (1..).zip(events).map(|(at, event)| Line { at, who, event }).collect();
    for line in &lines {
        journal.note(line.at, line.who, line.event.clone());
    }
    assert_eq!(read_all(folder.path()), lines);
}
