// Package dlock keeps leases of dlock alive: named locks with a deadline in PostgreSQL, MySQL and
// MariaDB, by any driver for database/sql.
//
//	err := dlock.Run(ctx, dlock.Options{DB: db, Name: "nightly-report", TTL: 30 * time.Second},
//		func(ctx context.Context, lease *dlock.Lease) error {
//			for _, part := range parts {
//				if err := lease.Check(); err != nil {
//					return err
//				}
//				work(ctx, part, lease.Token()) // ctx ends when the lease is lost
//			}
//			return nil
//		})
//
// A lease is acquired, and renewed in the background until it is released; if that does not work, the
// program learns in time that it is lost.  A Client keeps many leases with one connection.
// clients/CONTRACT.md says what all clients of dlock keep.  This one needs the standard library only:
// copy these files.
//
// SPDX-License-Identifier: PostgreSQL
package dlock

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"runtime"
	"strings"
	"time"
)

// Options of a lease.
type Options struct {
	// Where its connections come from; it uses one as long as it is held.
	DB *sql.DB
	// Whether that is MySQL or MariaDB, and not PostgreSQL.
	MySQL bool
	// What to lease: Name, or up to 100 Names, exclusively, all or none.
	Name  string
	Names []string
	// How long it lasts if it is not renewed.
	TTL time.Duration
	// How long to wait for it; 0 tries once, less than 0 waits without limit.
	Wait time.Duration
	// Shared with others that share it; or one of this many permits.
	Shared  bool
	Permits int
	// The owner; by default one that nobody else has.
	Owner string
	// How long to go on while no server is reached, or answers; 0: 10 s.
	ConnectTimeout time.Duration
	// If released sooner than this after the grant, it is given back with effect at that time; on
	// MySQL and MariaDB it is renewed until then, and expires.
	KeepAtLeast time.Duration
	// Called with what happens to the lease, in that order, in a goroutine of its own.
	OnEvent func(kind EventKind, name string, duration time.Duration)
}

// Lease is one that is, or was, held.
//
// One that the program drops without releasing it is renewed on, since work may go on under it; the
// log says so when the garbage collector finds it.
type Lease struct {
	Options
	*kept
}

// Run calls work while the lease is held, with a context that ends when the lease is lost, and then
// releases it, also if work panics.  It returns work's error, or that the lease was lost if work
// ended well or because of that context.
func Run(ctx context.Context, options Options, work func(context.Context, *Lease) error) error {
	lease, err := Acquire(ctx, options)
	return run(ctx, lease, err, work)
}

// Acquire waits for a lease.  The end of the context ends the wait.
func Acquire(ctx context.Context, options Options) (*Lease, error) {
	c, err := newClient(ClientOptions{DB: options.DB, MySQL: options.MySQL, Owner: options.Owner})
	if err != nil {
		return nil, err
	}
	c.isOfOne = true
	options.DB, options.MySQL, options.Owner = nil, false, ""
	return c.Acquire(ctx, options)
}

func run(ctx context.Context, lease *Lease, err error, work func(context.Context, *Lease) error) error {
	if err != nil {
		return err
	}
	defer lease.Release()
	working, cancel := lease.Context(ctx)
	defer cancel()
	err = work(working, lease)
	if lost := lease.Check(); Is(lost, Lost) && (err == nil || ctx.Err() == nil && errors.Is(err, context.Canceled)) {
		return lost
	}
	return err
}

// newLease is what the program gets of a lease that is held.  Nothing else refers to it, so that the
// garbage collector finds it when the program has dropped it.
func newLease(k *kept, c *Client) *Lease {
	lease := &Lease{Options: k.options, kept: k}
	lease.DB, lease.MySQL, lease.Owner = c.db, c.isMySQL, c.owner
	runtime.SetFinalizer(lease, func(lease *Lease) {
		if k := lease.kept; k.Held() {
			log.Printf("dlock: %s: the program has dropped the lease without releasing it", strings.Join(k.names, ", "))
			k.tell(EventUnreferenced, Now()-k.since)
		}
	})
	return lease
}

// Release gives the lease back, and says whether the server has confirmed that.  If it cannot be released
// it ends at its deadline, which is no error.
//
// It is a method of Lease, and not of what the client keeps, so that a deferred call refers to the
// Lease.
func (l *Lease) Release() bool {
	isReleased := l.kept.release()
	runtime.KeepAlive(l)
	return isReleased
}
