//! Requests to all servers, written before any reply is waited for.

use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::posted::Posted;

/// Writes a request for each item with `post`: first for those that get a connection by `began`; then, by
/// `deadline`, for the others, whose connections are being opened in the meantime.
pub(super) fn to_all<T>(
    all: Vec<T>,
    began: Moment,
    deadline: Moment,
    post: impl Fn(&T, Moment) -> Result<Posted, Failure>,
) -> Vec<(T, Result<Posted, Failure>)> {
    let first: Vec<_> = all
        .into_iter()
        .map(|one| {
            let posted = post(&one, began);
            (one, posted)
        })
        .collect();
    first
        .into_iter()
        .map(|(one, posted)| {
            let posted = posted.or_else(|_| post(&one, deadline));
            (one, posted)
        })
        .collect()
}
