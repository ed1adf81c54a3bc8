-- change: what a kind's user may do to its state (a number of permits, a count) is done, and whoever may
-- come in now does. Done once by owner id, which is a request's here.
--
-- ARGV 5 what   6... the rule's own
-- ->  what kind.change() returned: a list; done before, what it returns for 'again'
--@ prelude clock alien queue join kind
kind.look('')
if barred(F[1]) then return kind.change('again') end
local answer = kind.change(F[5], F[6], F[7])
bar(F[1])
settle()
return answer
