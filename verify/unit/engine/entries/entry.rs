//! Unit tests of `src/engine/entries/entry.rs`.

use super::LockEntry;

#[test]
fn an_entry_is_small_as_a_process_may_hold_very_many() {
    // With the two counters of its Arc and the allocator's overhead, a block of 384 bytes.
    assert!(size_of::<LockEntry>() <= 368, "{}", size_of::<LockEntry>());
}
