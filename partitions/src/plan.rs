//! Who is to own which partition: balanced, and with the fewest moves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The members' numbers, by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan(pub(crate) Vec<u64>);

impl Plan {
    /// The next plan for `count` partitions of these members, of which there is at least one: each gets its share,
    /// to within one, and as many partitions as that allows stay where they are. The larger shares are those of the
    /// members that have most.
    pub(crate) fn next(&self, members: &[u64], count: usize) -> Plan {
        let mut kept: BTreeMap<u64, usize> = members.iter().map(|member| (*member, 0)).collect();
        for owner in &self.0 {
            kept.entry(*owner).and_modify(|n| *n += 1);
        }
        let mut order: Vec<_> = kept.into_iter().collect();
        order.sort_by_key(|(_, kept)| Reverse(*kept));
        let (each, more) = (count / order.len().max(1), count % order.len().max(1));
        let share = |i: usize, member| (member, each + usize::from(i < more));
        let mut shares: BTreeMap<u64, usize> =
            order.into_iter().enumerate().map(|(i, (member, _))| share(i, member)).collect();
        let mut take = |member: u64| {
            let left = shares.get_mut(&member).filter(|left| **left > 0)?;
            *left -= 1;
            Some(member)
        };
        let stay: Vec<_> = (0..count).map(|k| take(*self.0.get(k)?)).collect();
        let mut free = shares.iter().flat_map(|(member, left)| std::iter::repeat_n(*member, *left));
        Plan(stay.into_iter().filter_map(|owner| owner.or_else(|| free.next())).collect())
    }

    /// As text: the members' numbers; then of each partition which of them.
    pub(crate) fn text(&self) -> String {
        let mut members = self.0.clone();
        members.sort_unstable();
        members.dedup();
        let place = |owner| members.binary_search(owner).unwrap_or_default().to_string();
        let places: Vec<_> = self.0.iter().map(place).collect();
        let members: Vec<_> = members.iter().map(u64::to_string).collect();
        format!("{};{}", members.join(","), places.join(","))
    }

    /// Reads such a text; nothing is planned if it is not one.
    pub(crate) fn read(text: &str) -> Plan {
        let plan = || {
            let (members, places) = text.split_once(';')?;
            let members: Vec<u64> = members.split(',').map(|it| it.parse().ok()).collect::<Option<_>>()?;
            let owner = |place: &str| members.get(place.parse::<usize>().ok()?).copied();
            Some(Plan(places.split(',').map(owner).collect::<Option<_>>()?))
        };
        plan().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Plan;

    /// A small generator: the same numbers for the same seed.
    fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed >> 11).unwrap() % below
        }
    }

    /// How many partitions must change hands at least, whichever plan is chosen.
    fn least(before: &Plan, members: &[u64], count: usize) -> usize {
        let mut kept: Vec<_> =
            members.iter().map(|member| before.0.iter().filter(|it| *it == member).count()).collect();
        kept.sort_unstable();
        kept.reverse();
        let share = |i| count / members.len() + usize::from(i < count % members.len());
        count - kept.iter().enumerate().map(|(i, kept)| share(i).min(*kept)).sum::<usize>()
    }

    #[test]
    fn shares_are_balanced_and_as_few_as_possible_move() {
        let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(7);
        println!("SEED={seed}");
        let mut below = numbers(seed);
        for _ in 0..300 {
            let count = 1 + below(130);
            let (mut plan, mut members, mut next) = (Plan::default(), vec![1], 2);
            for _ in 0..12 {
                for _ in 0..below(4) {
                    members.push(next);
                    next += 1;
                }
                for _ in 0..below(4) {
                    if members.len() > 1 {
                        members.remove(below(members.len()));
                    }
                }
                let new = plan.next(&members, count);
                assert_eq!(new.0.len(), count);
                let mut shares: BTreeMap<_, usize> = members.iter().map(|member| (*member, 0)).collect();
                new.0.iter().for_each(|owner| *shares.get_mut(owner).unwrap() += 1);
                let (most, fewest) = (shares.values().max().unwrap(), shares.values().min().unwrap());
                assert!(most - fewest <= 1, "{shares:?}");
                let moved = (0..count).filter(|k| plan.0.get(*k) != Some(&new.0[*k])).count();
                assert_eq!(moved, least(&plan, &members, count), "{plan:?} to {new:?}");
                assert_eq!(Plan::read(&new.text()), new);
                plan = new;
            }
        }
        assert_eq!(Plan::read("1,2;0,2"), Plan::default());
    }
}
