//! No script stops the server for long, however many hold, wait or have lapsed: each does a bounded piece of what
//! is to be done and leaves the rest to the next. Straight against a server, below the client.

#[path = "support/rig.rs"]
mod rig;

#[path = "lua_bounded/many.rs"]
mod many;

#[path = "lua_bounded/conditions.rs"]
mod conditions;
#[path = "lua_bounded/meetings.rs"]
mod meetings;
#[path = "lua_bounded/queue.rs"]
mod queue;
#[path = "lua_bounded/read_write.rs"]
mod read_write;
#[path = "lua_bounded/semaphore.rs"]
mod semaphore;
#[path = "lua_bounded/stock.rs"]
mod stock;
