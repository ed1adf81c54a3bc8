-- The parts are composed into one script (src/script.rs), so each sees what comes before it.
std = 'lua51'
max_line_length = 120
read_globals = {'KEYS', 'ARGV', 'redis', 'cmsgpack'}

-- A kind's rule: what docs/design/writing-a-kind.md says it is given, and no more.
local rule = {globals = {'kind'}, read_globals = {'K', 'F', 'call', 'now', 'number', 'foreign_key', 'fetch',
  'fmt', 'waiting', 'silent', 'dead', 'deaf', 'drop', 'tell', 'their_turn', 'announce_free'}}
files['lua/*.lua'] = rule
files['examples/*.lua'] = rule
files['examples/own-once/src/*.lua'] = rule
files['partitions/src/*.lua'] = rule

-- The operations see the queue too; and a part's locals are for the parts that come after it.
files['lua/lib/*.lua'] = {
  globals = {'kind', 'rest', 'others_wait'},
  read_globals = {'K', 'F', 'call', 'now', 'number', 'foreign_key', 'fetch', 'fmt', 'waiting', 'unpacked', 'silent', 'steadily', 'dead', 'drop', 'tombstone',
    'admit_waiters', 'inbox', 'left_to', 'let_in', 'keeps', 'CLASS', 'STEP', 'lifetime',
    'has_tombstone', 'last', 'carried', 'try', 'share', 'join', 'tell', 'sharded', 'deaf', 'enqueue',
    'signal', 'forget_signalled', 'pass_on', 'wanted', 'has_waiters', 'pass_lapsed', 'after', 'carry_on', 'behind_all', 'ranked', 'scored', 'arrived', 'place', 'remain', 'busy', 'stay', 'behind', 'is_inside'},
  ignore = {'211', '221', '231'},
}

-- What stands in its functions is put there.
files['lua/lib/all.lua'] = {ignore = {'212'}}
-- What stands before a part when it runs (src/recipes/rate_limiter.rs, src/recipes/fenced.rs).
files['lua/rate_limiter/begin.lua'] = {ignore = {'211'}}
for _, script in ipairs({'acquire', 'delete'}) do
  files['lua/rate_limiter/' .. script .. '.lua'] = {read_globals = {'K', 'call', 'kind', 'fetch', 'foreign_key'}}
end
files['lua/fenced/look.lua'] = {ignore = {'211'}}
files['lua/fenced/admit.lua'] = {read_globals = {'key', 'state', 'run'}}
files['lua/fenced/whole.lua'] = {read_globals = {'key', 'state'}}
