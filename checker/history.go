package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

// The format that is read here: docs/design/check-it-yourself.md describes it.
const (
	format  = "redis-concurrent history"
	version = 1
)

// forever is the return of what may take effect at any later time.
const forever = math.MaxInt64

// Object is what the first line says of a lock, or of another synchronizer.
type Object struct {
	Kind    string `json:"kind"`
	Permits int    `json:"permits"`
	Parties int    `json:"parties"`
}

// line is any line of a history.
type line struct {
	Format  string            `json:"format"`
	Version int               `json:"version"`
	Objects map[string]Object `json:"objects"`

	Event   string `json:"event"`
	Op      string `json:"op"`
	At      int64  `json:"at"`
	Process int64  `json:"process"`
	Thread  int64  `json:"thread"`
	Round   int64  `json:"round"`
	Object  string `json:"object"`
	Mode    string `json:"mode"`
	Permits int    `json:"permits"`
	Outcome string `json:"outcome"`
	Token   uint64 `json:"token"`
	Until   int64  `json:"until"`
	Answer  string `json:"answer"`
	Parts   bool   `json:"parts"`
}

// round is one use of an object by one thread: what it called and what returned, in order.
type round struct {
	thread string
	owner  string
	object string
	lines  []line
}

// failover is a span within which replication may have lost what was granted.
type failover struct {
	from, until int64
	// Whether clients were with two primaries meanwhile.
	parts bool
}

// told says that a process learned of a loss.
type told struct {
	process int64
	object  string
	at      int64
}

// History is all that one file says.
type History struct {
	objects   map[string]Object
	rounds    []*round
	failovers []failover
	told      []told
}

// Read reads a history, and refuses what is not one.
func Read(from io.Reader) (*History, error) {
	history := &History{}
	known := map[string]*round{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<24)
	for number := 1; lines.Scan(); number++ {
		var it line
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			if it.Format != format || it.Version != version {
				return nil, fmt.Errorf("not a %s of version %d", format, version)
			}
			history.objects = it.Objects
			continue
		}
		switch it.Event {
		case "call", "return":
			if _, ok := history.objects[it.Object]; !ok {
				return nil, fmt.Errorf("line %d: the first line does not name the object %q", number, it.Object)
			}
			thread := fmt.Sprintf("%d.%d", it.Process, it.Thread)
			owner := fmt.Sprintf("%s.%d", thread, it.Round)
			if known[owner] == nil {
				known[owner] = &round{thread: thread, owner: owner, object: it.Object}
				history.rounds = append(history.rounds, known[owner])
			}
			known[owner].lines = append(known[owner].lines, it)
		case "lost":
			history.told = append(history.told, told{it.Process, it.Object, it.At})
		case "failover":
			history.failovers = append(history.failovers, failover{it.At, it.Until, it.Parts})
		default:
			return nil, fmt.Errorf("line %d: no event is called %q", number, it.Event)
		}
	}
	if lines.Err() == nil && history.objects == nil {
		return nil, fmt.Errorf("it is empty")
	}
	return history, lines.Err()
}

// call is an operation of the history: its call, and its return, unless that never came.
type call struct {
	line
	returned *line
}

func (it call) outcome() string {
	if it.returned == nil {
		return "unknown"
	}
	return it.returned.Outcome
}

// done is when its effect is over at the latest.
func (it call) done() int64 {
	if it.outcome() == "unknown" {
		return forever
	}
	return it.returned.At
}

// calls pairs what was called with what returned. In a round one thing is done after the other.
func (it *round) calls() ([]call, error) {
	var calls []call
	for i := range it.lines {
		here := &it.lines[i]
		if here.Event == "call" {
			calls = append(calls, call{line: *here})
			continue
		}
		last := len(calls) - 1
		if last < 0 || calls[last].returned != nil || calls[last].Op != here.Op {
			return nil, fmt.Errorf("round %s: the return of %s at %d has no call", it.owner, here.Op, here.At)
		}
		if here.At < calls[last].At {
			return nil, fmt.Errorf("round %s: %s returned at %d, before its call", it.owner, here.Op, here.At)
		}
		calls[last].returned = here
	}
	return calls, nil
}

// hold is what a thread had from a grant to its end.
type hold struct {
	process int64
	object  string
	// The grant's number, without the hand-offs within a process; 0 if it has none.
	grant   uint64
	granted int64
	// Until when it was promised at the least, and when it was given back.
	until int64
	ends  *call
}

// end is when its thread stopped relying on it.
func (it *hold) end() int64 {
	if it.ends != nil && it.ends.At < it.until {
		return it.ends.At
	}
	return it.until
}

// unsure says whether its thread was told, by the answer to its release, that it may not have had it to its end.
func (it *hold) unsure() bool {
	return it.ends != nil && it.ends.returned != nil && it.ends.outcome() != "ok"
}

// wasTold says whether the hold's process learned up to the limit that the hold may not have been its own.
func (h *History) wasTold(it *hold, holds []*hold, limit int64) bool {
	if it.end() > limit {
		limit = it.end()
	}
	for _, told := range h.told {
		if told.process == it.process && told.object == it.object && it.granted <= told.at && told.at <= limit {
			return true
		}
	}
	// What was handed on within a process ends once for all threads that had it.
	for _, other := range holds {
		same := other.process == it.process && it.grant > 0 && other.grant == it.grant
		if (other == it || same) && other.unsure() {
			return true
		}
	}
	return false
}

// excused says from when on a failover may have ended the hold, and whether nothing is known of it at all.
func (h *History) excused(it *hold, holds []*hold) (from int64, unknown bool) {
	from = forever
	for _, failover := range h.failovers {
		if it.end() < failover.from || failover.until < it.granted {
			continue
		}
		over := failover.parts && it.end() <= failover.until
		if !over && !h.wasTold(it, holds, failover.until) {
			continue
		}
		// One of two primaries has granted it.
		if failover.parts && it.granted >= failover.from {
			return 0, true
		}
		at := failover.from
		if it.granted > at {
			at = it.granted
		}
		if at < from {
			from = at
		}
	}
	return from, false
}

// step is an operation as the models see it, with the time within which it takes effect.
type step struct {
	input
	from, until int64
}

// Steps returns what the models are to make sense of, object by object.
func (h *History) Steps() (map[string][]step, error) {
	steps := map[string][]step{}
	ofObject := map[string][]*hold{}
	for pass := 0; pass < 2; pass++ {
		for _, round := range h.rounds {
			calls, err := round.calls()
			if err != nil {
				return nil, err
			}
			if h.objects[round.object].Kind == "barrier" {
				if pass == 1 {
					steps[round.object] = append(steps[round.object], arrivals(round, calls)...)
				}
				continue
			}
			found := holdOf(round, calls)
			if pass == 0 {
				if found != nil {
					ofObject[round.object] = append(ofObject[round.object], found)
				}
				continue
			}
			these := h.stepsOf(round, calls, found, ofObject[round.object])
			steps[round.object] = append(steps[round.object], these...)
		}
	}
	for _, of := range steps {
		sort.SliceStable(of, func(a, b int) bool { return of[a].from < of[b].from })
	}
	return steps, nil
}

// holdOf returns the hold of a round, if it had one.
func holdOf(round *round, calls []call) *hold {
	var found *hold
	depth := 0
	for i := range calls {
		it := &calls[i]
		if it.Op == "acquire" {
			// What may have been granted matters only if it is given back.
			maybe := it.outcome() == "unknown" && i+1 < len(calls)
			if it.outcome() != "ok" && !maybe {
				continue
			}
			depth++
			if found == nil {
				found = &hold{process: it.Process, object: round.object, granted: it.At, until: it.At}
			}
			if it.returned != nil {
				found.grant = it.returned.Token >> 12
				if depth == 1 {
					found.granted = it.returned.At
				}
			}
		} else if found != nil {
			depth--
			if depth == 0 {
				found.ends = it
			}
		}
		for _, promised := range []*line{&it.line, it.returned} {
			if found != nil && promised != nil && promised.Until > found.until {
				found.until = promised.Until
			}
		}
	}
	return found
}

// stepsOf returns the steps of a round with a lock, permits, or an attempt at work that is done once.
func (h *History) stepsOf(round *round, calls []call, found *hold, holds []*hold) []step {
	excused, unknown := int64(forever), false
	if found != nil {
		excused, unknown = h.excused(found, holds)
	}
	if unknown {
		return nil
	}
	var steps []step
	add := func(op string, it call, from, until int64) {
		input := input{op: op, owner: round.owner, thread: round.thread, mode: calls[0].Mode, answer: it.Answer, permits: calls[0].Permits}
		if it.returned != nil {
			input.token = it.returned.Token
			input.answer += it.returned.Answer
		}
		steps = append(steps, step{input, from, until})
	}
	// What was over before its thread could say that it had it: it may have ended at any instant after its grant.
	if found != nil && found.until == calls[0].At && (found.ends == nil || found.ends.outcome() == "lost") {
		add("acquire briefly", calls[0], calls[0].At, calls[0].done())
		return steps
	}
	for i, it := range calls {
		last := found != nil && found.ends == &calls[i]
		ok := it.outcome() == "ok" && excused == forever
		switch {
		case it.Op == "acquire" && it.outcome() == "answered":
			add("answered", it, it.At, it.done())
		case it.Op == "acquire" && (it.outcome() == "ok" || it.outcome() == "unknown" && i+1 < len(calls)):
			add("acquire", it, it.At, it.done())
		case it.Op == "release" && it.Answer != "":
			if it.outcome() == "ok" {
				add("done", it, it.At, it.done())
			} else if it.outcome() == "unknown" {
				add("perhaps done", it, it.At, forever)
			}
		case it.Op == "release" && ok:
			add("release", it, it.At, it.done())
		}
		// It ends by itself: after what was promised, or from when it may have been given back.
		if last && !ok {
			from := found.until
			if it.outcome() == "unknown" || it.outcome() == "no" {
				from = found.end()
			}
			add("expire", it, min(from, excused), forever)
		}
	}
	if found != nil && found.ends == nil {
		add("expire", calls[len(calls)-1], min(found.until, excused), forever)
	}
	return steps
}

// arrivals returns the steps of a party of a barrier: it arrives and, if it passed, passes.
func arrivals(round *round, calls []call) []step {
	var steps []step
	add := func(op string, from, until int64) {
		steps = append(steps, step{input{op: op, owner: round.owner}, from, until})
	}
	for _, it := range calls {
		switch it.outcome() {
		case "ok":
			add("arrive", it.At, it.done())
			add("pass", it.At, it.done())
		case "unknown":
			add("perhaps arrive", it.At, forever)
		default:
			// It may have come before it gave up, and has no part in a round from then on.
			add("perhaps arrive", it.At, it.done())
			add("leave", it.done()+1, it.done()+1)
		}
	}
	return steps
}
