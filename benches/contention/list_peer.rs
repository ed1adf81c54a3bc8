//! A common alternative for passing a turn on: a list of one element, which the holder pushes and the waiting
//! process pops (`BLPOP`). It has no owner and no lease, and a process that dies takes the turn with it.

use super::bare::{Bare, request};
use super::peer::{Done, Peer};

const LIST: &str = "bench:turn";

/// A process that takes its turns from the list.
pub(crate) struct ListPeer {
    redis: Bare,
    pop: Vec<u8>,
    /// The number of its turn.
    turn: u64,
}

impl ListPeer {
    pub(crate) fn connect(port: u16) -> Done<ListPeer> {
        Ok(ListPeer { redis: Bare::connect(port)?, pop: request(&["BLPOP", LIST, "0"]), turn: 0 })
    }

    /// Pushes the only turn.
    pub(crate) fn begin(redis: &mut Bare) -> Done<()> {
        redis.exchange(&request(&["RPUSH", LIST, "1"]))?;
        Ok(())
    }
}

impl Peer for ListPeer {
    fn lock(&mut self) -> Done<u64> {
        let popped = String::from_utf8_lossy(self.redis.exchange(&self.pop)?);
        self.turn = popped.lines().last().ok_or("an answer without a turn")?.parse()?;
        Ok(self.turn)
    }

    fn unlock(&mut self) -> Done<()> {
        self.redis.exchange(&request(&["RPUSH", LIST, &(self.turn + 1).to_string()]))?;
        Ok(())
    }
}
