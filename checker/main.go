// Checks histories of locks and other synchronizers with Porcupine, a checker of linearizability that is not ours: see
// docs/design/check-it-yourself.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// How many steps are shown before the one that is impossible.
const shown = 6

// verdict is what became of one object of a history.
type verdict struct {
	object string
	kind   string
	steps  int
	result porcupine.CheckResult
	// Steps that were possible, and then the one that was not.
	why []string
}

// check checks each object of a history by itself.
func check(from io.Reader, timeout time.Duration) ([]verdict, error) {
	history, err := Read(from)
	if err != nil {
		return nil, err
	}
	steps, err := history.Steps()
	if err != nil {
		return nil, err
	}
	var verdicts []verdict
	for name, of := range steps {
		object := history.objects[name]
		model, err := modelOf(object)
		if err != nil {
			return nil, err
		}
		it := verdict{object: name, kind: object.Kind, steps: len(of)}
		operations := operationsOf(of)
		it.result = porcupine.CheckOperationsTimeout(model, operations, timeout)
		if it.result == porcupine.Illegal {
			it.why = explain(model, operations, timeout)
		}
		verdicts = append(verdicts, it)
	}
	sort.Slice(verdicts, func(a, b int) bool { return verdicts[a].object < verdicts[b].object })
	return verdicts, nil
}

func operationsOf(steps []step) []porcupine.Operation {
	var operations []porcupine.Operation
	for _, it := range steps {
		operations = append(operations, porcupine.Operation{Input: it.input, Call: it.from, Return: it.until})
	}
	return operations
}

// explain returns the end of the longest order that is possible, the earliest of several, and the first step that is
// not in it.
func explain(model porcupine.Model, operations []porcupine.Operation, timeout time.Duration) []string {
	_, info := porcupine.CheckOperationsVerbose(model, operations, timeout)
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, partial := range partition {
			n := len(partial)
			if n > len(longest) || n > 0 && n == len(longest) && partial[n-1].Return < longest[n-1].Return {
				longest = partial
			}
		}
	}
	within := map[interface{}]bool{}
	var why []string
	for i, it := range longest {
		within[it.Input] = true
		if i >= len(longest)-shown {
			why = append(why, "possible: "+describe(it))
		}
	}
	first := porcupine.Operation{Return: forever}
	for _, it := range operations {
		if !within[it.Input] && it.Return <= first.Return {
			first = it
		}
	}
	return append(why, "impossible then: "+describe(first))
}

func describe(it porcupine.Operation) string {
	until := "…"
	if it.Return != forever {
		until = fmt.Sprint(it.Return)
	}
	return fmt.Sprintf("[%d, %s] %s", it.Call, until, it.Input)
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each object of a history")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: checker [-timeout 1m] history.jsonl ...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	failed := 0
	for _, path := range flag.Args() {
		failed += checkFile(path, *timeout)
	}
	if failed > 0 {
		fmt.Printf("FAILED: %d\n", failed)
		os.Exit(1)
	}
}

// checkFile reports on one history, by kind, and returns how much of it failed.
func checkFile(path string, timeout time.Duration) int {
	file, err := os.Open(path)
	var verdicts []verdict
	began := time.Now()
	if err == nil {
		defer file.Close()
		verdicts, err = check(file, timeout)
	}
	if err == nil && len(verdicts) == 0 {
		err = fmt.Errorf("nothing happens in it")
	}
	if err != nil {
		fmt.Printf("%s: %v\n", path, err)
		return 1
	}
	objects, steps, failed := map[string]int{}, map[string]int{}, 0
	for _, it := range verdicts {
		objects[it.kind]++
		steps[it.kind] += it.steps
		switch it.result {
		case porcupine.Illegal:
			fmt.Printf("%s: VIOLATION: %s %q is not linearizable\n", path, it.kind, it.object)
			for _, why := range it.why {
				fmt.Printf("    %s\n", why)
			}
			failed++
		case porcupine.Unknown:
			fmt.Printf("%s: TIMED OUT: %s %q was not decided within %s\n", path, it.kind, it.object, timeout)
			failed++
		}
	}
	var kinds []string
	for kind := range objects {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	fmt.Printf("%s: %d objects, %d of them failed, in %.1f s:", path, len(verdicts), failed, time.Since(began).Seconds())
	for _, kind := range kinds {
		fmt.Printf(" %s %d (%d steps)", kind, objects[kind], steps[kind])
	}
	fmt.Println()
	return failed
}
