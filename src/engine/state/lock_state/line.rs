//! A lock's waiting threads, in the order of their turns. Mostly there is none, sometimes one while its
//! request is in flight: an empty line takes the space of a pointer, and one waiter takes one allocation.

use std::collections::VecDeque;
use std::iter;

/// Lines with the same items in the same order are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line<T>(Option<Box<Waiting<T>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting<T> {
    first: T,
    others: VecDeque<T>,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Line(None)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |some| 1 + some.others.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.0.as_ref().map(|some| &some.first)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|some| &mut some.first)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter().flat_map(|some| iter::once(&some.first).chain(&some.others))
    }

    /// Inserts the item at this position, or at the end if the line is shorter.
    pub(super) fn insert(&mut self, at: usize, item: T) {
        match &mut self.0 {
            None => self.0 = Some(Box::new(Waiting { first: item, others: VecDeque::new() })),
            Some(some) if at == 0 => {
                let second = std::mem::replace(&mut some.first, item);
                some.others.push_front(second);
            }
            Some(some) => some.others.insert((at - 1).min(some.others.len()), item),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let some = self.0.as_mut()?;
        match some.others.pop_front() {
            Some(second) => Some(std::mem::replace(&mut some.first, second)),
            None => self.0.take().map(|some| some.first),
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        if let Some(some) = &mut self.0 {
            some.others.retain(&keep);
            if !keep(&some.first) {
                self.pop_front();
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../../verify/unit/engine/state/lock_state/line.rs"]
mod tests;
