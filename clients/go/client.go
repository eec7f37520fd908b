// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// ClientOptions of a client.
type ClientOptions struct {
	// Where its connections come from.  It uses one as long as it has leases, a second one for
	// acquires, and more if several acquires run at the same time.
	DB *sql.DB
	// Whether that is MySQL or MariaDB, and not PostgreSQL.
	MySQL bool
	// The owner of all leases; by default one that nobody else has.
	Owner string
	// Called with what happens to each lease, in that order, in a goroutine of its own.
	OnEvent func(kind EventKind, name string, duration time.Duration)
}

// Client keeps many leases, of one owner, with one connection and one goroutine.
//
// Its leases are one holder for the server.  So it refuses a second lease of a name that it has
// already: two goroutines would work under one lock.
type Client struct {
	db          *sql.DB
	isMySQL     bool
	owner       string
	ownerIsOurs bool
	isOfOne     bool // of one lease, which the program has acquired without a client
	events      *events
	calls       int32 // 1: the server has plain/dlock.sql, and no library: what takes or extends a lease is a procedure
	cannotLeave int32 // 1: the server is a MySQL or MariaDB without dlock_release_after

	wake     chan struct{} // for the heartbeat to look again at what follows
	acquires sync.WaitGroup

	mutex      sync.Mutex // guards what follows, and the leases
	isClosed   bool
	isLoggedIn bool
	wasThere   bool // dlock, as one of its functions has shown
	acquiring  map[*kept]context.CancelFunc
	names      map[string]bool          // that a lease has
	busy       map[string]time.Duration // that may still be held, until when
	leases     map[*kept]bool           // held
	leaving    []*kept                  // whose release is asked for
	spare      *link                    // for the next acquire

	// the heartbeat's
	link        *link
	stopped     chan struct{} // nil: it does not run
	notBefore   time.Duration // of the next call, after one without an answer
	aloneAfter  time.Duration // the same, of calls for a lease for which an earlier call has failed
	pause       time.Duration // the next one
	wasARenewal bool          // the last call
}

// NewClient makes a client, without connecting.
func NewClient(options ClientOptions) (*Client, error) {
	c, err := newClient(options)
	if err == nil && c.db.Stats().MaxOpenConnections == 1 {
		return nil, misuse("a client needs two connections, and the sql.DB allows one")
	}
	return c, err
}

func newClient(options ClientOptions) (*Client, error) {
	c := &Client{db: options.DB, isMySQL: options.MySQL, owner: options.Owner, ownerIsOurs: options.Owner == "", events: newEvents(options.OnEvent),
		wake: make(chan struct{}, 1), acquiring: make(map[*kept]context.CancelFunc), names: make(map[string]bool),
		busy: make(map[string]time.Duration), leases: make(map[*kept]bool), pause: firstPause}
	if c.db == nil {
		return nil, misuse("there is no DB")
	}
	if c.ownerIsOurs {
		host, _ := os.Hostname()
		c.owner = strings.ToValidUTF8(fmt.Sprintf("%.100s/%d/%s", host, os.Getpid(), random()), "?")
	}
	if err := checkText("the owner", c.owner); err != nil {
		return nil, err
	}
	return c, nil
}

func random() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return hex.EncodeToString(bytes)
}

// jitter is a time at random, of half to one and a half times as long.
func jitter(base time.Duration) time.Duration {
	var bytes [2]byte
	_, _ = rand.Read(bytes[:]) // as good as none if it cannot
	return base/2 + base*(time.Duration(bytes[0])<<8+time.Duration(bytes[1]))>>16
}

// Run is like the function Run, with a lease of the client.
func (c *Client) Run(ctx context.Context, options Options, work func(context.Context, *Lease) error) error {
	lease, err := c.Acquire(ctx, options)
	return run(ctx, lease, err, work)
}

// Acquire waits for a lease of the client.  The end of the context ends the wait.  The options leave out what
// is the client's: DB, MySQL and Owner.
func (c *Client) Acquire(ctx context.Context, options Options) (*Lease, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	if options.DB != nil || options.MySQL || options.Owner != "" {
		return nil, misuse("DB, MySQL and Owner are the client's")
	}
	k := &kept{client: c, options: options, events: newEvents(options.OnEvent), names: append([]string(nil), options.Names...), request: random(), began: Now(),
		margin: earlier(options.TTL/10, time.Second), lost: make(chan struct{}), done: make(chan struct{}),
		contexts: make(map[*int]context.CancelFunc), state: waiting}
	if len(k.names) == 0 {
		k.names = []string{options.Name}
	}

	acquiring, cancel := context.WithCancel(ctx)
	defer cancel()
	err := c.admit(acquiring, k, cancel)
	if err == nil {
		defer c.acquires.Done()
		err = k.acquire(acquiring)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.acquiring, k)
	if err != nil {
		k.state = released
		k.tell(EventRefused, Now()-k.began)
		if c.isClosed && ctx.Err() == nil && errors.Is(err, context.Canceled) {
			return nil, errClosed
		}
		return nil, err
	}
	return newLease(k, c), nil
}

var errClosed = misuse("the client is closed")

// admit gives a lease its names, for which it may have to wait.
func (c *Client) admit(ctx context.Context, k *kept, cancel context.CancelFunc) error {
	for {
		until, err := c.claim(k, cancel)
		if until == 0 {
			return err
		}
		if k.options.Wait >= 0 && until > k.began+k.options.Wait {
			return &Error{Class: Busy, Message: strings.Join(k.names, ", ") + ": the client's last lease may still be held"}
		}
		if err := sleep(ctx, earlier(until, Now()+longestNap)); err != nil {
			return err
		}
	}
}

// claim gives a lease its names, or says until when one is busy.
func (c *Client) claim(k *kept, cancel context.CancelFunc) (until time.Duration, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		return 0, errClosed
	}
	now := Now()
	for name, end := range c.busy {
		if end <= now {
			delete(c.busy, name)
		}
	}
	for _, name := range k.names {
		if c.names[name] {
			return 0, misuse("the client has a lease %q already", name)
		}
		if end := c.busy[name]; end > until {
			until = end
		}
	}
	if until == 0 {
		for _, name := range k.names {
			c.names[name] = true
		}
		c.acquiring[k] = cancel
		c.acquires.Add(1)
	}
	return until, nil
}

// unclaim takes the names from a lease, which may be held until then; the caller has the mutex.
func (c *Client) unclaim(k *kept, busyUntil time.Duration) {
	for _, name := range k.names {
		delete(c.names, name)
		if busyUntil > 0 {
			c.busy[name] = busyUntil
		}
	}
}

// Close releases all leases, and ends the client's connections and acquires.  The error is that of
// the context, if it ends first; then the rest happens in the background.
func (c *Client) Close(ctx context.Context) error {
	c.mutex.Lock()
	c.isClosed = true
	for _, cancel := range c.acquiring {
		cancel()
	}
	var leaving []*kept
	for k := range c.leases {
		if k.look(); k.state == held {
			k.leave()
			leaving = append(leaving, k)
		}
	}
	c.mutex.Unlock()

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.acquires.Wait()
		for _, k := range leaving {
			k.awaitLeft()
		}
		for {
			c.mutex.Lock()
			stopped := c.stopped
			if stopped == nil {
				c.closeSpare()
			}
			c.mutex.Unlock()
			if stopped == nil {
				return
			}
			<-stopped
		}
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// adopt makes a good connection the heartbeat's, or the spare one if the heartbeat has its own; the caller has the mutex.
func (c *Client) adopt(l *link) {
	if c.link == nil {
		c.link = l
	} else {
		c.keepSpare(l)
	}
}

// keepSpare keeps a good connection for the next acquire, or closes it; the caller has the mutex.
func (c *Client) keepSpare(l *link) {
	if c.isOfOne || c.isClosed || c.spare != nil {
		l.close(c.isOfOne)
		return
	}
	l.restsSince = Now()
	c.spare = l
}

func (c *Client) takeSpare() *link {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	l := c.spare
	c.spare = nil
	return l
}

func (c *Client) closeSpare() {
	if c.spare != nil {
		c.spare.close(false)
		c.spare = nil
	}
}
