// The heartbeat of a client: one goroutine that renews and releases all leases on one connection, one
// call after the other, and tells which are lost.  It runs while there are leases.
//
// It never waits for the program, and for a driver only as long as it may.
//
// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"sort"
	"time"
)

// mostNames go in one call.
const mostNames = 1000

// job is a call for several leases.
type job struct {
	leases []*kept
	// renews is the new TTL; 0: the call releases at once
	renews time.Duration
	// leaves: these are releases; with a TTL, one that has effect only then
	leaves bool
}

// wakeUp lets the heartbeat look again, or starts it; the caller has the mutex.
func (c *Client) wakeUp() {
	if c.stopped == nil {
		c.stopped = make(chan struct{})
		go c.keep()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Client) keep() {
	for {
		c.mutex.Lock()
		c.look()
		j, until := c.next()
		if j == nil && until == forever {
			c.rest()
			close(c.stopped)
			c.stopped = nil
			c.mutex.Unlock()
			return
		}
		c.mutex.Unlock()
		if j == nil {
			c.await(nil, func() time.Duration { return until })
			continue
		}
		answer, sent, isSent, err := c.do(j)
		c.mutex.Lock()
		c.look()
		c.wasARenewal = !j.leaves
		if err == nil {
			c.pause = firstPause
			c.succeed(j, answer, sent)
		} else {
			c.fail(j, isSent, err)
		}
		c.mutex.Unlock()
	}
}

// look tells which leases are lost, and when the next one will be; the caller has the mutex.
func (c *Client) look() time.Duration {
	next := forever
	for k := range c.leases {
		if k.look(); k.state == held {
			next = earlier(next, k.deadline-k.margin)
		}
	}
	return next
}

// await waits for an outcome until end(), which is asked again whenever the leases have changed, and tells meanwhile which
// leases are lost.  Without outcomes it also ends when they have changed.
func (c *Client) await(outcomes <-chan outcome, end func() time.Duration) (o outcome, isThere bool) {
	for {
		c.mutex.Lock()
		next := earlier(c.look(), end())
		c.mutex.Unlock()
		timer := time.NewTimer(earlier(next-Now(), longestNap))
		select {
		case o = <-outcomes:
			timer.Stop()
			return o, true
		case <-c.wake:
			if outcomes == nil {
				timer.Stop()
				return o, false
			}
		case <-timer.C:
		}
		timer.Stop()
		c.mutex.Lock()
		isOver := Now() >= end()
		c.mutex.Unlock()
		if isOver {
			select {
			case o = <-outcomes:
				return o, true
			default:
				return o, false
			}
		}
	}
}

// next is what to do now; or when, forever if there are neither leases nor releases.  The caller has the mutex.
func (c *Client) next() (*job, time.Duration) {
	now := Now()
	left := c.leaving[:0]
	for _, k := range c.leaving {
		select {
		case <-k.left:
		default:
			left = append(left, k)
		}
	}
	c.leaving = left
	if now < c.notBefore && len(c.leases)+len(c.leaving) > 0 {
		return nil, c.notBefore
	}
	renewal, renewAt := c.nextRenewal(now)
	release, releaseAt := c.nextRelease(now)
	switch {
	case release != nil && (renewal == nil || c.wasARenewal):
		return release, 0
	case renewal != nil:
		return renewal, 0
	}
	return nil, earlier(renewAt, releaseAt)
}

// nextRenewal takes the first of the leases that are due, and all that may go with it; or says when one is due.
func (c *Client) nextRenewal(now time.Duration) (*job, time.Duration) {
	var first *kept
	next := forever
	for k := range c.leases {
		due := k.due()
		if k.atMost == 1 && due < c.aloneAfter {
			due = c.aloneAfter
		}
		if due > now {
			next = earlier(next, due)
			continue
		}
		if first == nil || k.isBefore(first) {
			first = k
		}
	}
	if first == nil {
		return nil, next
	}
	ttl := first.options.TTL
	var leases []*kept
	for k := range c.leases {
		if k.options.TTL == ttl && k.atMost == first.atMost && k.due() <= now+ttl/6 {
			leases = append(leases, k)
		}
	}
	sort.Slice(leases, func(a, b int) bool { return leases[a].isBefore(leases[b]) })
	return &job{leases: cut(leases), renews: ttl}, 0
}

// isBefore says which renewal is first: of those that have failed, the one that did so longest ago, and after all others; else
// the one that ends first.
func (k *kept) isBefore(other *kept) bool {
	hasFailed, hasOtherFailed := k.atMost < mostNames, other.atMost < mostNames
	switch {
	case hasFailed != hasOtherFailed:
		return hasOtherFailed
	case hasFailed && k.failed != other.failed:
		return k.failed < other.failed
	}
	return k.deadline < other.deadline
}

// due is when a third of the TTL has passed since the last renewal was sent.
func (k *kept) due() time.Duration { return k.deadline - k.options.TTL*2/3 }

// cut takes as many leases as may go in one call.
func cut(leases []*kept) []*kept {
	names := 0
	for i, k := range leases {
		if names += len(k.names); i == k.atMost || i > 0 && names > mostNames {
			return leases[:i]
		}
	}
	return leases
}

// nextRelease takes the oldest release, and all that may go with it.
func (c *Client) nextRelease(now time.Duration) (*job, time.Duration) {
	var leases []*kept
	next := forever
	for _, k := range c.leaving {
		switch {
		case k.atMost == 1 && now < c.aloneAfter:
			next = earlier(next, c.aloneAfter)
		case k.keeps(now) > 0:
			if len(leases) == 0 {
				return &job{leases: []*kept{k}, renews: k.keeps(now), leaves: true}, 0
			}
		case len(leases) == 0 || k.atMost == leases[0].atMost:
			leases = append(leases, k)
		}
	}
	if len(leases) == 0 {
		return nil, next
	}
	return &job{leases: cut(leases), leaves: true}, 0
}

// keeps is how much later a lease that the program has released is given back.
func (k *kept) keeps(now time.Duration) time.Duration {
	left := k.keepUntil - now
	if k.wasLost || left <= 0 {
		return 0
	}
	if !k.client.ownerIsOurs && left < k.options.TTL {
		left = k.options.TTL // others with this owner may believe for that long that they hold it
	}
	return left
}

// limit is until when an attempt may take that began at a time: a connection that is silent for longer
// is given up.  The caller has the mutex.
func (c *Client) limit(j *job, began time.Duration) time.Duration {
	shortest, end := j.leases[0].options.TTL, forever
	for k := range c.leases {
		shortest = earlier(shortest, k.options.TTL)
	}
	for _, k := range j.leases {
		shortest = earlier(shortest, k.options.TTL)
		if !j.leaves && k.state == held {
			end = earlier(end, k.deadline-k.margin)
		}
	}
	silence := shortest / 4
	if c.isOfOne {
		silence = shortest / 3
	}
	if len(c.leaving) > 0 {
		silence = earlier(silence, releaseLimit/2) // so that a release has time for another connection
	}
	return earlier(end, began+silence)
}

// do makes the call of a job, on a new connection if need be.
func (c *Client) do(j *job) (done map[string]bool, sent time.Duration, isSent bool, err error) {
	ctx := context.Background()
	began := Now()
	end := func() time.Duration { return c.limit(j, began) }
	c.mutex.Lock()
	l := c.link
	c.mutex.Unlock()
	if l == nil {
		outcomes, cancel := c.connect(ctx)
		o, isThere := c.await(outcomes, end)
		cancel()
		if err = c.connected(ctx, o, isThere); err != nil {
			return nil, 0, false, err
		}
		c.mutex.Lock()
		c.adopt(o.link) // an acquire may have left its own meanwhile
		l = c.link
		c.mutex.Unlock()
	}
	var names []string
	var tokens []int64
	for _, k := range j.leases {
		names = append(names, k.names...)
		tokens = append(tokens, k.tokens...)
	}
	function, args := "dlock_release_many", []interface{}{names, c.owner, tokens}
	if j.renews > 0 {
		function, args = "dlock_renew_many", []interface{}{names, c.owner, j.renews, tokens}
		if j.leaves {
			function = leave
		}
	}
	outcomes, cancel := l.send(ctx, function, args)
	o, isThere := c.await(outcomes, end)
	cancel()
	if err = c.answered(ctx, l, o, isThere); err != nil {
		c.mutex.Lock()
		if c.link = nil; !isThere {
			c.closeSpare() // which is likely to be silent, too
		}
		c.mutex.Unlock()
		return nil, 0, true, err
	}
	answer, _ := o.answer.([]string)
	return setOf(answer), o.sent, true, nil
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// succeed tells the leases of a job what was answered; the caller has the mutex.  An answer is for a lease
// and its tokens, which never change; if its release has begun meanwhile, it is not lost.
func (c *Client) succeed(j *job, done map[string]bool, sent time.Duration) {
	now := Now()
	if j.leaves {
		isOf := make(map[*kept]bool)
		for _, k := range j.leases {
			isOf[k] = true
		}
		left := c.leaving[:0]
		for _, k := range c.leaving {
			if !isOf[k] {
				left = append(left, k)
			}
		}
		c.leaving = left
		if len(c.leases)+len(c.leaving) == 0 {
			c.rest() // before the program goes on
		}
		for _, k := range j.leases {
			var busyUntil time.Duration
			if j.renews > 0 {
				busyUntil = sent + j.renews // by the owner of the client's next lease, too
			}
			k.finish(k.isDone(done), busyUntil)
		}
		return
	}
	for _, k := range j.leases {
		switch {
		case k.state != held:
		case k.isDone(done):
			k.deadline, k.cause = sent+j.renews, nil
			k.atMost = mostNames
			k.tell(EventRenewed, now-sent)
		default:
			k.lose(nil)
		}
	}
}

// fail tries a job again, in halves; the caller has the mutex.
func (c *Client) fail(j *job, isSent bool, err error) {
	now := Now()
	for _, k := range j.leases {
		if !j.leaves && k.state == held {
			k.cause = reason(err, k.cause)
			k.tell(EventLate, k.deadline-k.margin-now)
		}
		if !isSent {
			continue
		}
		if j.leaves && (k.wasLost || j.renews == 0 && !c.ownerIsOurs) {
			// it may have been done; a second one would take another hold of the owner
			k.giveUp()
		}
		k.atMost, k.failed = (len(j.leases)+1)/2, now
	}
	isAnswered := isSent && isAnswer(err)
	if isAnswered && len(j.leases) > 1 {
		return
	}
	if c.aloneAfter = now + c.pause; !isAnswered {
		c.notBefore = c.aloneAfter
	}
	c.pause = c.nextPause(c.pause)
}

// rest lets the connection go when there is nothing to renew; the caller has the mutex.  The next
// acquire has it, and then the heartbeat again.
func (c *Client) rest() {
	if c.link != nil {
		c.keepSpare(c.link)
		c.link = nil
	}
}
