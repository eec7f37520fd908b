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
// A lease is acquired, and renewed by a goroutine until it is released; if that does not work, the
// program learns in time that it is lost.  clients/CONTRACT.md says what all clients of dlock keep.
// It needs the standard library only: copy these files.
//
// Every statement runs in a goroutine of its own.  Its caller waits only for a limited time, since
// a driver may block although its context has ended.
//
// SPDX-License-Identifier: PostgreSQL
package dlock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	releaseLimit = 5 * time.Second // for which a release is tried at most
	firstPause   = 50 * time.Millisecond
)

// Class says what to do about an error.
type Class string

const (
	Busy        Class = "busy"        // not free within the wait, or a deadlock: try later
	Lost        Class = "lost"        // the lease ended before it was released: stop, and acquire again
	Misuse      Class = "misuse"      // an argument, a privilege or the order of calls is wrong: do not try again
	Unavailable Class = "unavailable" // no server answered, or none that can do it now: try again
)

// Error is the type of all errors here, except those of a context.
type Error struct {
	Class    Class
	SQLState string // where the driver shows one
	Number   uint16 // MySQL's and MariaDB's
	Message  string
	Err      error // the driver's own
}

func (e *Error) Error() string { return "dlock: " + string(e.Class) + ": " + e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Is says whether an error is of a class.
func Is(err error, class Class) bool {
	var ours *Error
	return errors.As(err, &ours) && ours.Class == class
}

var misuseNumbers = map[uint16]bool{1044: true, 1045: true, 1046: true, 1049: true, 1064: true, 1122: true, 1123: true,
	1130: true, 1138: true, 1142: true, 1143: true, 1227: true, 1234: true, 1235: true, 1292: true, 1305: true, 1370: true,
	1410: true, 1698: true, 1820: true, 1862: true, 3037: true, 3118: true, 3955: true, 4151: true}

// told makes an Error of a driver's error.
func told(err error) *Error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	e := &Error{Class: Unavailable, Message: err.Error(), Err: err}
	var withState interface{ SQLState() string } // pq.Error, pgconn.PgError
	if errors.As(err, &withState) {
		e.SQLState = withState.SQLState()
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) { // mysql.MySQLError
		if v := reflect.Indirect(reflect.ValueOf(cause)); v.Kind() == reflect.Struct {
			if number := v.FieldByName("Number"); number.IsValid() && number.Kind() == reflect.Uint16 {
				e.Number = uint16(number.Uint())
			}
		}
	}
	switch {
	// pgx's and lib/pq's own, about settings with which they do not work
	case e.SQLState == "" && (strings.Contains(e.Message, "client_encoding") || strings.Contains(e.Message, "standard_conforming_strings")):
		e.Class = Misuse
	case e.SQLState == "55L01" || e.Number == 1644:
		e.Class = Lost
	case e.SQLState == "40P01" || e.Number == 3058:
		e.Class = Busy
	case misuseNumbers[e.Number],
		// MariaDB has one number for a guard outside a transaction and for errors that may pass
		e.Number == 1105 && strings.Contains(e.Message, "can only be used in transactions"):
		e.Class = Misuse
	case len(e.SQLState) == 5:
		switch e.SQLState[:2] {
		case "22", "28", "42":
			e.Class = Misuse
		}
		switch e.SQLState {
		case "0A000", "25P01", "3D000", "3F000", "54000", "55000":
			e.Class = Misuse
		}
	}
	return e
}

// isAnswer says whether the server has sent it, and not only the driver.
func isAnswer(err error) bool {
	var ours *Error
	return errors.As(err, &ours) && (ours.SQLState != "" || ours.Number != 0)
}

// reason is, of the errors of two attempts, the one to tell: the later answer of the server, or if
// there is none, the later one.
func reason(err, before error) error {
	if isAnswer(before) && !isAnswer(err) {
		return before
	}
	return err
}

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
	// If released sooner than this after the grant, it is not given back, but left to end at that
	// time.
	KeepAtLeast time.Duration
}

// Lease is one that is, or was, held.
type Lease struct {
	Options
	names       []string
	ownerIsOurs bool
	request     string
	margin      time.Duration
	tokens      []int64
	keepUntil   time.Duration
	lost        chan struct{}
	done        chan struct{} // lost or released

	mutex    sync.Mutex // guards what follows
	state    string     // waiting, held, lost, released
	deadline time.Duration
	link     *link
	cause    error
}

// Run calls work while the lease is held, with a context that ends when the lease is lost, and then
// releases it, also if work panics.  It returns work's error, or that the lease was lost if work
// ended well or because of that context.
func Run(ctx context.Context, options Options, work func(context.Context, *Lease) error) error {
	lease, err := Acquire(ctx, options)
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

// Acquire waits for a lease.  The end of the context ends the wait.
func Acquire(ctx context.Context, options Options) (*Lease, error) {
	l := &Lease{Options: options, names: options.Names, ownerIsOurs: options.Owner == "", request: random(),
		margin: options.TTL / 10, lost: make(chan struct{}), done: make(chan struct{}), state: "waiting"}
	if len(l.names) == 0 {
		l.names = []string{l.Name}
	} else if l.Name != "" || l.Shared || l.Permits != 0 {
		return nil, &Error{Class: Misuse, Message: "Names excludes Name, Shared and Permits"}
	}
	if l.Shared && l.Permits != 0 {
		return nil, &Error{Class: Misuse, Message: "Shared excludes Permits"}
	}
	for _, text := range append([]string{l.Owner}, l.names...) {
		if !utf8.ValidString(text) {
			return nil, &Error{Class: Misuse, Message: fmt.Sprintf("%q is not UTF-8", text)}
		}
	}
	if l.margin > time.Second {
		l.margin = time.Second
	}
	if l.ownerIsOurs {
		host, _ := os.Hostname()
		l.Owner = fmt.Sprintf("%.180s/%d/%s", host, os.Getpid(), random())
	}
	if l.ConnectTimeout == 0 {
		l.ConnectTimeout = 10 * time.Second
	}
	if err := l.acquire(ctx); err != nil {
		l.state = "released"
		return nil, err
	}
	go l.keep()
	return l, nil
}

func random() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(err)
	}
	return hex.EncodeToString(bytes)
}

// Token is that of the grant; if there are several names, of the first.
func (l *Lease) Token() int64 { return l.tokens[0] }

// Tokens are in the order of the names.
func (l *Lease) Tokens() []int64 { return append([]int64(nil), l.tokens...) }

// Lost is closed when the lease is lost.  Check() says so no later.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Context is one that ends when the lease is lost or released.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Held says whether it is held, and safely so.
func (l *Lease) Held() bool { return l.Check() == nil }

// Deadline is by Now().
func (l *Lease) Deadline() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.deadline
}

// Remaining is the time to the deadline; 0 if it is not held.
func (l *Lease) Remaining() time.Duration {
	if !l.Held() {
		return 0
	}
	return l.Deadline() - Now()
}

// Check returns an error if the lease is lost or released.  It compares the clock first.
func (l *Lease) Check() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.look()
	switch l.state {
	case "held":
		return nil
	case "lost":
		e := &Error{Class: Lost, Message: strings.Join(l.names, ", ") + ": the lease is lost", Err: l.cause}
		if l.cause != nil {
			cause := told(l.cause)
			e.SQLState, e.Number = cause.SQLState, cause.Number
		}
		return e
	}
	return &Error{Class: Misuse, Message: "the lease is " + l.state}
}

// Guard guards the lease in the program's own transaction.  If it returns an error of class Lost, roll back;
// if the transaction commits, this lease was the only holder when it did.
func (l *Lease) Guard(ctx context.Context, tx interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
}) error {
	if err := l.Check(); err != nil {
		return err
	}
	for i, name := range l.names {
		verb, function := "SELECT ", "dlock_guard"
		if l.MySQL {
			verb, function = "CALL ", "dlock.guard"
		}
		call, bound, err := expression(l.MySQL, function, name, l.Owner, l.tokens[i])
		if err == nil {
			_, err = tx.ExecContext(ctx, verb+call, bound...)
		}
		if err != nil {
			e := told(err)
			if e.Class == Lost {
				l.mutex.Lock()
				l.lose(err)
				l.mutex.Unlock()
			}
			return e
		}
	}
	return nil
}

// Release gives it back, and says whether the server has confirmed that.  If it cannot be released
// it ends at its deadline, which is no error.
func (l *Lease) Release() bool {
	l.mutex.Lock()
	l.look()
	was, link := l.state, l.link
	if was == "released" {
		l.mutex.Unlock()
		return false
	}
	l.state, l.link = "released", nil
	if was == "held" {
		close(l.done)
	}
	limit := l.deadline - Now()
	l.mutex.Unlock()
	if was == "lost" {
		limit = time.Second // a lost lease may still be held, but is not worth a new connection
	} else if limit > releaseLimit {
		limit = releaseLimit
	}
	return l.release(link, Now()+limit, was == "held")
}

// ------------------------------------------------------------------------------------ connections

// link is a connection of the lease's own.  After an error it is of no use any more.
type link struct {
	connection *sql.Conn
	// for one statement at a time
	turn chan struct{}
}

// until is a context that ends at a time of Now(), looking at the clock in short steps.
func until(parent context.Context, end time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		for {
			left := end - Now()
			if left <= 0 {
				cancel()
				return
			}
			if left > longestNap {
				left = longestNap
			}
			timer := time.NewTimer(left)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}()
	return ctx, cancel
}

var errLate = &Error{Class: Unavailable, Message: "the server did not answer in time"}

// open connects, until then.
func (l *Lease) open(ctx context.Context, end time.Duration) (*link, error) {
	limited, cancel := until(ctx, end)
	opened := make(chan *link)
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		connection, err := l.DB.Conn(limited)
		if err != nil {
			failed <- err
			return
		}
		link := &link{connection, make(chan struct{}, 1)}
		select {
		case opened <- link:
		case <-limited.Done():
			link.close(false)
		}
	}()
	var err error
	select {
	case link := <-opened:
		return link, nil
	case err = <-failed:
	case <-limited.Done():
		select { // it may be done because the attempt has failed
		case err = <-failed:
		default:
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && Now() < end {
		return nil, told(err)
	}
	return nil, errLate
}

// close closes the connection; it goes back to the pool if it is good.
func (k *link) close(good bool) {
	go func() {
		k.turn <- struct{}{} // when the driver lets go of it
		if !good {
			_ = k.connection.Raw(func(interface{}) error { return driver.ErrBadConn })
		}
		_ = k.connection.Close()
	}()
}

// ask calls a function, and returns its answer, nil for NULL, and when the request was sent.  If
// the context or the time ends, or there is an error, it closes the connection.
func (l *Lease) ask(ctx context.Context, k *link, end time.Duration, function string, args ...interface{}) (interface{}, time.Duration, error) {
	type result struct {
		answer interface{}
		sent   time.Duration
		err    error
	}
	limited, cancel := until(ctx, end)
	results := make(chan result, 1)
	go func() {
		defer cancel()
		k.turn <- struct{}{}
		sent := Now()
		answer, err := l.call(limited, k, function, args)
		<-k.turn
		results <- result{answer, sent, err}
	}()
	var r result
	select {
	case r = <-results:
	case <-limited.Done():
		select { // the answer may have come as well
		case r = <-results:
		default:
			r.err = errLate
		}
	}
	if r.err != nil {
		k.close(false)
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if errors.Is(r.err, context.Canceled) {
			r.err = errLate // our limit, which is no cancellation of the program's
		}
		return nil, 0, told(r.err)
	}
	return r.answer, r.sent, nil
}

// expression is a call of a function, and the values to bind in it.  It means the same whatever the
// program has set: text is bound in hexadecimal digits, so that neither the quotes of a driver that
// pastes values into statements matter, nor the encoding of the session.
func expression(isMySQL bool, function string, args ...interface{}) (string, []interface{}, error) {
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
			list, err := json.Marshal(arg)
			if err != nil {
				return "", nil, err
			}
			bound[i] = hex.EncodeToString(list)
			format = "ARRAY(SELECT json_array_elements_text(convert_from(decode(%s::text, 'hex'), 'UTF8')::json))"
		case []int64:
			list, err := json.Marshal(arg)
			if err != nil {
				return "", nil, err
			}
			bound[i], format = string(list), "ARRAY(SELECT json_array_elements_text(%s::text::json)::bigint)"
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
	return function + "(" + strings.Join(marks, ", ") + ")", bound, nil
}

// call makes the statement of a function, and reads its answer: a list of either tokens or names, or
// nil.  The answer is bytes, or ASCII, which neither drivers nor the encoding of the session change.
func (l *Lease) call(ctx context.Context, k *link, function string, args []interface{}) (interface{}, error) {
	call, bound, err := expression(l.MySQL, function, args...)
	if err != nil {
		return nil, err
	}
	isMany := strings.HasSuffix(function, "_many")
	switch {
	case l.MySQL:
		call = "CAST(" + call + " AS BINARY)"
	case isMany:
		call = "encode(convert_to(coalesce(json_agg(name), '[]')::text, 'UTF8'), 'hex') FROM " + call + " AS name"
	case function == "dlock_acquire_all":
		call = "array_to_json(" + call + ")::text"
	default:
		call += "::text"
	}
	var answer sql.NullString
	if err := k.connection.QueryRowContext(ctx, "SELECT "+call, bound...).Scan(&answer); err != nil || !answer.Valid {
		return nil, err
	}
	if isMany {
		text := []byte(answer.String)
		if !l.MySQL {
			if text, err = hex.DecodeString(answer.String); err != nil {
				return nil, err
			}
		}
		var names []string
		err = json.Unmarshal(text, &names)
		return names, err
	}
	if function != "dlock_acquire_all" {
		answer.String = "[" + answer.String + "]"
	}
	var tokens []int64
	err = json.Unmarshal([]byte(answer.String), &tokens)
	return tokens, err
}

// Requests: a function, and its arguments.

func (l *Lease) acquireRequest(wait time.Duration) (string, []interface{}) {
	if len(l.Names) > 0 {
		return "dlock_acquire_all", []interface{}{l.names, l.Owner, l.TTL, wait, l.request}
	}
	if l.Permits != 0 {
		return "dlock_acquire_permit", []interface{}{l.Name, l.Owner, l.TTL, l.Permits, wait, l.request}
	}
	function := "dlock_acquire"
	if l.Shared {
		function = "dlock_acquire_shared"
	}
	return function, []interface{}{l.Name, l.Owner, l.TTL, wait, l.request}
}

func (l *Lease) renewRequest(tokens []int64, ttl time.Duration) (string, []interface{}) {
	return "dlock_renew_many", []interface{}{l.names, l.Owner, ttl, tokens}
}

// Without tokens: any hold of the owner.
func (l *Lease) releaseRequest(tokens []int64) (string, []interface{}) {
	if tokens == nil {
		return "dlock_release_many", []interface{}{l.names, l.Owner}
	}
	return "dlock_release_many", []interface{}{l.names, l.Owner, tokens}
}

// isDone says whether a renewal or a release was done, for all names.
func (l *Lease) isDone(answer interface{}) bool {
	names, _ := answer.([]string)
	return len(names) == len(l.names)
}

// ------------------------------------------------------------------------------------ the acquire

const forever = time.Duration(1<<63 - 1)

func earlier(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func (l *Lease) acquire(ctx context.Context) (err error) {
	start := Now()
	// until a server was reached; then without limit, or until the wait is over and the server has had its time to answer
	last := start + l.ConnectTimeout
	var k *link
	asked := false
	defer func() {
		if err == nil {
			return
		}
		if k != nil {
			k.close(false)
		}
		// it may have been granted, though no answer came
		if !asked || Is(err, Busy) || Is(err, Misuse) {
			return
		}
		limit := releaseLimit
		if Is(err, Unavailable) {
			limit = time.Second
		}
		l.giveBack(Now() + limit)
	}()
	var before error
	for pause := firstPause; ; pause = earlier(2*pause, time.Second) {
		err = func() error {
			if k == nil {
				var err error
				if k, err = l.open(ctx, earlier(last, Now()+l.ConnectTimeout/3)); err != nil {
					return err
				}
				last = forever
				if l.Wait >= 0 {
					last = start + l.Wait + l.ConnectTimeout
				}
			}
			for {
				left := l.Wait
				if l.Wait >= 0 {
					if left = start + l.Wait - Now(); left < 0 {
						left = 0
					}
				}
				asked = true
				function, args := l.acquireRequest(left)
				answer, sent, err := l.ask(ctx, k, last, function, args...)
				if err != nil {
					k = nil
					return err
				}
				tokens, _ := answer.([]int64)
				if tokens == nil {
					k.close(true)
					k = nil
					return &Error{Class: Busy, Message: fmt.Sprintf("%s not free within %v", strings.Join(l.names, ", "), l.Wait)}
				}
				if Now()-sent > l.TTL/3 {
					// when was it granted?
					function, args := l.renewRequest(tokens, l.TTL)
					if answer, sent, err = l.ask(ctx, k, Now()+l.TTL/3, function, args...); err != nil {
						k = nil
						return err
					}
					if !l.isDone(answer) {
						continue // it is over: go on waiting
					}
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if Now() < sent+l.TTL-l.margin {
					l.link, l.tokens, l.deadline = k, tokens, sent+l.TTL
					l.keepUntil = Now() + l.KeepAtLeast
					l.state = "held"
					return nil
				}
				// this took too long: the same request again moves the deadline
			}
		}()
		if !Is(err, Unavailable) {
			return err
		}
		before = reason(err, before)
		if Now()+pause >= last {
			return before
		}
		if err := sleep(ctx, nil, Now()+pause); err != nil {
			return err
		}
	}
}

// giveBack gives back what an acquire that was given up may have been granted.
func (l *Lease) giveBack(end time.Duration) {
	ctx := context.Background()
	k, err := l.open(ctx, end)
	if err != nil {
		return // it ends at its deadline
	}
	var tokens []int64
	if !l.ownerIsOurs {
		// the owner may have other holds: repeating the request id finds this one's, or takes one
		// more
		function, args := l.acquireRequest(0)
		answer, _, err := l.ask(ctx, k, end, function, args...)
		if err != nil {
			return
		}
		if tokens, _ = answer.([]int64); tokens == nil {
			k.close(true)
			return
		}
	}
	function, args := l.releaseRequest(tokens)
	if _, _, err := l.ask(ctx, k, end, function, args...); err == nil {
		k.close(true)
	}
}

var errStopped = errors.New("the lease is not held any more")

// sleep waits for a time; an error if the context ends, or "done" is closed.
func sleep(ctx context.Context, done <-chan struct{}, end time.Duration) error {
	for {
		left := end - Now()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(earlier(left, longestNap))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-done:
			timer.Stop()
			return errStopped
		}
	}
}

// ---------------------------------------------------------------------------------- the heartbeat

// keep renews until the lease is lost or released.  It never waits for a driver beyond the
// deadline.
func (l *Lease) keep() {
	ctx := context.Background()
	for {
		if sleep(ctx, l.done, l.Deadline()-l.TTL*2/3) != nil {
			return
		}
		for pause := firstPause; ; pause = earlier(2*pause, time.Second) {
			renewed, err := l.renew(ctx)
			if err == nil && renewed {
				break
			}
			if err == nil || sleep(ctx, l.done, earlier(Now()+pause, l.Deadline()-l.margin)) != nil {
				return
			}
			if l.Check() != nil {
				return
			}
		}
	}
}

// renew makes one attempt; false: the lease is not held any more.
func (l *Lease) renew(ctx context.Context) (bool, error) {
	l.mutex.Lock()
	l.look()
	isHeld, before, end := l.state == "held", l.link, earlier(Now()+l.TTL/3, l.deadline-l.margin)
	l.mutex.Unlock()
	if !isHeld {
		return false, nil
	}
	var err error
	k := before
	if k == nil {
		k, err = l.open(ctx, end)
	}
	var answer interface{}
	var sent time.Duration
	if err == nil {
		function, args := l.renewRequest(l.tokens, l.TTL)
		answer, sent, err = l.ask(ctx, k, end, function, args...)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.look()
	if l.state != "held" {
		if err == nil && before == nil {
			k.close(true) // otherwise it is the release's
		}
		return false, nil
	}
	if err != nil {
		l.link, l.cause = nil, reason(err, l.cause)
		return false, err
	}
	l.link = k
	if !l.isDone(answer) {
		l.lose(nil)
		return false, nil
	}
	l.deadline, l.cause = sent+l.TTL, nil
	return true, nil
}

// look compares the clock with the deadline; the caller has the mutex.
func (l *Lease) look() {
	if l.state == "held" && Now() >= l.deadline-l.margin {
		if l.cause == nil {
			l.cause = &Error{Class: Unavailable, Message: "it was not renewed in time"}
		}
		l.lose(l.cause)
	}
}

// lose says that the lease is lost; the caller has the mutex.
func (l *Lease) lose(cause error) {
	if l.state == "held" {
		l.state, l.cause = "lost", cause
		close(l.lost)
		close(l.done)
	}
}

// ------------------------------------------------------------------------------------ the release

// release gives the lease back, by this connection or, if "again", by new ones.
func (l *Lease) release(k *link, end time.Duration, again bool) bool {
	ctx := context.Background()
	for pause := firstPause; k != nil || again && Now() < end; pause = earlier(2*pause, time.Second) {
		limit := l.TTL / 3
		if limit > releaseLimit/2 {
			limit = releaseLimit / 2
		}
		limit = earlier(end, Now()+limit)
		var err error
		if k == nil {
			k, err = l.open(ctx, limit)
		}
		if err == nil {
			function, args := l.releaseRequest(l.tokens)
			if left := l.keepUntil - Now(); again && left > 0 {
				if !l.ownerIsOurs && left < l.TTL {
					left = l.TTL // the owner may have other holds, which must not end sooner
				}
				function, args = l.renewRequest(l.tokens, left)
			}
			var answer interface{}
			if answer, _, err = l.ask(ctx, k, limit, function, args...); err == nil {
				k.close(true)
				return l.isDone(answer)
			}
			if !l.ownerIsOurs {
				return false // it may have been done; a second one would take another hold of the owner
			}
		}
		k = nil
		if again {
			_ = sleep(ctx, nil, earlier(Now()+pause, end))
		}
	}
	return false
}
