-- The beginning of every script.
--
-- KEYS, all in one slot, in this order for every operation:
--   1 the kind's state   2 :queue  zset owner -> class * 2^50 + arrival
--   3 :positions hash owner -> queue position
--   4 :fence  the lock's last grant number   5 :tombstones  zset owner -> end of its tombstone
--   6 :conditions  zset of the waiters for a condition's signal
-- ARGV 1 owner  2 lease ms  3 channel prefix  4 waiter timeout ms  5... the operation's own
local K, F, call = KEYS, ARGV, redis.call

-- The rule of this kind of lock. Created with the fields that the fast paths need.
local kind = {try_acquire = false, release = false}
