// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	releaseLimit     = 5 * time.Second // for which a release is tried at most
	lostReleaseLimit = time.Second     // the same, of a lease that is lost
	firstPause       = 50 * time.Millisecond
	longestPause     = time.Second
	firstTryAgain    = 20 * time.Millisecond // where the server does not wait: half as much more each time, up to the longest pause
	probedAfter      = time.Second           // that a connection has rested
)

// errNotFree is an answer, and never the program's.
var errNotFree = &Error{Class: Busy, Message: "not free"}

// acquire waits until the lease is held, on a connection that is not the heartbeat's.  Otherwise it
// gives back what may have been granted.
func (k *kept) acquire(ctx context.Context) (err error) {
	c := k.client
	wait, timeout := k.options.Wait, k.options.ConnectTimeout
	// until a server was reached; then without limit, or until the wait is over and the server has had its time to answer
	last := k.began + timeout
	var l *link
	mayBeHeld, again := false, firstTryAgain
	defer func() {
		if err == nil {
			return
		}
		if l != nil {
			l.close(false)
		}
		var busyUntil time.Duration
		if mayBeHeld {
			limit := releaseLimit
			if Is(err, Unavailable) {
				limit = time.Second
			}
			if !k.giveBack(Now() + limit) {
				busyUntil = Now() + k.options.TTL
			}
		}
		c.mutex.Lock()
		c.unclaim(k, busyUntil)
		c.mutex.Unlock()
	}()

	// attempt makes calls until one fails.
	attempt := func() error {
		if l != nil && Now()-l.restsSince > probedAfter {
			// its network may be gone, and an acquire may wait for ever
			if _, _, err := c.ask(ctx, l, Now()+timeout/3, isAlive); err != nil {
				l = nil
				return err
			}
		}
		if l == nil {
			var err error
			if l, err = c.open(ctx, earlier(last, Now()+timeout/3)); err != nil {
				return err
			}
		}
		last = forever
		if wait >= 0 {
			last = k.began + wait + timeout
		}
		for {
			left := wait
			if wait >= 0 {
				if left = k.began + wait - Now(); left < 0 {
					left = 0
				}
			}
			tokens, sent, err := k.ask(ctx, l, last, left)
			err = c.isThere(err)
			// the last answer counts, as all requests are one
			mayBeHeld = err != errNotFree && !Is(err, Busy) && (mayBeHeld || !Is(err, Misuse))
			if err == errNotFree && l.called && (wait < 0 || left > 0) {
				next := Now() + jitter(again)
				if wait >= 0 {
					next = earlier(next, k.began+wait)
				}
				if err := sleep(ctx, next); err != nil {
					return err
				}
				again = earlier(again*3/2, longestPause)
				continue
			}
			if err == errNotFree {
				return &Error{Class: Busy, Message: fmt.Sprintf("%s not free within %v", strings.Join(k.names, ", "), wait)}
			}
			if err != nil {
				l = nil
				return err
			}
			k.tokens = tokens
			if Now()-sent > k.options.TTL/3 {
				// when was it granted?
				var answer interface{}
				answer, sent, err = c.ask(ctx, l, Now()+k.options.TTL/3, "dlock_renew_many", k.names, c.owner, k.options.TTL, tokens)
				if err != nil {
					l = nil
					return err
				}
				if names, _ := answer.([]string); !k.isDone(setOf(names)) {
					continue // it is over: go on waiting
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if k.hold(l, sent+k.options.TTL) {
				return nil
			}
			// this took too long: the same request again moves the deadline.  Or the client is closed, which ends the next one.
		}
	}

	var before error
	for pause := firstPause; ; {
		l = c.takeSpare()
		isSpare := l != nil
		err = attempt()
		if !Is(err, Unavailable) {
			if Is(err, Busy) && l != nil {
				c.giveBackLink(l)
				l = nil
			}
			return err
		}
		before = reason(err, before)
		if isSpare && !isAnswer(err) {
			continue // it may have been closed meanwhile
		}
		if Now()+pause >= last {
			return before
		}
		if err := sleep(ctx, Now()+pause); err != nil {
			return err
		}
		pause = c.nextPause(pause)
	}
}

// isThere notes that dlock has answered an acquire; if it is not there any more, since somebody replaces
// plain/dlock.sql by the extension, the error is one after which to try again.
func (c *Client) isThere(err error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var e *Error
	isOurs := errors.As(err, &e)
	c.wasThere = c.wasThere || err == nil || isOurs && (e == errNotFree || strings.HasPrefix(e.SQLState, "55"))
	if c.wasThere && isOurs && (e.SQLState == "42883" || e.SQLState == "42P01" || e.SQLState == "3F000" ||
		// a call that has waited for so long that the schema is another's
		e.SQLState == "42501" && strings.Contains(e.Message, "dlock_private")) {
		e.Class = Unavailable
	}
	return err
}

// nextPause is twice as long, but not while the pool of the sql.DB has idle connections, which may
// all have been closed by a server that has restarted.
func (c *Client) nextPause(pause time.Duration) time.Duration {
	if c.db.Stats().Idle > 0 {
		return pause
	}
	return earlier(2*pause, longestPause)
}

// ask asks for the lease once: its tokens, or errNotFree.
func (k *kept) ask(ctx context.Context, l *link, end, wait time.Duration) ([]int64, time.Duration, error) {
	o := &k.options
	function, args := "dlock_acquire", []interface{}{k.names[0], k.client.owner, o.TTL, wait, k.request}
	switch {
	case len(o.Names) > 0:
		function, args[0] = "dlock_acquire_all", k.names
	case o.Permits != 0:
		function, args = "dlock_acquire_permit", []interface{}{k.names[0], k.client.owner, o.TTL, o.Permits, wait, k.request}
	case o.Shared:
		function = "dlock_acquire_shared"
	}
	answer, sent, err := k.client.ask(ctx, l, end, function, args...)
	tokens, _ := answer.([]int64)
	if err == nil && tokens == nil {
		err = errNotFree
	}
	return tokens, sent, err
}

// hold says that the lease is held, unless its deadline is too near, or the client is closed.
func (k *kept) hold(l *link, deadline time.Duration) bool {
	c := k.client
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := Now()
	if now >= deadline-k.margin || c.isClosed {
		return false
	}
	k.state, k.deadline, k.since, k.keepUntil = held, deadline, now, now+k.options.KeepAtLeast
	k.atMost = mostNames
	c.leases[k] = true
	c.adopt(l)
	k.tell(EventAcquired, now-k.began)
	c.wakeUp()
	return true
}

// giveBack gives back what an acquire that was given up may have been granted; it says whether that was answered.
func (k *kept) giveBack(end time.Duration) bool {
	c := k.client
	ctx := context.Background()
	l, err := c.open(ctx, end)
	if err != nil {
		return false // it ends at its deadline
	}
	args := []interface{}{k.names, c.owner}
	if !c.isOfOne || !c.ownerIsOurs {
		// the owner may have other holds: repeating the request id finds this one's, or takes one
		// more
		tokens, _, err := k.ask(ctx, l, end, 0)
		if err != nil {
			if err == errNotFree {
				c.giveBackLink(l)
			}
			return err == errNotFree
		}
		args = append(args, tokens)
	}
	if _, _, err := c.ask(ctx, l, end, "dlock_release_many", args...); err != nil {
		return false
	}
	c.giveBackLink(l)
	return true
}

func (c *Client) giveBackLink(l *link) {
	c.mutex.Lock()
	c.keepSpare(l)
	c.mutex.Unlock()
}
