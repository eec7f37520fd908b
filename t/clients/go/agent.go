// The agent for Go; t/clients/Agent.pm says what it does.
// Drivers: pq pgx mysql

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"dlock"
)

var driverName, port = os.Args[1], os.Args[2]

func say(words ...interface{}) { os.Stdout.WriteString(fmt.Sprintln(words...)) }

// The class and the code of an error.
func outcome(err error) string {
	var ours *dlock.Error
	if !errors.As(err, &ours) {
		return err.Error()
	}
	switch {
	case ours.SQLState != "":
		return string(ours.Class) + " " + ours.SQLState
	case ours.Number != 0:
		return fmt.Sprint(ours.Class, " ", ours.Number)
	}
	return string(ours.Class) + " -"
}

var errRaised = errors.New("raised")

// duration is a time as the contract has it.
func duration(word string) time.Duration {
	value, err := dlock.ParseDuration(word)
	if err != nil {
		panic(err)
	}
	return value
}

type agent struct {
	db, direct *sql.DB
	orders     chan string
	cancel     context.CancelFunc
	ended      chan struct{}

	client *dlock.Client
	mutex  sync.Mutex // guards what follows
	many   map[string]*dlock.Lease
}

func event(kind dlock.EventKind, name string, after time.Duration) {
	say("event", kind, name, after.Seconds())
}

// options reads what a lease is to be.
func (a *agent) options(words []string) (options dlock.Options, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicked.(error)
		}
	}()
	options = dlock.Options{DB: a.db, MySQL: driverName == "mysql", Name: words[0], TTL: duration(words[1]), Wait: duration(words[2])}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "shared":
			options.Shared = true
		case "permits":
			if options.Permits, err = strconv.Atoi(value); options.Permits == 0 {
				options.Permits = -1 // 0 is how Go leaves it out
			}
		case "owner":
			options.Owner = value
		case "list":
			options.Name, options.Names = "", strings.Split(words[0], ",")
		case "connect_timeout":
			if options.ConnectTimeout = duration(value); options.ConnectTimeout == 0 {
				options.ConnectTimeout = -1
			}
		case "keep_at_least":
			options.KeepAtLeast = duration(value)
		case "events":
			options.OnEvent = event
		case "unknown":
			return options, &dlock.Error{Class: dlock.Misuse, Message: "the compiler refuses it"}
		}
	}
	return options, err
}

func (a *agent) block(ctx context.Context, words []string) {
	defer close(a.ended)
	options, err := a.options(words)
	if err != nil {
		say("failed", outcome(err))
		return
	}
	held := false
	err = dlock.Run(ctx, options, func(working context.Context, lease *dlock.Lease) error {
		held = true
		go func() {
			<-lease.Lost()
			<-working.Done()
			say("lost", dlock.Now().Seconds())
		}()
		say("held", strings.Trim(strings.ReplaceAll(fmt.Sprint(lease.Tokens()), " ", ","), "[]"), dlock.Now().Seconds())
		for {
			select {
			case order := <-a.orders:
				switch order {
				case "check":
					a.check(lease)
				case "guard", "guard-outside":
					a.guard(ctx, lease, order)
				case "raise":
					return errRaised
				default:
					return nil
				}
			case <-ctx.Done(): // the end of the process
				return nil
			}
		}
	})
	switch {
	case err == nil:
		say("ended")
	case err == errRaised:
		say("raised")
	case errors.Is(err, context.Canceled):
		say("failed canceled -")
	case held:
		say("ended", outcome(err))
	default:
		say("failed", outcome(err))
	}
}

func (a *agent) check(lease *dlock.Lease) {
	if err := lease.Check(); err != nil {
		say("check", outcome(err))
	} else if lease.Held() && lease.Remaining() > 0 {
		say("check ok")
	}
}

func (a *agent) guard(ctx context.Context, lease *dlock.Lease, order string) {
	if order == "guard-outside" {
		say(order, outcome(lease.Guard(ctx, a.direct)))
		return
	}
	tx, err := a.direct.BeginTx(ctx, nil)
	must(err)
	defer tx.Rollback()
	if err = lease.Guard(ctx, tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		say(order, outcome(err))
	} else {
		say(order, "ok")
	}
}

// acquireMany acquires leases by the client, ten at a time.
func (a *agent) acquireMany(words []string) {
	count, err := strconv.Atoi(words[1])
	must(err)
	options, err := a.options(append([]string{words[0]}, words[2:]...))
	must(err)
	if a.client == nil {
		a.client, err = dlock.NewClient(dlock.ClientOptions{DB: a.db, MySQL: options.MySQL, Owner: options.Owner, OnEvent: options.OnEvent})
		must(err)
		a.many = make(map[string]*dlock.Lease)
	}
	options.DB, options.MySQL, options.Owner, options.OnEvent = nil, false, "", nil
	results := make(chan error, count)
	turns := make(chan struct{}, 10)
	for i := 1; i <= count; i++ {
		options.Name = words[0] + strconv.Itoa(i)
		turns <- struct{}{}
		go func(options dlock.Options) {
			lease, err := a.client.Acquire(context.Background(), options)
			<-turns
			if err == nil {
				a.mutex.Lock()
				a.many[options.Name] = lease
				a.mutex.Unlock()
				go func(lost <-chan struct{}) {
					<-lost
					say("lost-one", options.Name, dlock.Now().Seconds())
				}(lease.Lost())
			}
			results <- err
		}(options)
	}
	got := 0
	for i := 0; i < count; i++ {
		if e := <-results; e == nil {
			got++
		} else if err == nil {
			err = e
		}
	}
	if err != nil {
		say("many", outcome(err))
	} else {
		say("many", got)
	}
}

// manyOrder is what else is done with them.
func (a *agent) manyOrder(words []string) {
	switch words[0] {
	case "many-held":
		n := 0
		for _, lease := range a.many {
			if lease.Held() {
				n++
			}
		}
		say("many-held", n)
	case "many-release":
		confirmed := 0
		if a.many[words[1]].Release() {
			confirmed = 1
		}
		say("many-release", confirmed)
	case "many-close":
		must(a.client.Close(context.Background()))
		a.client = nil
		say("many-close")
	}
}

func main() {
	a := &agent{db: open(driverName, port), direct: open(driverName, os.Getenv("DLOCK_PORT")), orders: make(chan string, 10)}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "lease":
			var ctx context.Context
			ctx, a.cancel = context.WithCancel(context.Background())
			a.ended = make(chan struct{})
			go a.block(ctx, words[1:])
		case "many":
			a.acquireMany(words[1:])
		case "many-held", "many-release", "many-close":
			a.manyOrder(words)
		case "cancel":
			a.cancel()
		case "exit":
			if a.ended != nil {
				a.cancel()
				<-a.ended
			}
			os.Exit(0)
		default:
			a.orders <- words[0]
		}
	}
}
