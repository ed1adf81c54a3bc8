//! What the messages of the locks do to the lock states that they are for: the only reader of what `lua/` publishes. How
//! a message arrives is in `listener.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::carry_out;
use super::entry::{Core, LockEntry, owner_number};
use super::renewal::successor;
use super::runtime::Shared;
use super::state::lock_state::{Effects, LockState};
use crate::clock::Moment;

/// `<uuid>:<n> <what> <number> <lease ms> [<value>]`, of a forced unlock with its reason as the value; a message that
/// concerns no one here is ignored.
pub(super) fn dispatch(shared: &Shared, text: &str) {
    let mut words = text.split(' ');
    let (Some(owner), Some(what)) = (words.next(), words.next()) else { return };
    let Some(owner) = owner.rsplit(':').next().and_then(owner_number) else { return };
    let said = text.splitn(5, ' ').nth(4).unwrap_or_default();
    let mut numbers = words.map(|w| w.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (number, lease, value) = (next(), next(), next());
    let entry = shared.entries.lock().of_owner(owner);
    let Some(entry) = entry else { return };
    let now = Moment::now();
    let mut core = entry.core.lock();
    let then = match what {
        "in" => core.lock_state.granted(owner, number, Duration::from_millis(lease), value, now),
        "wanted" => core.lock_state.is_wanted(owner, now),
        "yield" => return core.lock_state.yields(owner),
        // What a wait was granted is held in its lock's entry.
        "no:forced" if entry.condition.is_some() && !core.lock_state.knows(owner) => {
            drop(core);
            let Some(entry) = entry.condition.as_ref().and_then(|awaited| awaited.lock.upgrade()) else {
                return;
            };
            let mut core = entry.core.lock();
            let then = core.lock_state.forced(owner, said, now);
            return carry_out(&entry, core, then);
        }
        "no:forced" => core.lock_state.forced(owner, said, now),
        // A script has left some of the waiters to the next script, which this process is to send.
        "again" => core.lock_state.ask_again(now),
        other => match other.strip_prefix("no:") {
            Some(why) => core.lock_state.refused(owner, why.to_owned()),
            None => return,
        },
    };
    carry_out(&entry, core, then);
}

/// The first waiter of this lock asks again.
pub(super) fn ask_again(entry: &Arc<LockEntry>) {
    tell(entry, LockState::ask_again);
}

/// The entries that these owner numbers lead to hear from now on, or do not any more: what was said meanwhile is
/// asked for, and what is kept leaves, as it would not be heard that it is wanted.
pub(super) fn missed(shared: &Shared, owners: &[u64]) {
    for owner in owners {
        let entry = shared.entries.lock().of_owner(*owner);
        let Some(entry) = entry else { continue };
        tell(&entry, LockState::deaf);
        hears(&entry);
    }
}

/// What was said to this lock before is asked for. Whoever wants to be told of the end of a hold may have missed it: its
/// renewal says, which short holds do not pay for.
pub(super) fn hears(entry: &Arc<LockEntry>) {
    ask_again(entry);
    let mut core = entry.core.lock();
    let soon = Moment::now().after(core.lock_state.shape().heartbeat);
    successor::renew(entry, &mut core, soon, Core::is_to_be_told);
}

/// Tells the lock state what has happened.
pub(super) fn tell(entry: &Arc<LockEntry>, event: fn(&mut LockState, Moment) -> Effects) {
    let mut core = entry.core.lock();
    let then = event(&mut core.lock_state, Moment::now());
    carry_out(entry, core, then);
}
