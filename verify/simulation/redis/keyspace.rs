//! What is stored, and until when.

use std::collections::BTreeMap;

use super::sorted::Sorted;

pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Sorted(Sorted),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    /// In ms since 1970; `None`: never.
    pub(crate) expires: Option<i64>,
}

impl Data {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Data::Text(_) => "string",
            Data::Hash(_) => "hash",
            Data::Sorted(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Data::Text(_) => false,
            Data::Hash(hash) => hash.is_empty(),
            Data::Sorted(sorted) => sorted.is_empty(),
        }
    }
}

/// One kind of data, out of and into an entry.
pub(super) trait Typed: Default {
    fn of(data: &mut Data) -> Option<&mut Self>;
    fn into_data(self) -> Data;
}

impl Typed for BTreeMap<Vec<u8>, Vec<u8>> {
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Hash(hash) = data { Some(hash) } else { None }
    }

    fn into_data(self) -> Data {
        Data::Hash(self)
    }
}

impl Typed for Sorted {
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Sorted(sorted) = data { Some(sorted) } else { None }
    }

    fn into_data(self) -> Data {
        Data::Sorted(self)
    }
}

impl Typed for Vec<u8> {
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Text(text) = data { Some(text) } else { None }
    }

    fn into_data(self) -> Data {
        Data::Text(self)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    pub(crate) keys: BTreeMap<Vec<u8>, Entry>,
    /// The time by which keys expire, in ms since 1970.
    pub(crate) now: i64,
}

impl Keyspace {
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| entry.expires.is_some_and(|ends| self.now > ends)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// Reads or changes the data at a key, if there is any.
    pub(super) fn get<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&mut T>, String> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => T::of(&mut entry.data).map(Some).ok_or_else(|| WRONG_TYPE.to_owned()),
        }
    }

    /// The same, where a key without data gets some.
    pub(super) fn get_or_new<T: Typed>(&mut self, key: &[u8]) -> Result<&mut T, String> {
        if self.entry(key).is_none() {
            let entry = Entry { data: T::default().into_data(), expires: None };
            self.keys.insert(key.to_vec(), entry);
        }
        self.get(key).map(|data| data.expect("just made"))
    }

    /// Removes a key from which everything has been taken.
    pub(super) fn tidy(&mut self, key: &[u8]) {
        if self.keys.get(key).is_some_and(|entry| entry.data.is_empty()) {
            self.keys.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.keys.remove(key).is_some()
    }
}
