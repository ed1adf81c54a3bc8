// A worker of tests/faults/history/peers.rs: threads that take locks by redsync and write down what they got.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

var journal *os.File

func main() {
	port, log, process := os.Args[1], os.Args[2], os.Args[3]
	seed, err := strconv.ParseUint(os.Args[4], 10, 64)
	check(err)
	journal, err = os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	timeout := 450 * time.Millisecond
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + port, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolSize: 16,
	})
	locks := redsync.New(goredis.NewPool(client))
	var stopped atomic.Bool
	var threads sync.WaitGroup
	for thread := int64(1); thread <= 4; thread++ {
		threads.Go(func() {
			dice := rand.New(rand.NewSource(int64(seed) + thread))
			for number := 1; !stopped.Load(); number++ {
				play(locks, fmt.Sprintf("%s.%d.%d", process, thread, number), dice)
			}
		})
	}
	os.Stdin.Read(make([]byte, 1))
	stopped.Store(true)
	threads.Wait()
}

func play(locks *redsync.Redsync, who string, dice *rand.Rand) {
	name := string("aabc"[dice.Intn(4)])
	// Its other settings are its own: as many tries as fit into the wait, every 50 to 250 ms.
	lock := locks.NewMutex(name, redsync.WithExpiry(900*time.Millisecond), redsync.WithTries(1000))
	wait, end := context.WithTimeout(context.Background(), 2*time.Second)
	defer end()
	note(who, "called "+name+" TryLockFor")
	if err := lock.LockContext(wait); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			note(who, "ended none")
			return
		}
		note(who, fmt.Sprintf("ended %T", err))
		time.Sleep(20 * time.Millisecond)
		return
	}
	note(who, "held 0 0")
	time.Sleep(work(dice))
	note(who, "release 0")
	ok, err := lock.Unlock()
	switch {
	case ok:
		note(who, "released ok")
	case err != nil:
		note(who, fmt.Sprintf("released %T", err))
	default:
		note(who, "released false")
	}
	time.Sleep(micros(dice, 2000))
}

func work(dice *rand.Rand) time.Duration {
	switch n := dice.Float64(); {
	case n < 0.003:
		return 900*time.Millisecond + micros(dice, 450_000)
	case n < 0.7:
		return micros(dice, 1000)
	case n < 0.85:
		return micros(dice, 10_000)
	default:
		return micros(dice, 100_000)
	}
}

func micros(dice *rand.Rand, below int) time.Duration {
	return time.Duration(dice.Intn(below)) * time.Microsecond
}

// One line by one write. The clock is the one that all processes of a machine share.
func note(who, what string) {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	_, err := fmt.Fprintf(journal, "%d %s %s\n", now.Nano()/1000, who, what)
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
