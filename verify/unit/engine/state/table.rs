//! Unit tests of `src/engine/state/table.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::{FEW, Numbered, Table};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item(u64, bool);

impl Numbered for Item {
    type Index = BTreeSet<u64>;

    fn key(&self) -> u64 {
        self.0
    }

    fn note(&self, index: &mut BTreeSet<u64>) {
        index.insert(self.0);
    }

    fn strike(&self, index: &mut BTreeSet<u64>) {
        index.remove(&self.0);
    }
}

#[test]
fn few_or_many_it_has_what_is_in_it() {
    let (mut table, mut map) = (Table::new(), BTreeMap::new());
    let mut n = 1;
    for step in 0..20_000_u64 {
        n = (n * 48_271) % 2_147_483_647;
        // Grows beyond `FEW` items, and shrinks to none, several times.
        let grows = (step / 500) % 2 == 0;
        let number = n % (4 * FEW as u64);
        let removes = if grows { n % 5 == 0 } else { n % 5 != 0 };
        if removes {
            assert_eq!(table.remove(number), map.remove(&number).map(|used| Item(number, used)));
        } else if let Some(item) = table.get_mut(number) {
            item.1 = !item.1;
            map.entry(number).and_modify(|used| *used = !*used);
        } else {
            table.insert(Item(number, false));
            map.insert(number, false);
        }
        assert_eq!(table.get(number).map(|item| item.1), map.get(&number).copied());
        assert_eq!(table.iter().next().is_none(), map.is_empty());
        let mut all: Vec<_> = table.iter().map(|item| (item.0, item.1)).collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(map.iter().map(|(n, used)| (*n, *used))));
        assert_eq!(table.iter_mut().count(), map.len());
        if let Some(many) = table.many() {
            assert!(many.index.iter().eq(map.keys()));
        }
    }
}
