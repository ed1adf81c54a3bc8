//! A lock's holds, or its grants, by number: mostly one, sometimes very many.
//!
//! A process may hold a hundred thousand permits of one semaphore: in a large table, no lookup goes through all
//! items. It may also hold a hundred thousand locks: a list starts with room for one item.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

/// Up to this many items are searched one by one.
const FEW: usize = 16;

/// An item with a number of its own, for as long as it is in a table.
pub(crate) trait Numbered {
    /// A second index, for large tables, if it needs one. What it depends on must not change while the item is in the table.
    type Index: Clone + Debug + Default + PartialEq + Eq + Hash;

    fn key(&self) -> u64;

    /// Adds the item to the index.
    fn note(&self, _index: &mut Self::Index) {}

    /// Removes the item from the index.
    fn strike(&self, _index: &mut Self::Index) {}
}

/// See the module's documentation. Tables with the same items in the same order are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table<T: Numbered> {
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
        Table::Few(Vec::new())
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        match self {
            Table::Many(many) => many.items.get(&number),
            Table::Few(items) => items.iter().find(|item| item.key() == number),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self {
            Table::Many(many) => many.items.get_mut(&number),
            Table::Few(items) => items.iter_mut().find(|item| item.key() == number),
        }
    }

    /// Adds an item that is not there yet.
    pub(crate) fn insert(&mut self, item: T) {
        match self {
            Table::Few(items) if items.len() < FEW => push(items, item),
            Table::Few(items) => {
                let mut many = Box::new(Many { items: BTreeMap::new(), index: T::Index::default() });
                items.drain(..).chain([item]).for_each(|item| many.add(item));
                *self = Table::Many(many);
            }
            Table::Many(many) => many.add(item),
        }
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        match self {
            Table::Few(items) => {
                items.iter().position(|item| item.key() == number).map(|at| items.swap_remove(at))
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.few().iter().chain(self.many().into_iter().flat_map(|many| many.items.values()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (few, many) = match self {
            Table::Many(many) => (None, Some(many.items.values_mut())),
            Table::Few(items) => (Some(items.iter_mut()), None),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// Returns all items while they are few, and none otherwise.
    pub(crate) fn few(&self) -> &[T] {
        match self {
            Table::Few(items) => items,
            Table::Many(_) => &[],
        }
    }

    /// Returns the items and their index, if there are many.
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

/// Adds to a list that mostly has a single item, and so starts with room for just one.
pub(crate) fn push<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/state/table.rs"]
mod tests;
