//! Threads that wait for each other's locks: what they publish of themselves, and the circles that they close. When it
//! is published and read is in `engine/call/deadlock.rs`; the rules are in `docs/design/deadlocks.md`.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use crate::names::{escape, shown, unescape};

/// A thread that waits for a lock while it holds others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// `<client uuid>:<its number in its process>`.
    pub(crate) thread: String,
    /// `<pid> <host> <client name>`, and its name after a tab.
    pub(crate) who: String,
    /// Since when it waits, in milliseconds since 1970 by its own clock.
    pub(crate) since: u64,
    /// How often it has published this.
    pub(crate) times: u64,
    pub(crate) wants: Claim,
    pub(crate) holds: Vec<Claim>,
}

/// A lock that a thread holds, or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) stem: String,
    /// The number of the grant; 0 while it waits.
    pub(crate) number: u64,
    /// Whether others may hold the lock, too.
    pub(crate) shared: bool,
}

impl Claim {
    fn text(&self) -> String {
        format!("{}{}|{}", self.number, if self.shared { "~" } else { "" }, self.stem)
    }

    fn read(text: &str) -> Option<Claim> {
        let (number, stem) = text.split_once('|')?;
        let (number, shared) = number.strip_suffix('~').map_or((number, false), |number| (number, true));
        Some(Claim { stem: stem.to_owned(), number: number.parse().ok()?, shared })
    }
}

impl Blocked {
    pub(crate) fn text(&self) -> String {
        let mut words = vec![self.thread.clone(), self.who.clone(), self.since.to_string()];
        words.extend([self.times.to_string(), self.wants.text()]);
        words.extend(self.holds.iter().map(Claim::text));
        words.iter().map(|it| escape(it)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn read(text: &str) -> Option<Blocked> {
        let mut words = text.split(' ').map(unescape);
        let mut next = || words.next()?;
        let (thread, who, since, times) = (next()?, next()?, next()?.parse().ok()?, next()?.parse().ok()?);
        let wants = Claim::read(&next()?)?;
        Some(Blocked {
            thread,
            who,
            since,
            times,
            wants,
            holds: words.map(|it| Claim::read(&it?)).collect::<Option<_>>()?,
        })
    }

    /// Whether `other` waits for what this thread holds; `surely`: and no other holder could let it in.
    fn blocks(&self, other: &Blocked, surely: bool) -> bool {
        let wanted = &other.wants;
        self.holds.iter().any(|it| it.stem == wanted.stem && !(surely && it.shared && wanted.shared))
    }
}

/// A lock that one of them holds and that was not read yet: there are those that wait for it.
pub(crate) fn unread<'a>(all: &'a [Blocked], read: &[String]) -> Option<&'a str> {
    let mut held = all.iter().flat_map(|it| &it.holds).map(|it| &*it.stem);
    held.find(|stem| !read.iter().any(|it| it == stem))
}

/// Finds a circle through the first of these threads: each waits for what the next one holds, and the last one for
/// what the first one holds.
pub(crate) fn circle(all: &[Blocked], surely: bool) -> Option<Vec<Blocked>> {
    let first = all.first()?;
    let (mut paths, mut seen, mut at) = (vec![vec![first]], HashSet::from([&first.thread]), 0);
    while let Some(path) = paths.get(at).cloned() {
        let last = path[path.len() - 1];
        if path.len() > 1 && last.blocks(first, surely) {
            return Some([first].into_iter().chain(path[1..].iter().rev().copied()).cloned().collect());
        }
        let next = all.iter().filter(|next| last.blocks(next, surely) && seen.insert(&next.thread));
        paths.extend(next.map(|next| [&path[..], &[next]].concat()));
        at += 1;
    }
    None
}

/// Returns the circle through the first of these threads once it is believed: it was `seen` before, with the same waits
/// and the same holds, and each thread has published them again since. So all of it stood at one time, if it was read
/// within the deadlock timeout, as each wait had lasted that long by then. One in which another holder could let a
/// thread in counts if there is no other.
pub(crate) fn believed<'a>(
    seen: &'a mut Vec<Blocked>,
    all: &[Blocked],
    took: Duration,
    timeout: Duration,
) -> Option<&'a [Blocked]> {
    if took >= timeout {
        return None;
    }
    let found = circle(all, true).or_else(|| circle(all, false)).unwrap_or_default();
    let same = |before: &Blocked, it: &Blocked| *before == Blocked { times: before.times, ..it.clone() };
    if seen.len() != found.len() || !seen.iter().zip(&found).all(|(before, it)| same(before, it)) {
        *seen = found;
        return None;
    }
    let again = seen.iter().zip(&found).all(|(before, it)| before.times < it.times);
    (again && !found.is_empty()).then_some(seen)
}

/// Finds the circles among these threads, those in which another holder could let a thread in included.
pub(crate) fn circles(mut all: Vec<Blocked>) -> Vec<Vec<Blocked>> {
    let mut found = Vec::new();
    while let Some(first) = all.first() {
        let circle = circle(&all, false);
        // A thread waits for one lock. One that closes no circle is in none.
        let ended: HashSet<_> = circle.iter().flatten().chain([first]).map(|it| it.thread.clone()).collect();
        all.retain(|it| !ended.contains(&it.thread));
        found.extend(circle);
    }
    found
}

/// The thread that gives up: the one that began to wait last.
pub(crate) fn victim(circle: &[Blocked]) -> Option<&str> {
    Some(&circle.iter().max_by_key(|it| (it.since, &it.thread))?.thread)
}

/// The threads of a circle, each with the lock that it holds there, and the one that it waits for.
pub(crate) fn links(circle: &[Blocked]) -> impl Iterator<Item = (&Blocked, [String; 2])> {
    let before = circle.iter().cycle().skip(circle.len().saturating_sub(1));
    circle.iter().zip(before).map(|(it, before)| (it, [&before.wants, &it.wants].map(|it| shown(&it.stem))))
}

/// Describes a circle to people.
pub(crate) fn described(circle: &[Blocked]) -> String {
    let now = since_1970();
    let each = links(circle).map(|(it, [held, wanted])| {
        let (process, thread) = it.who.split_once('\t').unwrap_or((&it.who, ""));
        let thread = if thread.is_empty() { String::new() } else { format!(" {thread:?}") };
        let (who, seconds) = (process.replacen(' ', "@", 1), now.saturating_sub(it.since) as f64 / 1e3);
        format!("{}{thread}, which holds {held:?}, has waited {seconds:.1} s for {wanted:?}", who.trim_end())
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The time by this process's clock, in milliseconds.
pub(crate) fn since_1970() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_millis() as u64)
}

#[cfg(all(test, not(shuttle)))]
#[path = "../verify/unit/deadlock.rs"]
mod tests;
