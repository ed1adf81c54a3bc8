-- change: an update of a kind's state by its users (a number of permits, a count); waiters that may be
-- admitted now are. Done once per owner id, which is a request's here.
--
-- ARGV 5 what   6... the rule's own
-- ->  what kind.update() returned: a list; if done before, what it returns for 'again'
--@ parts
kind.load('')
if has_tombstone(F[1]) then return kind.update('again') end
local answer = kind.update(F[5], F[6], F[7])
tombstone(F[1])
admit_waiters()
return answer
