//! No script stops the server for long, however many hold, wait or have lapsed: each does a bounded piece of what
//! is to be done and leaves the rest to the next. Straight against a server, below the client.

mod many;

mod conditions;
mod inventory;
mod meetings;
mod queue;
mod read_write;
mod semaphore;
