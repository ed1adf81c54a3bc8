-- The parts are composed into one script (src/script.rs), so each sees what comes before it.
std = 'lua51'
max_line_length = 120
read_globals = {'KEYS', 'ARGV', 'redis', 'cmsgpack', 'K', 'F', 'call', 'now', 'number', 'alien', 'drop', 'waiting', 'settle', 'ask', 'busy', 'enqueue', 'silent', 'tell', 'fmt'}
globals = {'kind'}
-- A part's locals are used by the parts that come after it.
files['lua/lib/*.lua'] = {ignore = {'211', '221', '231'}}
