//! A lock's items of one sort, each with its number: mostly one, sometimes very many.
//!
//! A process may hold a hundred thousand locks, most of them by one thread each: one item is in the table itself,
//! without a list. And it may hold a hundred thousand permits of one semaphore: then no item is found by going
//! through all of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::slice;

/// How many are looked through one by one.
const FEW: usize = 16;

/// What has a number of its own, for as long as it is in a table.
pub(crate) trait Numbered {
    /// The other key by which it is found where there are many; what that depends on must not change in the
    /// table.
    type Index: Clone + Debug + Default + PartialEq + Eq + Hash;

    fn key(&self) -> u64;

    /// It enters the table.
    fn note(&self, _index: &mut Self::Index) {}

    /// It leaves the table.
    fn strike(&self, _index: &mut Self::Index) {}
}

/// See the module's documentation. Tables with the same items in the same order are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table<T: Numbered> {
    None,
    One(T),
    /// Two or more.
    Few(Vec<T>),
    Many(Box<Many<T>>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Many<T: Numbered> {
    pub(crate) items: BTreeMap<u64, T>,
    pub(crate) index: T::Index,
}

impl<T: Numbered> Table<T> {
    pub(crate) const fn new() -> Self {
        Table::None
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        match self {
            Table::Many(many) => many.items.get(&number),
            _ => self.few().iter().find(|item| item.key() == number),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self {
            Table::Many(many) => many.items.get_mut(&number),
            _ => self.few_mut().iter_mut().find(|item| item.key() == number),
        }
    }

    /// Adds an item that is not there yet.
    pub(crate) fn insert(&mut self, item: T) {
        match self {
            Table::Few(items) if items.len() < FEW => items.push(item),
            Table::Many(many) => many.add(item),
            _ => {
                *self = match std::mem::replace(self, Table::None) {
                    Table::None => Table::One(item),
                    Table::One(first) => Table::Few(vec![first, item]),
                    Table::Few(items) => {
                        let mut many = Box::new(Many { items: BTreeMap::new(), index: T::Index::default() });
                        items.into_iter().chain([item]).for_each(|item| many.add(item));
                        Table::Many(many)
                    }
                    many @ Table::Many(_) => many,
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        match self {
            Table::None => None,
            Table::One(item) if item.key() != number => None,
            Table::One(_) => match std::mem::replace(self, Table::None) {
                Table::One(item) => Some(item),
                _ => None,
            },
            Table::Few(items) => {
                let at = items.iter().position(|item| item.key() == number)?;
                let item = items.swap_remove(at);
                if items.len() == 1
                    && let Some(last) = items.pop()
                {
                    *self = Table::One(last);
                }
                Some(item)
            }
            Table::Many(many) => {
                let item = many.items.remove(&number)?;
                item.strike(&mut many.index);
                if many.items.is_empty() {
                    *self = Table::new();
                }
                Some(item)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Table::None)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.few().iter().chain(self.many().into_iter().flat_map(|many| many.items.values()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (few, many) = match self {
            Table::Many(many) => (None, Some(many.items.values_mut())),
            _ => (Some(self.few_mut().iter_mut()), None),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// All of them, while they are few.
    pub(crate) fn few(&self) -> &[T] {
        match self {
            Table::One(item) => slice::from_ref(item),
            Table::Few(items) => items,
            Table::None | Table::Many(_) => &[],
        }
    }

    /// The same, to change what has no part in the index.
    pub(crate) fn few_mut(&mut self) -> &mut [T] {
        match self {
            Table::One(item) => slice::from_mut(item),
            Table::Few(items) => items,
            Table::None | Table::Many(_) => &mut [],
        }
    }

    /// All of them, where they are many.
    pub(crate) fn many(&self) -> Option<&Many<T>> {
        match self {
            Table::Many(many) => Some(many),
            _ => None,
        }
    }
}

impl<T: Numbered> Many<T> {
    fn add(&mut self, item: T) {
        item.note(&mut self.index);
        self.items.insert(item.key(), item);
    }
}

/// Adds to a list that mostly has one item, and so begins with room for just that.
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/state/table.rs"]
mod tests;
