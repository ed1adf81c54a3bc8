//! Applies the messages that `lua/` publishes to the lock states that they are for. No other code reads them,
//! except `listen`, which is for the listener. How a message arrives is in `listener.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry, owner_number};
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::effects::{carry_out, report};
use crate::engine::redis::resp::unsigned;
use crate::engine::renewal::successor;
use crate::engine::state::lock_state::LockState;

/// Applies the message to `owner`, `<uuid>:<n>`, of `text`, `<what> <number> <lease ms> [<value>]`; the value of a forced
/// unlock is its reason. A message to an owner that is not known here is ignored: whoever may publish could have sent it.
pub(crate) fn dispatch(shared: &Shared, owner: &str, text: &str, now: Moment) {
    let mut words = text.as_bytes().split(|byte| *byte == b' ');
    let what = &text[..words.next().map_or(0, <[u8]>::len)];
    let ours = owner.strip_prefix(&shared.uuid).and_then(|number| number.strip_prefix(':'));
    let Some(owner) = ours.and_then(owner_number) else { return };
    let mut next = || words.next().and_then(unsigned).unwrap_or(0);
    let (number, lease, value) = (next(), next(), next());
    let entry = shared.entries.lock().of_owner(owner);
    let Some(mut entry) = entry else { return };
    // What a wait for a condition was granted is held in its lock's entry.
    if what == "no:forced"
        && let Some(awaited) = &entry.condition
        && !entry.core.lock().lock_state.knows(owner)
    {
        let Some(lock) = awaited.lock.upgrade() else { return };
        entry = lock;
    }
    let mut core = entry.core.lock();
    if !core.lock_state.knows(owner) {
        return;
    }
    let then = match what {
        "in" => core.lock_state.granted(owner, number, Duration::from_millis(lease), value, now),
        "wanted" => core.lock_state.is_wanted(owner, now),
        "yield" => return core.lock_state.yields(owner),
        "no:forced" => core.lock_state.forced(owner, text.splitn(4, ' ').nth(3).unwrap_or_default(), now),
        // A script has left some of the waiters to the next script, which this process must send.
        "again" => core.lock_state.ask_again(now),
        other => match other.strip_prefix("no:") {
            Some(why) => core.lock_state.refused(owner, why.to_owned()),
            None => return,
        },
    };
    carry_out(&entry, core, then);
}

/// Makes the first waiter of this lock ask again.
pub(crate) fn ask_again(entry: &Arc<LockEntry>) {
    report(entry, LockState::ask_again);
}

/// The entries of these owner numbers no longer receive messages. Makes them give back what they keep, and ask.
pub(crate) fn missed(shared: &Shared, owners: &[u64]) {
    tell(shared, owners, deaf);
    tell(shared, owners, hears);
}

/// Calls `act` for the entries of these owner numbers.
pub(crate) fn tell(shared: &Shared, owners: &[u64], act: fn(&Arc<LockEntry>)) {
    for owner in owners {
        let entry = shared.entries.lock().of_owner(*owner);
        entry.iter().for_each(act);
    }
}

/// What the lock was granted, or is being granted, is not kept: a message that another caller wants it may have been
/// missed, or would be.
pub(crate) fn deaf(entry: &Arc<LockEntry>) {
    report(entry, LockState::deaf);
}

/// Makes the lock ask for what it may have missed. A message that a hold has ended may have been missed, too:
/// holds whose holders need such messages are renewed soon, but not so soon that short ones pay for it.
pub(crate) fn hears(entry: &Arc<LockEntry>) {
    ask_again(entry);
    let mut core = entry.core.lock();
    let soon = Moment::now().after(entry.shape.heartbeat);
    successor::renew(entry, &mut core, soon, Core::needs_messages);
}
