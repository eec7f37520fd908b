// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"sync"
	"time"
)

// Now is the clock of all deadlines: nobody sets it, and it counts the time that the machine was
// suspended, which time.Since() does not.  On Linux it is CLOCK_BOOTTIME.  Elsewhere it is the larger
// of what the monotonic clock and the time of day say.
func Now() time.Duration {
	if now, isThere := bootTime(); isThere {
		return now
	}
	now := time.Now()
	clock.Lock()
	defer clock.Unlock()
	return clock.look(now.Sub(started), now.Round(0).Sub(started.Round(0))) // Round(0): by the time of day
}

var started = time.Now()

var clock struct {
	sync.Mutex
	twoClocks
}

// longestNap is how often the clock has to be looked at while a lease is held: timers do not count a
// suspension, and a time of day that is set back hides one.
const longestNap = time.Second

// leastJump is how far the time of day has to run ahead between two looks to count: less is a time
// service that corrects it.
const leastJump = 20 * time.Millisecond

// twoClocks adds to the monotonic clock what it has missed.  A time of day that is wrong can only
// make more time pass, and so only shorten a lease.
type twoClocks struct{ monotonic, day, missed time.Duration }

// look is told what both clocks say now, and says what time it is.
func (c *twoClocks) look(monotonic, day time.Duration) time.Duration {
	if ahead := (day - c.day) - (monotonic - c.monotonic); ahead >= leastJump {
		c.missed += ahead
	}
	c.monotonic, c.day = monotonic, day
	return monotonic + c.missed
}
