//! Unit tests of `src/engine/state/lock_state/line.rs`.

use std::collections::VecDeque;

use super::Line;

#[test]
fn a_line_of_none_is_a_pointer() {
    assert_eq!(size_of::<Line<[u64; 10]>>(), size_of::<usize>());
}

#[test]
fn it_has_what_a_list_has() {
    let (mut line, mut list, mut n) = (Line::new(), VecDeque::new(), 1_u64);
    for step in 0..3_000_u64 {
        n = (n * 48_271) % 2_147_483_647;
        match n % 5 {
            0 | 1 => {
                let at = n as usize / 5 % (list.len() + 1);
                line.insert(at, step);
                list.insert(at, step);
            }
            2 => assert_eq!(line.pop_front(), list.pop_front()),
            3 => {
                let gone = |item: &u64| item % 7 != n / 5 % 7;
                line.retain(gone);
                list.retain(gone);
            }
            _ => {
                if let (Some(ours), Some(theirs)) = (line.front_mut(), list.front_mut()) {
                    (*ours, *theirs) = (step, step);
                }
            }
        }
        assert_eq!((line.len(), line.is_empty(), line.front()), (list.len(), list.is_empty(), list.front()));
        assert!(line.iter().eq(&list) && line.iter().rev().eq(list.iter().rev()));
    }
}
