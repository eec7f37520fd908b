// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"testing"
	"time"
)

// What a clock says, of which both are told how much they go on by.
func TestTwoClocks(t *testing.T) {
	const second, hour = time.Second, time.Hour
	for _, c := range []struct {
		what   string
		steps  [][2]time.Duration // monotonic, time of day
		passed time.Duration
	}{
		{"both go on", [][2]time.Duration{{second, second}, {second, second}}, 2 * second},
		{"a suspension", [][2]time.Duration{{second, second}, {second, hour}}, second + hour},
		{"set forward", [][2]time.Duration{{0, hour}, {second, second}}, hour + second},
		{"set back", [][2]time.Duration{{second, -hour}, {second, second}}, 2 * second},
		{"set back, then a suspension", [][2]time.Duration{{second, -hour}, {0, hour / 2}}, second + hour/2},
		{"a little ahead, again and again", [][2]time.Duration{{second, second + leastJump - 1}, {second, second + leastJump - 1}}, 2 * second},
		{"just enough ahead", [][2]time.Duration{{second, second + leastJump}}, second + leastJump},
		{"behind, again and again", [][2]time.Duration{{second, second / 2}, {second, second / 2}}, 2 * second},
		{"the time of day stands still", [][2]time.Duration{{second, 0}, {second, 0}}, 2 * second},
	} {
		clock := twoClocks{monotonic: 5, day: hour}
		before := clock.look(5, hour)
		monotonic, day, now := time.Duration(5), hour, before
		for _, step := range c.steps {
			monotonic += step[0]
			day += step[1]
			next := clock.look(monotonic, day)
			if next < now+step[0] {
				t.Errorf("%s: %v passed, but only %v were counted", c.what, step[0], next-now)
			}
			now = next
		}
		if now-before != c.passed {
			t.Errorf("%s: %v, not %v", c.what, now-before, c.passed)
		}
	}
}
