-- update: updates a kind's state on behalf of its users (a number of permits, a count), and admits the
-- waiters that may be admitted now. Done once per owner id, which here is that of a request.
--
-- ARGV 5 what   6... the rule's own
-- ->  what kind.update() returned: a list; if it was made before, what it returns for 'again'
--@ parts
kind.load('')
if has_tombstone(F[1]) then
  -- Written again, so that a WAIT behind a second copy waits for the first one's writes, too.
  tombstone(F[1])
  return kind.update('again')
end
local answer = kind.update(F[5], F[6], F[7])
tombstone(F[1])
admit_waiters()
return answer
