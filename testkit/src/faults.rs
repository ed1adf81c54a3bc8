//! What a proxy does to the chunks that pass, decided one by one.
//!
//! A chunk is whatever one read returns. On loopback, a command or a pipeline of less than 64 KiB, or the
//! reply to it, arrives in one piece.

use std::net::IpAddr;
use std::time::Duration;

/// What happens to a request chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Forward,
    /// Kept until held requests are released.
    Hold,
    Lose,
    /// Lost, and the connection is closed.
    Cut,
}

/// What happens to a reply chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Forward,
    Delay(Duration),
    /// In two halves, each after this time.
    Split(Duration),
    Lose,
    /// Lost, as is all that comes after it.
    Silence,
    /// Lost, and the connection is closed.
    Cut,
}

/// What is known about one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The client's address.
    from: Option<IpAddr>,
    /// The filter that the last request matched, as [`Faults::filters`] numbers them.
    matches: Option<u64>,
    /// Whether the next reply is to be lost together with the connection.
    cut_at_reply: bool,
}

impl Exchange {
    pub(super) fn with(client: Option<IpAddr>) -> Self {
        Exchange { from: client, ..Exchange::default() }
    }
}

/// The faults that are on or armed.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// If empty, every request matches.
    filter: Vec<u8>,
    /// How many filters there have been.
    filters: u64,
    pub(super) black_hole: bool,
    /// The address whose connections are in a black hole, whatever they send.
    pub(super) cut_off: Option<IpAddr>,
    pub(super) delay: Duration,
    /// The delay before each half of a reply; zero: replies are not split.
    pub(super) split: Duration,
    pub(super) hold_all: bool,
    pub(super) hold_next: usize,
    pub(super) cut_at_request: usize,
    pub(super) cut_at_reply: usize,
    pub(super) lose_replies: usize,
    /// How many connections are still to fall silent.
    pub(super) silence: usize,
    /// Replies that contain these bytes are always lost; if empty, none are.
    pub(super) deaf_to: Vec<u8>,
    /// How often held requests have been released so far.
    pub(super) releases: u64,
    /// How many chunks were not simply passed on.
    pub(super) struck: u64,
}

impl Faults {
    /// Narrows all faults to requests that arrive from now on and contain these bytes.
    pub(super) fn narrow(&mut self, filter: &[u8]) {
        self.filter = filter.to_vec();
        self.filters += 1;
    }

    pub(super) fn request(&mut self, chunk: &[u8], exchange: &mut Exchange) -> Request {
        if self.cuts_off(exchange) {
            self.struck += 1;
            return Request::Lose;
        }
        exchange.matches = contains(chunk, &self.filter).then_some(self.filters);
        if exchange.matches.is_none() {
            return Request::Forward;
        }
        let fate = if self.black_hole {
            Request::Lose
        } else if take(&mut self.cut_at_request) {
            Request::Cut
        } else {
            exchange.cut_at_reply |= take(&mut self.cut_at_reply);
            if self.hold_all || take(&mut self.hold_next) { Request::Hold } else { Request::Forward }
        };
        self.struck += u64::from(fate != Request::Forward);
        fate
    }

    pub(super) fn reply(&mut self, chunk: &[u8], exchange: &Exchange) -> Reply {
        let concerned = self.concerns(exchange);
        let unheard = !self.deaf_to.is_empty() && contains(chunk, &self.deaf_to);
        let fate = if self.black_hole && concerned || unheard || self.cuts_off(exchange) {
            Reply::Lose
        } else if exchange.cut_at_reply {
            // The request that armed this matched, even if another one followed before the reply.
            Reply::Cut
        } else if !concerned {
            Reply::Forward
        } else if take(&mut self.lose_replies) {
            Reply::Lose
        } else if take(&mut self.silence) {
            Reply::Silence
        } else if self.delay > Duration::ZERO {
            Reply::Delay(self.delay)
        } else if self.split > Duration::ZERO {
            Reply::Split(self.split)
        } else {
            Reply::Forward
        };
        self.struck += u64::from(fate != Reply::Forward);
        fate
    }

    /// Whether the end of one side of the connection is to be hidden from the other side.
    pub(super) fn hides_end(&self, exchange: &Exchange) -> bool {
        self.black_hole && self.concerns(exchange) || self.cuts_off(exchange)
    }

    /// Turns everything off, but keeps the counters.
    pub(super) fn clear(&mut self) {
        let (releases, filters) = (self.releases + 1, self.filters + 1);
        *self = Self { releases, filters, struck: self.struck, ..Self::default() };
    }

    fn cuts_off(&self, exchange: &Exchange) -> bool {
        self.cut_off.is_some() && self.cut_off == exchange.from
    }

    /// Whether faults apply to what the server sends; what it sends unasked counts with the last request, if
    /// there was one.
    fn concerns(&self, exchange: &Exchange) -> bool {
        self.filter.is_empty() || exchange.matches == Some(self.filters)
    }
}

/// Uses up one of `armed`, if there is one.
fn take(armed: &mut usize) -> bool {
    let some = *armed > 0;
    *armed -= usize::from(some);
    some
}

fn contains(chunk: &[u8], bytes: &[u8]) -> bool {
    // `windows` does not accept a length of 0.
    bytes.is_empty() || chunk.windows(bytes.len()).any(|it| it == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_spares_the_others_and_their_replies() {
        let mut faults = Faults { filter: b"abc".to_vec(), lose_replies: 1, ..Faults::default() };
        let (mut other, mut hit) = (Exchange::default(), Exchange::default());
        assert_eq!(faults.request(b"ab", &mut other), Request::Forward);
        assert_eq!(faults.request(b"xabcx", &mut hit), Request::Forward);
        assert_eq!(faults.reply(b"", &other), Reply::Forward);
        assert_eq!(faults.reply(b"", &hit), Reply::Lose);
        assert_eq!(faults.reply(b"", &hit), Reply::Forward);
        assert_eq!(faults.struck, 1);
    }

    #[test]
    fn a_filter_spares_the_replies_to_what_was_asked_before() {
        let mut faults = Faults::default();
        let mut before = Exchange::default();
        assert_eq!(faults.request(b"xabcx", &mut before), Request::Forward);
        faults.narrow(b"abc");
        faults.lose_replies = 1;
        assert_eq!(faults.reply(b"", &before), Reply::Forward);
        assert_eq!(faults.request(b"xabcx", &mut before), Request::Forward);
        assert_eq!(faults.reply(b"", &before), Reply::Lose);
    }

    #[test]
    fn what_it_is_deaf_to_is_lost_whatever_was_asked() {
        let mut faults =
            Faults { filter: b"abc".to_vec(), deaf_to: b"message".to_vec(), ..Faults::default() };
        let (other, hit) = (Exchange::default(), Exchange { matches: Some(0), ..Exchange::default() });
        for exchange in [&other, &hit] {
            assert_eq!(faults.reply(b"a message", exchange), Reply::Lose);
            assert_eq!(faults.reply(b"an answer", exchange), Reply::Forward);
        }
        assert_eq!(faults.struck, 2);
        faults.clear();
        assert_eq!(faults.reply(b"a message", &other), Reply::Forward);
    }

    #[test]
    fn an_address_is_cut_off_whatever_the_filter_says() {
        let there = "127.0.0.2".parse().ok();
        let mut faults = Faults { filter: b"abc".to_vec(), cut_off: there, ..Faults::default() };
        let (mut other, mut hit) = (Exchange::default(), Exchange::with(there));
        assert_eq!(
            (faults.request(b"x", &mut other), faults.reply(b"", &other)),
            (Request::Forward, Reply::Forward)
        );
        assert_eq!((faults.request(b"x", &mut hit), faults.reply(b"", &hit)), (Request::Lose, Reply::Lose));
        assert!(faults.hides_end(&hit) && !faults.hides_end(&other));
        faults.clear();
        assert_eq!(faults.request(b"x", &mut hit), Request::Forward);
    }

    #[test]
    fn an_armed_cut_waits_for_the_reply_to_its_own_request() {
        let mut faults = Faults { cut_at_reply: 1, ..Faults::default() };
        let (mut idle, mut hit) = (Exchange::default(), Exchange::default());
        assert_eq!(faults.reply(b"", &idle), Reply::Forward);
        assert_eq!(faults.request(b"x", &mut hit), Request::Forward);
        assert_eq!(faults.request(b"y", &mut idle), Request::Forward);
        assert_eq!(faults.reply(b"", &idle), Reply::Forward);
        assert_eq!(faults.reply(b"", &hit), Reply::Cut);
    }
}
