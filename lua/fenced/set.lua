-- set: the script of a plain write, run as a caller's script is.
--
-- KEYS 1 the resource   ARGV 1 the value
redis.call('HSET', KEYS[1], 'value', ARGV[1])
