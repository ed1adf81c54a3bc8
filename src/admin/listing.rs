//! All locks of a namespace, found by `SCAN`.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ServerError, Value};

use super::view::{self, Inspection, Lookup, command};
use crate::client::Client;
use crate::engine::redis::resp::{list, text};
use crate::engine::servers::server::Server;
use crate::error::Error;
use crate::names::{self, Names};
use crate::wait::Wait;

/// The number of keys that a `SCAN` examines.
const PAGE: &str = "200";
/// The cursor at which a scan begins, and with which Redis says that it has ended.
const BEGINNING: &str = "0";
/// The number of locks that are examined by one write.
const BATCH: usize = 100;

/// An iterator over the locks of a namespace: see [`Client::list`].
///
/// Sends `SCAN`s of a few hundred keys, and examines each lock that it finds, in pipelines; in a cluster, one primary
/// after the other. So no command occupies the server for long, whatever the number of keys. A released lock, whose
/// last number Redis keeps for two hours, is scanned but examined only [`with_free`](Listing::with_free). A lock that
/// exists all the time is returned once; a lock that is created or deleted in the meantime, or moves to another
/// primary (all of them, at a failover), may be missed. The listing keeps the names that it has examined, in order
/// not to return them again. Each `next` blocks for some requests, each for at most the command timeout, and for the
/// pauses of a [rate](Listing::rate). After an error the iterator ends.
pub struct Listing {
    client: Client,
    rate: Option<u32>,
    free: bool,
    began: Instant,
    looked: u64,
    /// The one that is being scanned, and those that are still to be.
    servers: VecDeque<Arc<Server>>,
    /// The ids of all servers that were ever queued.
    queued: HashSet<u64>,
    /// Where the scan continues; `None` at the server's end.
    cursor: Option<String>,
    seen: HashSet<String>,
    found: VecDeque<String>,
    ready: VecDeque<Inspection>,
}

shows!(Listing as "Listing", |it| "looked": it.looked);

impl Listing {
    pub(super) fn new(client: &Client) -> Listing {
        let mut listing = Listing {
            client: client.clone(),
            rate: None,
            free: false,
            began: Instant::now(),
            looked: 0,
            servers: VecDeque::new(),
            queued: HashSet::new(),
            cursor: Some(BEGINNING.to_owned()),
            seen: HashSet::new(),
            found: VecDeque::new(),
            ready: VecDeque::new(),
        };
        listing.queue_servers();
        listing
    }

    /// Queues the servers that were not queued before.
    fn queue_servers(&mut self) {
        let queued = &mut self.queued;
        self.servers.extend(self.client.servers_with_locks().into_iter().filter(|it| queued.insert(it.id)));
    }

    /// Limits how many locks are examined per second; 0 means no limit, which is the default.
    #[must_use]
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = Some(per_second).filter(|rate| *rate > 0);
        self
    }

    /// Also returns locks that are neither held nor waited for, as long as Redis knows of them: latches, idle
    /// semaphores, names whose last grant is less than two hours old.
    #[must_use]
    pub fn with_free(mut self) -> Self {
        self.free = true;
        self
    }

    /// Looks for more locks; returns false at the end.
    fn advance(&mut self) -> Result<bool, Error> {
        let Some(server) = self.servers.front().cloned() else { return Ok(false) };
        // First the rest of an earlier page; after the last page, the next server.
        if self.found.is_empty() {
            let Some(cursor) = self.cursor.take() else {
                self.servers.pop_front();
                self.cursor = Some(BEGINNING.to_owned());
                return Ok(true);
            };
            self.cursor = self.scan(&server, &cursor)?;
        }
        let most = self.rate.map_or(BATCH, |rate| BATCH.min(rate as usize));
        let batch: Vec<String> = self.found.drain(..most.min(self.found.len())).collect();
        if !batch.is_empty() {
            let inspections = self.inspect(&server, &batch)?;
            self.looked += batch.len() as u64;
            let free = self.free;
            let is_shown = |it: &Inspection| free || !it.holders.is_empty() || !it.waiters.is_empty();
            self.ready.extend(inspections.into_iter().filter(is_shown));
        }
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.looked as f64 / f64::from(rate));
            self.client.pause(due.saturating_sub(self.began.elapsed()), &Wait::forever());
        }
        Ok(true)
    }

    /// Scans one page of keys; returns the cursor of the next one.
    fn scan(&mut self, server: &Server, cursor: &str) -> Result<Option<String>, Error> {
        let namespace = &self.client.shared().config.namespace;
        // What is held has a state, and what is waited for has queue positions. Of a lock's other keys this
        // pattern matches two that are rare.
        let pattern = format!("{}:{{{}", globbed(namespace), if self.free { "*" } else { "*[}s]" });
        let scan = command(&["SCAN", cursor, "MATCH", &pattern, "COUNT", PAGE]);
        let answers = self.client.exchange(server, &[scan]).inspect_err(|_| {
            let _ = self.client.asks_where(server);
        })?;
        answers.first().map_or(Ok(()), view::answered)?;
        let items = answers.first().map(list).unwrap_or_default();
        for key in items.get(1).map(list).unwrap_or_default() {
            let key = text(Some(key)).unwrap_or_default();
            // In keys, names are escaped so that they contain no brace.
            let (state, suffix) = key.split_at(key.find('}').map_or(0, |end| end + 1));
            // (After `:at`, the lock belongs to a user-chosen key, which has another name.)
            if suffix.starts_with(":at") || !self.free && !matches!(suffix, "" | ":positions") {
                continue;
            }
            if let Some(name) = names::of_state(namespace, state)
                && self.seen.insert(name.clone())
            {
                self.found.push_back(name);
            }
        }
        Ok(text(items.first()).filter(|next| next != BEGINNING))
    }

    /// Examines these names. For each of them, this stops at the first page that has anything on it.
    fn inspect(&mut self, server: &Server, names: &[String]) -> Result<Vec<Inspection>, Error> {
        let namespace = &self.client.shared().config.namespace;
        let keys = names.iter().map(|name| Names::new(namespace, name));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let keys_of = keys.iter().map(Names::key);
        let questions: Vec<_> =
            keys_of.flat_map(|key| [command(&["TYPE", key]), command(&["HGET", key, "kind"])]).collect();
        let answers = self.client.exchange(server, &questions)?;
        for (name, answers) in names.iter().zip(answers.chunks(2)) {
            for answer in answers {
                match answer {
                    Value::ServerError(e) if is_elsewhere(e) => drop(self.seen.remove(name)),
                    answer => view::answered(answer)?,
                }
            }
        }
        let (mut inspections, mut lookups) = (Vec::new(), Vec::new());
        for (names, it) in keys.iter().zip(answers.chunks(2)) {
            let (view, kind) = view::of(&text(it.first()).unwrap_or_default(), text(it.get(1)));
            lookups.extend(view.into_iter().flat_map(|view| view.lookups(inspections.len(), names, false)));
            inspections.push(Inspection::of(names.name(), kind));
        }
        for (of, e) in Lookup::ask_all(&self.client, server, lookups, &mut inspections)? {
            let name = &inspections[of].name;
            match is_elsewhere(&e) {
                true => drop(self.seen.remove(name)),
                // The key may have become something else since.
                false => view::answered(&Value::ServerError(e)).map_err(|e| e.about(name))?,
            }
        }
        // A name that has moved is examined once more, at the primary that has it now: only that is returned.
        let all = inspections.len();
        inspections.retain(|found| self.seen.contains(&found.name));
        if inspections.len() < all && self.client.asks_where(server) {
            self.queue_servers();
        }
        Ok(inspections)
    }
}

impl Iterator for Listing {
    type Item = Result<Inspection, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.servers.clear();
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// Whether the slot has moved, or is moving, to another primary.
fn is_elsewhere(e: &ServerError) -> bool {
    matches!(e.code(), "MOVED" | "ASK" | "TRYAGAIN")
}

/// Escapes a text, so that `MATCH` matches it literally.
fn globbed(text: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}
