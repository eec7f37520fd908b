// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// link is a connection that a client has for itself.  After an error it is of no use any more.
type link struct {
	connection  *sql.Conn
	isMySQL     bool
	calls       *int32 // the client's
	cannotLeave *int32 // the same
	called      bool   // the last answer is a procedure's, which does not wait
	// for one statement at a time
	turn chan struct{}
	// since when it is kept for the next acquire
	restsSince time.Duration
}

// close closes the connection.  A good one goes back to the pool of the sql.DB, where that is wanted.
func (k *link) close(intoPool bool) {
	if intoPool {
		_ = k.connection.Close()
		return
	}
	go func() {
		k.turn <- struct{}{} // when the driver lets go of it
		_ = k.connection.Raw(func(interface{}) error { return driver.ErrBadConn })
		_ = k.connection.Close()
	}()
}

// outcome is what a goroutine comes back with that uses a driver.  Each such use has a goroutine of
// its own: a driver may block although its context has ended, and then whoever waits goes on.
type outcome struct {
	link   *link
	answer interface{}
	sent   time.Duration
	err    error
}

// connect opens a connection.  If nobody takes the outcome before cancel() is called, it closes it.
func (c *Client) connect(ctx context.Context) (<-chan outcome, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome)
	go func() {
		connection, err := c.db.Conn(ctx)
		o := outcome{err: err}
		if err == nil {
			o.link = &link{connection: connection, isMySQL: c.isMySQL, calls: &c.calls, cannotLeave: &c.cannotLeave, turn: make(chan struct{}, 1)}
		}
		select {
		case outcomes <- o:
		case <-ctx.Done():
			if err == nil {
				o.link.close(false)
			}
		}
	}()
	return outcomes, cancel
}

// send calls a function: the outcome is its answer, and when it was sent.
func (k *link) send(ctx context.Context, function string, args []interface{}) (<-chan outcome, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	outcomes := make(chan outcome, 1)
	go func() {
		k.turn <- struct{}{}
		o := outcome{sent: Now()}
		calls := atomic.LoadInt32(k.calls)
		if function == leave && atomic.LoadInt32(k.cannotLeave) == 1 {
			function = "dlock_renew_many"
		}
		o.answer, o.err = k.call(ctx, function, args, calls == 1)
		if function == leave && o.err != nil && isMissing(told(o.err).Number) {
			atomic.StoreInt32(k.cannotLeave, 1)
			o.answer, o.err = k.call(ctx, "dlock_renew_many", args, calls == 1)
		}
		if o.err != nil && told(o.err).SQLState == "42809" {
			// it is a procedure, or is none any more; the server had not begun it
			calls = 1 - calls
			atomic.StoreInt32(k.calls, calls)
			o.answer, o.err = k.call(ctx, function, args, calls == 1)
		}
		k.called = calls == 1
		<-k.turn
		outcomes <- o
	}()
	return outcomes, cancel
}

// late is what is told when an outcome was not waited for any longer.
func (c *Client) late(isConnect bool) error {
	if pool := c.db.Stats(); isConnect && pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections {
		return &Error{Class: Unavailable, Message: fmt.Sprintf("all %d connections of the sql.DB are in use", pool.MaxOpenConnections)}
	}
	return &Error{Class: Unavailable, Message: "the server did not answer in time"}
}

// wait waits for an outcome until a time of Now(), or until the context ends, and cancels then.
func wait(ctx context.Context, outcomes <-chan outcome, cancel context.CancelFunc, end time.Duration) (o outcome, isThere bool) {
	defer cancel()
	for {
		timer := time.NewTimer(earlier(end-Now(), longestNap))
		select {
		case o = <-outcomes:
			timer.Stop()
			return o, true
		case <-ctx.Done():
			timer.Stop()
			return o, false
		case <-timer.C:
		}
		if Now() >= end {
			select {
			case o = <-outcomes:
				return o, true
			default:
				return o, false
			}
		}
	}
}

// open connects, until then.
func (c *Client) open(ctx context.Context, end time.Duration) (*link, error) {
	outcomes, cancel := c.connect(ctx)
	o, isThere := wait(ctx, outcomes, cancel, end)
	return o.link, c.connected(ctx, o, isThere)
}

// connected is the error of an attempt to connect.
func (c *Client) connected(ctx context.Context, o outcome, isThere bool) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch {
	case isThere && o.err == nil:
		c.isLoggedIn = true
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !isThere:
		return c.late(true)
	}
	e := told(o.err)
	if c.isLoggedIn && e.isLogin() {
		e.Class = Unavailable // it has worked before
	}
	return e
}

// ask calls a function, and returns its answer, nil for NULL, and when the request was sent.  If
// the context or the time ends, or there is an error, it closes the connection.
func (c *Client) ask(ctx context.Context, k *link, end time.Duration, function string, args ...interface{}) (interface{}, time.Duration, error) {
	outcomes, cancel := k.send(ctx, function, args)
	o, isThere := wait(ctx, outcomes, cancel, end)
	return o.answer, o.sent, c.answered(ctx, k, o, isThere)
}

// answered is the error of a call, after which it closes the connection.
func (c *Client) answered(ctx context.Context, k *link, o outcome, isThere bool) error {
	if isThere && o.err == nil {
		return nil
	}
	k.close(false)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !isThere, errors.Is(o.err, context.Canceled): // our own limit
		return c.late(false)
	}
	return told(o.err)
}

const forever = time.Duration(1<<63 - 1)

func earlier(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

// sleep waits for a time of Now(); an error if the context ends.
func sleep(ctx context.Context, end time.Duration) error {
	_, _ = wait(ctx, nil, func() {}, end)
	return ctx.Err()
}

// expression is a call of a function, its arguments, and the values to bind in them.  It means the
// same whatever the program has set: text is bound in hexadecimal digits, so that neither the quotes
// of a driver that pastes values into statements matter, nor the encoding of the session.  There is no
// subquery on PostgreSQL, where it would keep a snapshot while the call waits.
func expression(isMySQL bool, function string, args ...interface{}) (string, []string, []interface{}) {
	marks := make([]string, len(args))
	bound := make([]interface{}, len(args))
	for i, arg := range args {
		mark, format := "?", "%s"
		if !isMySQL {
			mark = fmt.Sprintf("$%d", i+1)
		}
		switch arg := arg.(type) {
		case string:
			bound[i], format = hex.EncodeToString([]byte(arg)), "convert_from(decode(%s::text, 'hex'), 'UTF8')"
		case []string:
			bound[i] = hex.EncodeToString([]byte(list(isMySQL, arg)))
			format = "convert_from(decode(%s::text, 'hex'), 'UTF8')::text[]"
		case []int64:
			bound[i], format = list(isMySQL, arg), "%s::text::bigint[]"
		case time.Duration:
			bound[i], format = arg.Seconds(), "%s::float8" // drivers send nanoseconds
		case int:
			bound[i], format = int64(arg), "%s::int"
		default:
			bound[i], format = arg, "%s::bigint"
		}
		if isMySQL {
			format = "%s"
			switch arg.(type) {
			case string, []string:
				format = "UNHEX(%s)" // bytes, which the server takes for UTF-8
			}
		}
		marks[i] = fmt.Sprintf(format, mark)
	}
	return function + "(" + strings.Join(marks, ", ") + ")", marks, bound
}

// list is what the servers take for one: JSON, or on PostgreSQL an array in its text form.
func list(isMySQL bool, values interface{}) string {
	if isMySQL {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(values) // strings and numbers always can be
		return strings.TrimSpace(text.String())
	}
	if numbers, areThey := values.([]int64); areThey {
		return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + "}"
	}
	var elements []string
	for _, name := range values.([]string) {
		elements = append(elements, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)+`"`)
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// leave is dlock_release_after of many; a MySQL or MariaDB without it renews for that time.
const leave = "dlock_release_after_many"

// isMissing tells the servers' error of a function that there is not; MySQL has another one where no
// database is selected.
func isMissing(number uint16) bool {
	return number == 1305 || number == 1046
}

// isAlive is no function, but asks whether the connection works.
const isAlive = ""

// call makes the statement of a function, and reads its answer: a list of either tokens or names, or
// nil.  The answer is bytes, or ASCII, which neither drivers nor the encoding of the session change.
// calls: what takes or extends a lease is a procedure.
func (k *link) call(ctx context.Context, function string, args []interface{}, calls bool) (interface{}, error) {
	if function == isAlive {
		var one int
		return nil, k.connection.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	}
	if calls && function == leave {
		return k.leaveEach(ctx, args)
	}
	isMany := strings.HasSuffix(function, "_many")
	call, marks, bound := expression(k.isMySQL, function, args...)
	found := call + " AS name"
	if function == leave && k.isMySQL {
		call = "COALESCE(CONVERT(JSON_ARRAYAGG(l.name) USING utf8mb4), '[]')"
		found = fmt.Sprintf(" FROM JSON_TABLE(CONVERT(%s USING utf8mb4), '$[*]' COLUMNS"+
			" (place FOR ORDINALITY, name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS l"+
			" WHERE dlock_release_after(l.name, %s, %s, JSON_EXTRACT(CONVERT(%s USING utf8mb4), CONCAT('$[', l.place - 1, ']'))) = 1",
			marks[0], marks[1], marks[2], marks[3])
	} else if function == leave {
		// the arguments are names, owner, after, tokens
		found = fmt.Sprintf("ROWS FROM (unnest(%s), unnest(%s)) AS lease(name, token) WHERE dlock_release_after(name, %s, %s, token)",
			marks[0], marks[3], marks[1], marks[2])
	}
	byCall := calls && function != "dlock_release_many"
	if byCall && strings.HasPrefix(function, "dlock_acquire") {
		bound[len(bound)-2] = 0.0 // the wait, which is the client's
	}
	switch {
	case byCall:
	case k.isMySQL:
		call = "CAST(" + call + " AS BINARY)"
		if function == leave {
			call += found
		}
	case isMany:
		call = "encode(convert_to(coalesce(json_agg(name), '[]')::text, 'UTF8'), 'hex') FROM " + found
	default:
		call += "::text"
	}
	var answer, names sql.NullString
	columns, verb := []interface{}{&answer}, "SELECT "
	if byCall {
		verb = "CALL "
		if isMany {
			columns = []interface{}{&names, &answer} // and their places in what was asked
		}
	}
	if err := k.connection.QueryRowContext(ctx, verb+call, bound...).Scan(columns...); err != nil || !answer.Valid {
		return nil, err
	}
	if isMany && !byCall {
		text, err := []byte(answer.String), error(nil)
		if !k.isMySQL {
			if text, err = hex.DecodeString(answer.String); err != nil {
				return nil, err
			}
		}
		var names []string
		err = json.Unmarshal(text, &names)
		return names, err
	}
	// 1, [1, 2], or on PostgreSQL {1,2}
	var numbers []int64
	err := json.Unmarshal([]byte("["+strings.Trim(answer.String, "[]{}")+"]"), &numbers)
	if !isMany {
		return numbers, err
	}
	renewed := []string{}
	for _, place := range numbers {
		renewed = append(renewed, args[0].([]string)[place-1])
	}
	return renewed, err
}

// leaveEach is leave by procedures, of which there is none for many names.
func (k *link) leaveEach(ctx context.Context, args []interface{}) (interface{}, error) {
	left := []string{}
	for i, name := range args[0].([]string) {
		call, _, bound := expression(false, "dlock_release_after", name, args[1], args[2], args[3].([]int64)[i])
		var isDone sql.NullBool
		if err := k.connection.QueryRowContext(ctx, "CALL "+call, bound...).Scan(&isDone); err != nil {
			return nil, err
		}
		if isDone.Bool {
			left = append(left, name)
		}
	}
	return left, nil
}
