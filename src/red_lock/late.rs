//! Replies that a majority did not wait for.

use std::sync::Arc;

use super::holding::Holding;
use super::node::Node;
use super::release::defer;
use super::vote::{Asked, Question, Vote};
use crate::engine::call::attempt::Detached;
use crate::engine::redis::exchange::Posted;
use crate::sync::thread;

/// A request whose reply another thread will read. If it is dropped, its grant, if any, is released.
struct Late {
    at: usize,
    node: Arc<Node>,
    detached: Detached,
    posted: Option<Posted>,
}

/// Reads the replies in a thread of its own, each within its timeout; the thread ends with the last one. A
/// server that says yes becomes a member like the others if the hold still exists; otherwise its grant is
/// released.
pub(super) fn spawn(questions: Vec<Question<'_>>, asked: Asked, holding: &Arc<Holding>) {
    if questions.is_empty() {
        return;
    }
    let late = |Question { at, node, attempt, posted }: Question<'_>| Late {
        at,
        node: node.clone(),
        detached: attempt.detach(),
        posted,
    };
    let late: Vec<Late> = questions.into_iter().map(late).collect();
    let holding = Arc::downgrade(holding);
    let hearing = thread::Builder::new().name("rc-late".to_owned()).spawn(move || {
        for late in late {
            let unwanted = match late.hear(&asked) {
                Some(Vote::Yes(member)) => match holding.upgrade() {
                    Some(holding) => holding.joined(member),
                    None => Some(member),
                },
                Some(Vote::RecentlyStarted(member, _)) => Some(member),
                _ => None,
            };
            if let Some(member) = unwanted {
                defer(&member);
            }
        }
    });
    if let Err(error) = hearing {
        tracing::error!(%error, "a thread for late answers could not be started");
    }
}

impl Late {
    fn hear(mut self, asked: &Asked) -> Option<Vote> {
        let attempt = self.detached.attach()?;
        let question = Question { at: self.at, node: &self.node, attempt, posted: self.posted.take() };
        Some(question.answer(asked))
    }
}
