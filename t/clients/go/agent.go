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

func seconds(word string) time.Duration {
	value, err := strconv.ParseFloat(word, 64)
	must(err)
	return time.Duration(value * float64(time.Second))
}

type agent struct {
	db, direct *sql.DB
	orders     chan string
	cancel     context.CancelFunc
	ended      chan struct{}
}

func (a *agent) block(ctx context.Context, words []string) {
	defer close(a.ended)
	options := dlock.Options{DB: a.db, MySQL: driverName == "mysql", Name: words[0], TTL: seconds(words[1]), Wait: seconds(words[2])}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "shared":
			options.Shared = true
		case "permits":
			options.Permits, _ = strconv.Atoi(value)
		case "owner":
			options.Owner = value
		case "list":
			options.Name, options.Names = "", strings.Split(words[0], ",")
		case "connect_timeout":
			options.ConnectTimeout = seconds(value)
		case "keep_at_least":
			options.KeepAtLeast = seconds(value)
		}
	}
	held := false
	err := dlock.Run(ctx, options, func(working context.Context, lease *dlock.Lease) error {
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
