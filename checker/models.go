package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// input is what a model is told of a step.
type input struct {
	op string
	// Whose hold it is, and of which thread.
	owner, thread string
	// read or write
	mode string
	// 0 if there is none.
	token   uint64
	permits int
	answer  string
}

func (it input) String() string {
	text := fmt.Sprintf("%s by %s", it.op, it.owner)
	for name, value := range map[string]string{"mode": it.mode, "answer": it.answer} {
		if value != "" {
			text += fmt.Sprintf(", %s %s", name, value)
		}
	}
	if it.token > 0 {
		text += fmt.Sprintf(", token %d", it.token)
	}
	return text
}

// rule says whether a step is possible in a state, and in which states it may end.
type rule func(object Object, state state, it input) []state

// state is that of any object. A model uses a part of it.
type state struct {
	// Who holds it, of which thread that is, and how many times over.
	owner, thread string
	count         int
	// The last grant's.
	token uint64
	// Who shares it: readers, those with permits, parties that wait; and parties that may pass.
	shared, passing set
	// The permits in use.
	inUse int
	// What has been done, once.
	isDone bool
	answer string
}

var rules = map[string]rule{
	"mutex":      exclusive,
	"fenced":     exclusive,
	"reentrant":  exclusive,
	"once":       exclusive,
	"read_write": readWrite,
	"semaphore":  semaphore,
	"barrier":    barrier,
}

// modelOf returns the model of an object.
func modelOf(object Object) (porcupine.Model, error) {
	rule, ok := rules[object.Kind]
	if !ok {
		return porcupine.Model{}, fmt.Errorf("no kind is called %q", object.Kind)
	}
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{}} },
		Step: func(from, in, _ interface{}) []interface{} {
			var to []interface{}
			for _, it := range follow(rule, object, from.(state), in.(input)) {
				to = append(to, it)
			}
			return to
		},
		DescribeOperation: func(in, _ interface{}) string { return in.(input).String() },
	}
	return model.ToModel(), nil
}

// follow does a step: of what was held for an instant at most, both ends.
func follow(rule rule, object Object, s state, it input) []state {
	if it.op != "acquire briefly" {
		return rule(object, s, it)
	}
	var to []state
	it.op = "acquire"
	for _, held := range rule(object, s, it) {
		it.op = "expire"
		to = append(to, rule(object, held, it)...)
	}
	return to
}

var impossible []state

// takes gives the object to an owner; its token must be above all before.
func takes(object Object, s state, it input) []state {
	needed := object.Kind == "fenced" || object.Kind == "once"
	if (it.token > 0 || needed) && it.token <= s.token {
		return impossible
	}
	s.owner, s.thread, s.count = it.owner, it.thread, 1
	if it.token > 0 {
		s.token = it.token
	}
	return []state{s}
}

// leaves takes it from its owner.
func leaves(s state) []state {
	s.owner, s.thread, s.count = "", "", 0
	return []state{s}
}

// One owner at a time; where it is reentrant, several times over; where it is work, until that is done.
func exclusive(object Object, s state, it input) []state {
	isOwner := s.owner == it.owner
	switch it.op {
	case "acquire":
		if isOwner && object.Kind == "reentrant" && it.token == s.token {
			s.count++
			return []state{s}
		}
		if s.owner != "" || s.isDone {
			return impossible
		}
		return takes(object, s, it)
	case "release":
		if !isOwner {
			return impossible
		}
		if s.count > 1 {
			s.count--
			return []state{s}
		}
		return leaves(s)
	case "expire":
		if !isOwner {
			return []state{s}
		}
		return leaves(s)
	case "done", "perhaps done":
		if !isOwner && it.op == "done" {
			return impossible
		}
		if isOwner {
			s.isDone, s.answer = true, it.answer
			return leaves(s)
		}
		return []state{s}
	case "answered":
		if s.isDone && s.answer == it.answer {
			return []state{s}
		}
	}
	return impossible
}

// One writer, or any number of readers; the writer's thread may also read.
func readWrite(object Object, s state, it input) []state {
	if it.mode == "write" {
		if it.op == "acquire" && s.shared != "" {
			return impossible
		}
		return exclusive(object, s, it)
	}
	switch it.op {
	case "acquire":
		if s.owner != "" && s.thread != it.thread {
			return impossible
		}
		s.shared = s.shared.with(it.owner)
	case "release", "expire":
		if it.op == "release" && !s.shared.has(it.owner) {
			return impossible
		}
		s.shared = s.shared.without(it.owner)
	default:
		return impossible
	}
	return []state{s}
}

// No more permits in use than there are.
func semaphore(object Object, s state, it input) []state {
	permits := it.permits
	if permits == 0 {
		permits = 1
	}
	holder := fmt.Sprintf("%s*%d", it.owner, permits)
	switch it.op {
	case "acquire":
		if s.inUse+permits > object.Permits {
			return impossible
		}
		s.shared, s.inUse = s.shared.with(holder), s.inUse+permits
	case "release", "expire":
		if s.shared.has(holder) {
			s.shared, s.inUse = s.shared.without(holder), s.inUse-permits
		} else if it.op == "release" {
			return impossible
		}
	default:
		return impossible
	}
	return []state{s}
}

// Nobody passes before all parties of a round have come.
func barrier(object Object, s state, it input) []state {
	// Who did not pass has come, or not.
	const uncertain = "?"
	switch it.op {
	case "arrive":
		return []state{s.comes(object, it.owner)}
	case "perhaps arrive":
		return []state{s, s.comes(object, uncertain+it.owner)}
	case "leave":
		s.shared = s.shared.without(uncertain + it.owner)
		return []state{s}
	case "pass":
		if s.passing.has(it.owner) {
			s.passing = s.passing.without(it.owner)
			return []state{s}
		}
	}
	return impossible
}

// comes adds a party to the round, and ends the round if it is the last one.
func (s state) comes(object Object, party string) state {
	s.shared = s.shared.with(party)
	all := s.shared.members()
	if len(all) < object.Parties {
		return s
	}
	for _, it := range all {
		if it[0] != '?' {
			s.passing = s.passing.with(it)
		}
	}
	s.shared = ""
	return s
}

// set is a set of names that can be compared.
type set string

func (s set) members() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), " ")
}

func (s set) has(name string) bool {
	for _, it := range s.members() {
		if it == name {
			return true
		}
	}
	return false
}

func (s set) with(name string) set {
	all := append(s.members(), name)
	sort.Strings(all)
	return set(strings.Join(all, " "))
}

func (s set) without(name string) set {
	var rest []string
	for _, it := range s.members() {
		if it != name {
			rest = append(rest, it)
		}
	}
	return set(strings.Join(rest, " "))
}
