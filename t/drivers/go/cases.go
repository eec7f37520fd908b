// What the programs for Go's drivers share: TAP, the server, and the cases for any
// driver under database/sql.

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

var (
	isPostgres = os.Getenv("DLOCK_SERVER") == "postgres"
	isMySQL    = os.Getenv("DLOCK_SERVER") == "mysql"
	address    = os.Getenv("DLOCK_HOST") + ":" + os.Getenv("DLOCK_PORT")
	user       = os.Getenv("DLOCK_USER")
	database   = os.Getenv("DLOCK_DATABASE")
	ctx        = context.Background()
)

// How long something may take on a busy machine.
const patience = 180 * time.Second

var count, failed int

func ok(passed bool, what string) bool {
	count++
	if passed {
		fmt.Printf("ok %d - %s\n", count, what)
	} else {
		failed++
		fmt.Printf("not ok %d - %s\n", count, what)
	}
	return passed
}

// The same value, and of the same type.
func same(is, wanted interface{}, what string) {
	if !ok(reflect.DeepEqual(is, wanted), what) {
		fmt.Printf("#   got %T %v, wanted %T %v\n", is, is, wanted, wanted)
	}
}

func done() {
	fmt.Printf("1..%d\n", count)
	if failed > 0 {
		os.Exit(1)
	}
}

// End if something failed that is no case.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Poll until it is so; say whether it came to be.
func until(isSo func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if isSo() {
			return true
		}
	}
	return false
}

// The call of a function, with placeholders as the driver has them.
func call(function string, arguments int) string {
	marks := make([]string, arguments)
	for i := range marks {
		marks[i] = "?"
		if isPostgres {
			marks[i] = fmt.Sprintf("$%d", i+1)
		}
	}
	return function + "(" + strings.Join(marks, ", ") + ")"
}

// A pool or one of its connections.
type querier interface {
	QueryRowContext(context.Context, string, ...interface{}) *sql.Row
}

func query(on querier, function string, arguments ...interface{}) *sql.Row {
	return on.QueryRowContext(ctx, "SELECT "+call(function, len(arguments)), arguments...)
}

func token(on querier, function string, arguments ...interface{}) (token sql.NullInt64, err error) {
	err = query(on, function, arguments...).Scan(&token)
	return
}

func answer(on querier, function string, arguments ...interface{}) (answer sql.NullBool, err error) {
	err = query(on, function, arguments...).Scan(&answer)
	return
}

// For what must end well.
func mustToken(on querier, function string, arguments ...interface{}) sql.NullInt64 {
	token, err := token(on, function, arguments...)
	must(err)
	return token
}

func mustAnswer(on querier, function string, arguments ...interface{}) sql.NullBool {
	answer, err := answer(on, function, arguments...)
	must(err)
	return answer
}

// The server's number of a connection.
func number(on querier) int64 {
	if isPostgres {
		return mustToken(on, "pg_backend_pid").Int64
	}
	return mustToken(on, "connection_id").Int64
}

func kill(db *sql.DB, number int64) {
	var err error
	if isPostgres {
		_, err = db.Exec("SELECT pg_terminate_backend($1, $2)", number, patience.Milliseconds())
	} else {
		_, err = db.Exec(fmt.Sprintf("KILL CONNECTION %d", number))
	}
	must(err)
}

// The number of the connection that waits for a name; 0 if there is none.
func waiter(db *sql.DB, name string) (number int64) {
	column := "connection_id"
	if isPostgres {
		column = "pid"
	}
	err := db.QueryRow("SELECT " + column + " FROM dlock.waiters WHERE name = '" + name + "'").Scan(&number)
	if err != sql.ErrNoRows {
		must(err)
	}
	return
}

var yes, no = sql.NullBool{Bool: true, Valid: true}, sql.NullBool{Valid: true}

// Go through the cases.  What is by the driver: kindOf says what doc/drivers.md says that an
// error is, lost, blocked, misuse, deadlock, gone or timeout; repeats: whether database/sql
// repeats a call whose connection is lost.
func cases(db *sql.DB, kindOf func(error) string, repeats bool) {
	kind := func(err error) string {
		if err == nil {
			return "none"
		}
		if kind := kindOf(err); kind != "" {
			return kind
		}
		return fmt.Sprintf("%T %v", err, err)
	}
	quoting(db)
	numbers(db, kind)
	answers(db)
	errorKinds(db, kind)
	deadline(db, kind)
	session(db)
	gone(db, kind, repeats)
}

// What makes a backslash in a literal what it usually is not in this session, and what it usually is:
// nothing special and an escape; on PostgreSQL, before 19, the other way round.
func backslash(kind string) string {
	switch {
	case isPostgres && kind == "unusual":
		return `SELECT set_config('standard_conforming_strings', 'off', false)
			WHERE current_setting('server_version_num')::int < 190000`
	case isPostgres:
		return "SELECT set_config('standard_conforming_strings', 'on', false)"
	case kind == "unusual":
		return "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'"
	}
	return "SET SESSION sql_mode = DEFAULT"
}

// Names, whatever a backslash is in a literal.
func quoting(db *sql.DB) {
	connection, err := db.Conn(ctx)
	must(err)
	for _, kind := range []string{"unusual", "usual"} {
		_, err = connection.ExecContext(ctx, backslash(kind))
		must(err)
		for _, name := range []string{"it's", `C:\jobs\x`, `a\`, `x\' OR '`, `café"`} {
			_, err = token(connection, "dlock_acquire", name, "names", 30)
			what := name + ", with the " + kind + " backslash"
			same(err, nil, what)
			// without the driver's help with its letters
			literal := fmt.Sprintf("x'%x'", name)
			if isPostgres {
				literal = fmt.Sprintf("convert_from(decode('%x', 'hex'), 'UTF8')", name)
			}
			var free sql.NullBool
			must(connection.QueryRowContext(ctx, "SELECT dlock_is_free("+literal+")").Scan(&free))
			same(free, no, what+": that name is held")
		}
		mustToken(connection, "dlock_release_all", "names")
	}
	must(connection.Close())
}

func numbers(db *sql.DB, kind func(error) string) {
	for _, c := range []struct {
		ttl     interface{}
		seconds float64
	}{
		{30, 30}, {int64(30), 30}, {30.5, 30.5}, {"31.25", 31.25}, {"40s", 40}, {(60500 * time.Millisecond).Seconds(), 60.5},
	} {
		what := fmt.Sprintf("ttl %T %v", c.ttl, c.ttl)
		ok(mustToken(db, "dlock_acquire", what, "me", c.ttl).Valid, what)
		var left float64
		must(query(db, "dlock_remaining", what, "me").Scan(&left))
		ok(c.seconds-20 < left && left <= c.seconds, what+": as long as that")
	}
	first := mustToken(db, "dlock_acquire", "waits", "me", 600, (60500 * time.Millisecond).Seconds(), "request-1")
	ok(first.Valid, "a wait")
	same(mustToken(db, "dlock_acquire", "waits", "me", 600, 0, "request-1"), first, "the same request again: the same token")
	// what cannot be bound: the driver sends nanoseconds
	for _, ttl := range []time.Duration{time.Minute, time.Millisecond} {
		_, err := token(db, "dlock_acquire", "duration", "me", ttl)
		same(kind(err), "misuse", fmt.Sprintf("a time.Duration of %v is refused", ttl))
	}
}

func answers(db *sql.DB) {
	mine := mustToken(db, "dlock_acquire", "answers", "me", 30).Int64
	same(mustAnswer(db, "dlock_renew", "answers", "me", 30, mine), yes, "renewed by its token")
	same(mustAnswer(db, "dlock_renew", "answers", "me", 30, mine+1), no, "not by another")
	same(mustToken(db, "dlock_acquire", "answers", "other", 30), sql.NullInt64{}, "not valid: somebody has it")
	var number int64
	ok(query(db, "dlock_acquire", "answers", "other", 30).Scan(&number) != nil, "an int64 cannot take that")
	same(mustAnswer(db, "dlock_release", "answers", "me"), yes, "released")
	same(mustAnswer(db, "dlock_release", "answers", "me"), sql.NullBool{}, "not valid: nobody has it")
	ok(mustToken(db, "dlock_acquire_permit", "permits", "me", 30, int64(2)).Valid, "a limit that is an int64")
}

// Guard in a transaction, and do something under the guard.
func guarded(db *sql.DB, name, owner string, token int64, work func()) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	guard := "CALL " + call("dlock.guard", 3)
	if isPostgres {
		guard = "SELECT " + call("dlock_guard", 3)
	}
	if _, err = tx.ExecContext(ctx, guard, name, owner, token); err != nil {
		return err
	}
	work()
	return tx.Commit()
}

func errorKinds(db *sql.DB, kind func(error) string) {
	mine := mustToken(db, "dlock_acquire", "guarded", "me", 600).Int64
	second, err := db.Conn(ctx)
	must(err)
	defer second.Close()
	var blocked error
	err = guarded(db, "guarded", "me", mine, func() {
		if isPostgres {
			_, err := second.ExecContext(ctx, "SET lock_timeout = '200ms'")
			must(err)
			_, blocked = token(second, "dlock_acquire", "guarded", "other", 30, 600)
			_, err = second.ExecContext(ctx, "RESET lock_timeout")
			must(err)
		} else {
			_, blocked = answer(second, "dlock_downgrade", "guarded", "me")
		}
	})
	same(err, nil, "a guard of the driver's own transaction")
	same(kind(blocked), "blocked", "an error: blocked")
	same(kind(guarded(db, "guarded", "me", mine+1, func() {})), "lost", "an error: lost")
	_, err = token(db, "dlock_acquire", "", "me", 30)
	same(kind(err), "misuse", "an error: misuse")
	mustToken(db, "dlock_acquire_permit", "itself", "me", 30, 1)
	_, err = token(db, "dlock_acquire_permit", "itself", "me", 30, 1, 60)
	same(kind(err), "deadlock", "an error: deadlock")
}

// What becomes of a call whose context has a deadline, and of its connection.
func deadline(db *sql.DB, kind func(error) string) {
	mustToken(db, "dlock_acquire", "taken", "me", 600)
	connection, err := db.Conn(ctx)
	must(err)
	mustToken(connection, "dlock_acquire_session", "session", "late", 30)
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var token sql.NullInt64
	err = connection.QueryRowContext(short, "SELECT "+call("dlock_acquire", 4), "taken", "late", 600, 600).Scan(&token)
	same(kind(err), "timeout", "an error: the context's deadline")
	same(short.Err(), context.DeadlineExceeded, "of which the context knows")
	ok(until(func() bool { return waiter(db, "taken") == 0 }), "the waiter has left")
	same(mustAnswer(db, "dlock_release", "taken", "me"), yes, "the name is released")
	same(mustAnswer(db, "dlock_is_free", "taken"), yes, "and nobody has got it")
	same(connection.PingContext(ctx), driver.ErrBadConn, "the connection is lost")
	ok(mustToken(db, "dlock_acquire", "session", "me", 30, patience.Seconds()).Valid, "and with it its session lease")
	same(mustAnswer(db, "dlock_release", "session", "me"), yes, "released")
}

// A session lease, on a connection of the pool's.
func session(db *sql.DB) {
	connection, err := db.Conn(ctx)
	must(err)
	ok(mustToken(connection, "dlock_acquire_session", "session", "me", 30).Valid, "a session lease")
	must(connection.Close())
	same(mustAnswer(db, "dlock_is_free", "session"), no, "it outlives Close() of a pool's connection")
	same(mustAnswer(db, "dlock_release", "session", "me"), yes, "released")
	connection, err = db.Conn(ctx)
	must(err)
	mustToken(connection, "dlock_acquire_session", "session", "me", 30)
	same(connection.Raw(func(interface{}) error { return driver.ErrBadConn }), driver.ErrBadConn,
		"driver.ErrBadConn out of Raw()")
	ok(mustToken(db, "dlock_acquire", "session", "other", 30, patience.Seconds()).Valid, "closes the connection, and it ends")
}

func gone(db *sql.DB, kind func(error) string, repeats bool) {
	connection, err := db.Conn(ctx)
	must(err)
	kill(db, number(connection))
	_, err = answer(connection, "dlock_is_free", "x")
	same(kind(err), "gone", "an error: the server is gone")
	connection.Close()

	// a call of the pool's, whose connection is lost while it waits
	mustToken(db, "dlock_acquire", "lost", "me", 600)
	ended := make(chan error, 1)
	go func() {
		_, err := token(db, "dlock_acquire", "lost", "waits", 600, 600, "request-1")
		ended <- err
	}()
	var first, second int64
	ok(until(func() bool { first = waiter(db, "lost"); return first != 0 }), "a call of the pool waits")
	kill(db, first)
	if repeats {
		ok(until(func() bool { second = waiter(db, "lost"); return second != 0 && second != first }),
			"its connection is lost: it is repeated on another")
		same(mustAnswer(db, "dlock_release", "lost", "me"), yes, "the name is released")
		same(<-ended, nil, "and the call ends well")
	} else {
		same(kind(<-ended), "gone", "its connection is lost: an error")
	}
}
