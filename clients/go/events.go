// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"log"
	"runtime/debug"
	"sync"
	"time"
)

// EventKind is what has happened to a lease.
type EventKind string

const (
	EventAcquired     EventKind = "acquired"     // the lease is held; the duration: since the acquire began
	EventRefused      EventKind = "refused"      // the acquire ended without the lease; since it began
	EventRenewed      EventKind = "renewed"      // a renewal was answered; since it was sent
	EventLate         EventKind = "late"         // a renewal failed, or was given up; until the lease is lost
	EventLost         EventKind = "lost"         // the lease is lost; since it was acquired
	EventReleased     EventKind = "released"     // the program gave the lease back; since it was acquired
	EventUnreferenced EventKind = "unreferenced" // the program has dropped the Lease without releasing it; since it was acquired
)

// mostEvents wait for a function that is behind; newer ones are dropped.
const mostEvents = 10000

type event struct {
	kind     EventKind
	name     string
	duration time.Duration
}

// events calls a function of the program, in the order of the events, in a goroutine that runs while
// there are some.  So a function that blocks is in nobody's way.
type events struct {
	call func(EventKind, string, time.Duration)

	mutex     sync.Mutex // guards what follows
	waiting   []event
	isRunning bool
}

// newEvents: nil if there is no function.
func newEvents(call func(EventKind, string, time.Duration)) *events {
	if call == nil {
		return nil
	}
	return &events{call: call}
}

// tell adds one event for each name.
func (e *events) tell(kind EventKind, names []string, duration time.Duration) {
	if e == nil {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for _, name := range names {
		if len(e.waiting) < mostEvents {
			e.waiting = append(e.waiting, event{kind, name, duration})
		}
	}
	if !e.isRunning {
		e.isRunning = true
		go e.deliver()
	}
}

func (e *events) deliver() {
	for {
		e.mutex.Lock()
		if len(e.waiting) == 0 {
			e.isRunning, e.waiting = false, nil
			e.mutex.Unlock()
			return
		}
		next := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.mutex.Unlock()
		e.deliverOne(next)
	}
}

func (e *events) deliverOne(next event) {
	defer func() {
		if panicked := recover(); panicked != nil {
			log.Printf("dlock: OnEvent panicked: %v\n%s", panicked, debug.Stack())
		}
	}()
	e.call(next.kind, next.name, next.duration)
}
