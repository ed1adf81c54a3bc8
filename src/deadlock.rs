//! Threads that wait for each other's locks: what they tell of themselves, and the circles that they close. When it is
//! told and read is in `engine/call/deadlock.rs`; the rules are in `docs/design/deadlocks.md`.

use std::collections::HashSet;
use std::time::SystemTime;

use crate::names::{escape, shown, unescape};

/// A thread that waits for a lock while it holds others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// `<client uuid>:<its number in its process>`.
    pub(crate) thread: String,
    /// Its process and its name, for people.
    pub(crate) who: String,
    /// Since when it waits, in milliseconds since 1970 by its own clock.
    pub(crate) since: u64,
    /// How often it has told this.
    pub(crate) told: u64,
    /// The lock that it waits for: see [`part`].
    pub(crate) wants: String,
    pub(crate) holds: Vec<String>,
}

/// A lock in such a wait: the number of the grant, followed by `~` if others may hold the lock, too, and its stem.
pub(crate) fn part(stem: &str, number: u64, shared: bool) -> String {
    format!("{number}{}|{stem}", if shared { "~" } else { "" })
}

/// Whether others may hold it, and its stem.
pub(crate) fn parts(part: &str) -> (bool, &str) {
    part.split_once('|').map_or((true, part), |(number, stem)| (number.ends_with('~'), stem))
}

impl Blocked {
    pub(crate) fn text(&self) -> String {
        let (since, told) = (self.since.to_string(), self.told.to_string());
        let words = [&self.thread, &self.who, &since, &told, &self.wants].into_iter().chain(&self.holds);
        words.map(|it| escape(it)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn read(text: &str) -> Option<Blocked> {
        let mut words = text.split(' ').map(unescape);
        let mut next = || words.next()?;
        let (thread, who, since, told) = (next()?, next()?, next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Blocked { thread, who, since, told, wants: next()?, holds: words.collect::<Option<_>>()? })
    }

    /// Whether `other` waits for what this thread holds; `surely`: and no other holder could let it in.
    fn blocks(&self, other: &Blocked, surely: bool) -> bool {
        let (waits_for_all, wanted) = (!surely || !parts(&other.wants).0, parts(&other.wants).1);
        self.holds
            .iter()
            .map(|it| parts(it))
            .any(|(shared, stem)| stem == wanted && (waits_for_all || !shared))
    }
}

/// A lock that one of them holds and that was not read yet: there are those that wait for it.
pub(crate) fn unread<'a>(all: &'a [Blocked], read: &[String]) -> Option<&'a str> {
    let mut held = all.iter().flat_map(|it| &it.holds).map(|it| parts(it).1);
    held.find(|stem| !read.iter().any(|it| it == stem))
}

/// Finds a circle through the first of these threads: each waits for what the next one holds, and the last one for
/// what the first one holds.
fn circle(all: &[Blocked], surely: bool) -> Option<Vec<Blocked>> {
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
/// and the same holds, and each thread has told them again since. So all of it stood at one time.
pub(crate) fn believed<'a>(seen: &'a mut Vec<Blocked>, all: &[Blocked]) -> Option<&'a [Blocked]> {
    let found = circle(all, true).unwrap_or_default();
    let same = |before: &Blocked, it: &Blocked| *before == Blocked { told: before.told, ..it.clone() };
    if seen.len() != found.len() || !seen.iter().zip(&found).all(|(before, it)| same(before, it)) {
        *seen = found;
        return None;
    }
    let again = seen.iter().zip(&found).all(|(before, it)| before.told < it.told);
    (again && !found.is_empty()).then_some(seen)
}

/// Finds the circles among these threads, those in which another holder could let a thread in included, and describes
/// each to people.
pub(crate) fn circles(mut all: Vec<Blocked>) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(first) = all.first() {
        let circle = circle(&all, false);
        found.extend(circle.as_deref().map(described));
        // A thread waits for one lock. One that closes no circle is in none.
        let ended: HashSet<_> = circle.iter().flatten().chain([first]).map(|it| it.thread.clone()).collect();
        all.retain(|it| !ended.contains(&it.thread));
    }
    found
}

/// The thread that gives up: the one that began to wait last.
pub(crate) fn victim(circle: &[Blocked]) -> Option<&str> {
    Some(&circle.iter().max_by_key(|it| (it.since, &it.thread))?.thread)
}

/// Describes a circle to people.
pub(crate) fn described(circle: &[Blocked]) -> String {
    let (now, last) = (since_1970(), circle.len().saturating_sub(1));
    let before = circle.iter().cycle().skip(last);
    let each = circle.iter().zip(before).map(|(it, before)| {
        let [held, wanted] = [&before.wants, &it.wants].map(|it| shown(parts(it).1));
        let seconds = now.saturating_sub(it.since) as f64 / 1e3;
        format!("{}, which holds {held:?}, has waited {seconds:.1} s for {wanted:?}", it.who)
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
