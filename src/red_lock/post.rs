//! Requests to all servers, written before one is waited for.

use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::posted::Posted;

/// Makes `post` write the request of each: first to all that have a connection by `began`; then to the
/// others, whose connections are being opened meanwhile, by `deadline`.
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
