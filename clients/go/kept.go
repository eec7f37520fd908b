// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

type state string

const (
	waiting  state = "waiting"
	held     state = "held"
	lost     state = "lost"
	released state = "released" // or never held
)

// kept is a lease as its client keeps it.
type kept struct {
	client  *Client
	options Options
	events  *events // of this lease alone
	names   []string
	request string
	margin  time.Duration
	began   time.Duration // the acquire

	// written before it is held
	tokens    []int64
	since     time.Duration // when it was acquired
	keepUntil time.Duration

	lost chan struct{} // closed when it is lost
	done chan struct{} // closed when it is lost or released

	// The client's mutex guards what follows.
	state    state
	deadline time.Duration
	cause    error // why the last renewal failed; then why it was lost
	contexts map[*int]context.CancelFunc

	// The heartbeat's, of renewals, and then of the release: in a call for at most so many leases, and
	// when such a call failed last.
	atMost int
	failed time.Duration

	// of a release
	leaveBy     time.Duration
	wasLost     bool
	isConfirmed bool
	left        chan struct{} // closed when it was answered, or given up
}

// tell calls the program's functions for events, in other goroutines.
func (k *kept) tell(kind EventKind, duration time.Duration) {
	k.client.events.tell(kind, k.names, duration)
	k.events.tell(kind, k.names, duration)
}

// Token is that of the grant; if there are several names, of the first.
func (k *kept) Token() int64 { return k.tokens[0] }

// Tokens are in the order of the names.
func (k *kept) Tokens() []int64 { return append([]int64(nil), k.tokens...) }

// Lost is closed when the lease is lost.  Check() says so no later.
func (k *kept) Lost() <-chan struct{} { return k.lost }

// Context is one that ends when the lease is lost or released.
func (k *kept) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	k.client.mutex.Lock()
	defer k.client.mutex.Unlock()
	if k.state != held {
		cancel()
		return ctx, cancel
	}
	id := new(int)
	k.contexts[id] = cancel
	return ctx, func() {
		cancel()
		k.client.mutex.Lock()
		defer k.client.mutex.Unlock()
		delete(k.contexts, id)
	}
}

// Held says whether it is held, and safely so.
func (k *kept) Held() bool { return k.Check() == nil }

// Deadline is by Now().
func (k *kept) Deadline() time.Duration {
	k.client.mutex.Lock()
	defer k.client.mutex.Unlock()
	return k.deadline
}

// Remaining is the time to the deadline; 0 if it is not held.
func (k *kept) Remaining() time.Duration {
	if !k.Held() {
		return 0
	}
	return k.Deadline() - Now()
}

// Check returns an error if the lease is lost or released.  It compares the clock first.
func (k *kept) Check() error {
	k.client.mutex.Lock()
	defer k.client.mutex.Unlock()
	k.look()
	switch k.state {
	case held:
		return nil
	case lost:
		e := &Error{Class: Lost, Message: strings.Join(k.names, ", ") + ": the lease is lost", Err: k.cause}
		if k.cause != nil {
			cause := told(k.cause)
			e.SQLState, e.Number = cause.SQLState, cause.Number
		}
		return e
	}
	return &Error{Class: Misuse, Message: "the lease is " + string(k.state)}
}

// Guard guards the lease in the program's own transaction.  If it returns an error of class Lost, roll back;
// if the transaction commits, this lease was the only holder when it did.
func (k *kept) Guard(ctx context.Context, tx interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
}) error {
	if err := k.Check(); err != nil {
		return err
	}
	for i, name := range k.names {
		verb, function := "SELECT ", "dlock_guard"
		if k.client.isMySQL {
			verb, function = "CALL ", "dlock.guard"
		}
		call, _, bound := expression(k.client.isMySQL, function, name, k.client.owner, k.tokens[i])
		if _, err := tx.ExecContext(ctx, verb+call, bound...); err != nil {
			e := told(err)
			if e.Class == Lost {
				k.client.mutex.Lock()
				k.lose(err)
				k.client.mutex.Unlock()
			}
			return e
		}
	}
	return nil
}

// look compares the clock with the deadline; the caller has the mutex.
func (k *kept) look() {
	if k.state == held && Now() >= k.deadline-k.margin {
		if k.cause == nil {
			k.cause = &Error{Class: Unavailable, Message: "it was not renewed in time"}
		}
		k.lose(k.cause)
	}
}

// lose says that the lease is lost; the caller has the mutex.
func (k *kept) lose(cause error) {
	if k.state != held {
		return
	}
	k.state, k.cause = lost, cause
	delete(k.client.leases, k)
	close(k.lost)
	k.end()
	k.tell(EventLost, Now()-k.since)
}

// end ends the contexts that end with the lease, without waiting for what the program does then; the
// caller has the mutex.
func (k *kept) end() {
	close(k.done)
	contexts := k.contexts
	k.contexts = nil
	if len(contexts) > 0 {
		go func() {
			for _, cancel := range contexts {
				cancel()
			}
		}()
	}
}

// release waits for the end of the release.
func (k *kept) release() bool {
	c := k.client
	c.mutex.Lock()
	k.look()
	if k.state == released {
		c.mutex.Unlock()
		return false
	}
	k.leave()
	c.mutex.Unlock()
	return k.awaitLeft()
}

// leave begins the release, on the heartbeat's connection; the caller has the mutex.
func (k *kept) leave() {
	c := k.client
	now := Now()
	k.left = make(chan struct{})
	k.atMost, k.failed = mostNames, 0
	k.wasLost = k.state == lost
	if k.wasLost {
		// it may still be held, but is not worth a new connection
		k.state, k.leaveBy = released, now+lostReleaseLimit
		if c.link == nil {
			k.giveUp()
			return
		}
	} else {
		k.state, k.leaveBy = released, earlier(k.deadline, now+releaseLimit)
		delete(c.leases, k)
		k.end()
		k.tell(EventReleased, now-k.since)
	}
	c.leaving = append(c.leaving, k)
	c.wakeUp()
}

// awaitLeft waits until a release was answered, or its time is over, and says whether the server has confirmed it.
func (k *kept) awaitLeft() bool {
	for {
		timer := time.NewTimer(earlier(k.leaveBy-Now(), longestNap))
		select {
		case <-k.left:
		case <-timer.C:
		}
		timer.Stop()
		k.client.mutex.Lock()
		if Now() >= k.leaveBy {
			k.giveUp()
		}
		select {
		case <-k.left:
			isConfirmed := k.isConfirmed
			k.client.mutex.Unlock()
			return isConfirmed
		default:
		}
		k.client.mutex.Unlock()
	}
}

// giveUp ends a release without an answer.  It may still be done, or not at all, until the lease ends.
func (k *kept) giveUp() {
	now, left := Now(), k.options.TTL
	if keeps := k.keeps(now); keeps > left {
		left = keeps
	}
	k.finish(false, now+left)
}

// finish ends a release; the names are busy until then.  The caller has the mutex.
func (k *kept) finish(isConfirmed bool, busyUntil time.Duration) {
	select {
	case <-k.left:
		return
	default:
	}
	k.isConfirmed = isConfirmed
	k.client.unclaim(k, busyUntil)
	close(k.left)
}

// isDone says whether all names are among those of an answer.
func (k *kept) isDone(done map[string]bool) bool {
	for _, name := range k.names {
		if !done[name] {
			return false
		}
	}
	return true
}
