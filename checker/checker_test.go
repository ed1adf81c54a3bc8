package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What each planted violation must be, and what must be left in peace, is the name of the file.
func TestWhatIsPlantedIsFound(t *testing.T) {
	paths, _ := filepath.Glob("testdata/*.jsonl")
	kinds := map[string][2]int{}
	for _, path := range paths {
		name := filepath.Base(path)
		bad := strings.HasPrefix(name, "bad_")
		t.Run(name, func(t *testing.T) {
			it := only(t, path)
			want := porcupine.Ok
			if bad {
				want = porcupine.Illegal
			}
			if it.result != want {
				t.Fatalf("%s: %s, not %s", path, it.result, want)
			}
			count := kinds[it.kind]
			if bad {
				count[1]++
			} else {
				count[0]++
			}
			kinds[it.kind] = count
		})
	}
	for kind := range rules {
		if count := kinds[kind]; count[0] == 0 || count[1] == 0 {
			t.Errorf("%s has %d good and %d bad histories", kind, count[0], count[1])
		}
	}
}

// only checks a history of one object.
func only(t *testing.T, path string) verdict {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	verdicts, err := check(file, time.Minute)
	if err != nil || len(verdicts) != 1 {
		t.Fatalf("%s: %v %v", path, verdicts, err)
	}
	return verdicts[0]
}

func TestAViolationIsShown(t *testing.T) {
	why := strings.Join(only(t, "testdata/bad_mutex_doubled_hold.jsonl").why, "\n")
	if !strings.Contains(why, "possible: [0, 10] acquire by 1.1.1") ||
		!strings.Contains(why, "impossible then: [5, 40] acquire by 2.1.1") {
		t.Fatal(why)
	}
}

func TestATimeoutFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "many.jsonl")
	if err := os.WriteFile(path, []byte(hard()), 0o600); err != nil {
		t.Fatal(err)
	}
	if failed := checkFile(path, time.Nanosecond); failed != 1 {
		t.Fatal(failed)
	}
}

// hard returns a history that takes some time to check: all of its holds could be in any order.
func hard() string {
	text := `{"format":"redis-concurrent history","version":1,"objects":{"x":{"kind":"mutex"}}}` + "\n"
	who := func(thread int) string {
		return `,"process":1,"thread":` + string(rune('0'+thread)) + `,"round":1,"object":"x"`
	}
	for thread := 0; thread < 10; thread++ {
		text += `{"event":"call","op":"acquire","at":0` + who(thread) + "}\n"
		text += `{"event":"return","op":"acquire","at":9,"outcome":"ok","until":100` + who(thread) + "}\n"
	}
	return text
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	head := `{"format":"redis-concurrent history","version":1,"objects":{"x":{"kind":"mutex"}}}` + "\n"
	for _, text := range []string{
		"",
		strings.Replace(head, ":1,", ":2,", 1),
		head + "no JSON\n",
		head + `{"event":"called"}`,
		head + `{"event":"call","op":"acquire","object":"y"}`,
		head + `{"event":"return","op":"acquire","object":"x"}`,
		strings.Replace(head, "mutex", "mutual", 1) + `{"event":"call","op":"acquire","object":"x"}` + "\n" +
			`{"event":"return","op":"acquire","object":"x","outcome":"ok"}`,
	} {
		if _, err := check(strings.NewReader(text), time.Minute); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}
