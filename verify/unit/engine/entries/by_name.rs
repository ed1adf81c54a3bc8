//! Unit tests of `src/engine/entries/by_name.rs`.

use super::*;

#[test]
fn one_whose_place_is_taken_is_found_until_it_is_gone() {
    let (mut all, kind) = (ByName::default(), TypeId::of::<()>());
    all.insert(kind, "a", 1);
    all.insert(kind, "a", 2);
    let slots = |all: &ByName| all.slots(kind, "a").collect::<Vec<_>>();
    assert_eq!(slots(&all), [2, 1]);
    all.remove(kind, "a", 1);
    assert_eq!(slots(&all), [2]);
    all.remove(kind, "a", 2);
    assert!(all.slots.is_empty() && all.displaced.is_empty());
    assert!(slots(&all).is_empty());
}
