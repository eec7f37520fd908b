// Cases that only the client for Go has.  Prints TAP; its arguments are the drivers.

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dlock"

	"github.com/jackc/pgx/v4"
)

var (
	background    = context.Background()
	count, failed int
)

func ok(passed bool, what string) bool {
	count++
	word := "ok"
	if !passed {
		failed++
		word = "not ok"
	}
	fmt.Println(word, count, "-", what)
	return passed
}

// works is for what has no error.
func works(err error, what string) bool {
	if !ok(err == nil, what) {
		fmt.Println("#  ", err)
		return false
	}
	return true
}

// fails is for an error of this class.
func fails(err error, class dlock.Class, what string) {
	if !ok(dlock.Is(err, class), what) {
		fmt.Println("#  ", err)
	}
}

// a busy machine has more time to connect than the ten seconds that a client has by itself
const patience = 180 * time.Second

// bench is where the cases are tried: one driver.
type bench struct {
	driver  string
	isMySQL bool
	db      *sql.DB
}

func (b *bench) open(with settings) *sql.DB { return openWith(b.driver, os.Getenv("DLOCK_PORT"), with) }

func (b *bench) options(db *sql.DB, name string) dlock.Options {
	return dlock.Options{DB: db, MySQL: b.isMySQL, Name: name, TTL: time.Minute, ConnectTimeout: patience}
}

// holds is how many leases of a name there are, by a connection without settings.
func (b *bench) holds(name string) int {
	query := "SELECT count(*) FROM dlock.locks WHERE name = convert_from(decode($1, 'hex'), 'UTF8') AND remaining > 0"
	if b.isMySQL {
		query = "SELECT JSON_LENGTH(dlock_holders(UNHEX(?)))"
	}
	var n int
	must(b.db.QueryRow(query, hex.EncodeToString([]byte(name))).Scan(&n))
	return n
}

// simple makes pgx paste values into statements.
func simple(config *pgx.ConnConfig) { config.PreferSimpleProtocol = true }

// A name is the same, whatever the program has set, in calls and at a guard.
func (b *bench) settings() {
	no := []string{"SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"}
	all := map[string]map[string]settings{
		"mysql": {
			"pasted":             {parameters: "interpolateParams=true"},
			"quotes":             {session: no},
			"quotes, pasted":     {parameters: "interpolateParams=true", session: no},
			"latin1":             {parameters: "charset=latin1"},
			"latin1, pasted":     {parameters: "charset=latin1&interpolateParams=true"},
			"gbk, later, pasted": {parameters: "interpolateParams=true", session: []string{"SET NAMES gbk"}},
			"half latin1":        {session: []string{"SET character_set_client = latin1"}},
			"binary, pasted":     {parameters: "interpolateParams=true", session: []string{"SET NAMES binary"}},
			"answers in utf16":   {session: []string{"SET character_set_results = utf16"}},
			"odd":                odd["mysql"],
		},
		"pgx": {
			"pasted":     {pgx: simple},
			"described":  {parameters: "statement_cache_mode=describe"},
			"no cache":   {parameters: "statement_cache_capacity=0"},
			"LATIN1":     {session: []string{"SET client_encoding = LATIN1"}},
			"SQL_ASCII":  {parameters: "options='-c client_encoding=SQL_ASCII'"},
			"odd":        odd["pgx"],
			"wrapped":    {wrapped: true},
			"role's own": {parameters: "client_encoding=LATIN1"},
		},
		"pq": {
			"binary":         {parameters: "binary_parameters=yes"},
			"LATIN1":         {session: []string{"SET client_encoding = LATIN1"}},
			"LATIN1, binary": {parameters: "binary_parameters=yes", session: []string{"SET client_encoding = LATIN1"}},
			"odd":            odd["pq"],
			"options":        {parameters: "options='-c client_encoding=LATIN1'"},
		},
	}
	name := `it's"a\', 'x', 'é€😀` + "\n`%?$1"
	for what, with := range all[b.driver] {
		db := b.open(with)
		what = b.driver + ", " + what + ": "
		both := b.options(db, "")
		both.Names = []string{name, "another " + name}
		for kind, options := range map[string]dlock.Options{"one": b.options(db, name), "two": both} {
			lease, err := dlock.Acquire(background, options)
			if !works(err, what+kind+" held") {
				continue
			}
			ok(b.holds(name) == 1, what+"by its name")
			tx, err := db.Begin()
			must(err)
			works(lease.Guard(background, tx), what+"guarded")
			works(tx.Commit(), what+"committed")
			_, err = dlock.Acquire(background, b.options(b.db, name))
			fails(err, dlock.Busy, what+"busy for others")
			ok(lease.Release(), what+"released")
			ok(b.holds(name) == 0, what+"by its name")
		}
		db.Close()
	}
	_, err := dlock.Acquire(background, b.options(b.db, "x\xff"))
	fails(err, dlock.Misuse, b.driver+": a name without UTF-8")

	// what a client cannot work with
	wrong := map[string]map[string]settings{
		"mysql": {"ucs2, pasted": {parameters: "interpolateParams=true", session: []string{"SET collation_connection = ucs2_bin"}}},
		"pgx": {"LATIN1, pasted": {pgx: simple, session: []string{"SET client_encoding = LATIN1"}},
			"backslashes, pasted": {pgx: simple, session: []string{"SET standard_conforming_strings = off"}}},
		"pq": {"LATIN1 in the name": {parameters: "client_encoding=LATIN1"}},
	}
	for what, with := range wrong[b.driver] {
		db := b.open(with)
		_, err := dlock.Acquire(background, b.options(db, name))
		fails(err, dlock.Misuse, b.driver+", "+what+": misuse")
		ok(b.holds(name) == 0, b.driver+", "+what+": nothing is held")
		db.Close()
	}
}

// until polls.
func until(isSo func() bool) bool {
	for end := time.Now().Add(patience); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (b *bench) client(db *sql.DB, onEvent func(dlock.EventKind, string, time.Duration)) *dlock.Client {
	client, err := dlock.NewClient(dlock.ClientOptions{DB: db, MySQL: b.isMySQL, OnEvent: onEvent})
	must(err)
	return client
}

// of is a lease of a client.
func of(name string, ttl time.Duration) dlock.Options {
	return dlock.Options{Name: name, TTL: ttl, ConnectTimeout: patience}
}

// counter counts events, by kind and name.
type counter struct {
	mutex sync.Mutex
	n     map[string]int
}

func (c *counter) add(kind dlock.EventKind, name string, _ time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[string(kind)+" "+name]++
}

func (c *counter) of(what string) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.n[what]
}

// What a program does with its sql.DB.
func (b *bench) pool() {
	what := b.driver + ", a pool of one: "
	db := b.open(settings{})
	db.SetMaxOpenConns(1)
	for i := 0; i < 2; i++ {
		var events counter
		options := b.options(db, "pool of one")
		options.TTL, options.OnEvent = 2*time.Second, events.add
		err := dlock.Run(background, options, func(ctx context.Context, lease *dlock.Lease) error {
			until(func() bool { return events.of("renewed pool of one") > 1 || lease.Check() != nil })
			return lease.Check()
		})
		works(err, what+"one lease is renewed")
	}
	_, err := dlock.NewClient(dlock.ClientOptions{DB: db, MySQL: b.isMySQL})
	fails(err, dlock.Misuse, what+"a client needs two")
	used, err := db.Conn(background)
	must(err)
	options := b.options(db, "pool of one")
	options.ConnectTimeout = 300 * time.Millisecond
	_, err = dlock.Acquire(background, options)
	fails(err, dlock.Unavailable, what+"the program has it")
	ok(err != nil && strings.Contains(err.Error(), "all 1 connections of the sql.DB are in use"), what+"and is told so")
	used.Close()
	ok(until(func() bool { return db.Stats().InUse == 0 }), what+"it is back")
	db.Close()

	what = b.driver + ", short connections: "
	db = b.open(settings{})
	db.SetConnMaxLifetime(time.Millisecond)
	db.SetConnMaxIdleTime(time.Millisecond)
	var events counter
	client := b.client(db, events.add)
	for _, name := range []string{"short 1", "short 2"} {
		_, err = client.Acquire(background, of(name, 3*time.Second))
		works(err, what+"held")
	}
	ok(until(func() bool { return events.of("renewed short 1") > 1 && events.of("renewed short 2") > 1 }), what+"renewed")
	must(client.Close(background))
	ok(b.holds("short 1")+b.holds("short 2") == 0, what+"released")
	ok(until(func() bool { return db.Stats().OpenConnections == 0 }), what+"no connection is left")
	db.Close()
}

// What a client refuses, and what it waits for.
func (b *bench) names() {
	what := b.driver + ", names: "
	client := b.client(b.db, nil)
	one, err := client.Acquire(background, of("names 1", time.Minute))
	works(err, what+"held")
	_, err = client.Acquire(background, of("names 1", time.Minute))
	fails(err, dlock.Misuse, what+"again")
	both := of("", time.Minute)
	both.Names = []string{"names 2", "names 1"}
	_, err = client.Acquire(background, both)
	fails(err, dlock.Misuse, what+"in a list")
	ok(one.Release(), what+"released")
	two, err := client.Acquire(background, both)
	works(err, what+"and then in a list")
	ok(two.Release(), what+"released")
	// an acquire that is refused gives its names back
	other, err := dlock.Acquire(background, b.options(b.db, "names 1"))
	works(err, what+"somebody else has it")
	for i := 0; i < 2; i++ {
		_, err = client.Acquire(background, of("names 1", time.Minute))
		fails(err, dlock.Busy, what+"busy")
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	for i := 0; i < 2; i++ {
		_, err = client.Acquire(ended, of("names 1", time.Minute))
		ok(errors.Is(err, context.Canceled), what+"canceled before it begins")
	}
	// a wait that ends with the client
	waiting := of("names 1", time.Minute)
	waiting.Wait = -1
	result := make(chan error)
	go func() {
		_, err := client.Acquire(background, waiting)
		result <- err
	}()
	waiters := "SELECT count(*) FROM dlock.waiters WHERE name = 'names 1'"
	if b.isMySQL {
		waiters = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%dlock_acquire%' AND id <> connection_id()"
	}
	count := func() (n int) {
		must(b.db.QueryRow(waiters).Scan(&n))
		return
	}
	ok(until(func() bool { return count() == 1 }), what+"one waits")
	must(client.Close(background))
	fails(<-result, dlock.Misuse, what+"until the client is closed")
	ok(until(func() bool { return count() == 0 }), what+"nobody waits")
	_, err = client.Acquire(background, of("names 2", time.Minute))
	fails(err, dlock.Misuse, what+"it is closed")
	ok(other.Release(), what+"released")

	// a lease that is kept
	what = b.driver + ", kept: "
	client = b.client(b.db, nil)
	name := fmt.Sprint("kept ", b.driver, os.Getpid())
	options := of(name, time.Minute)
	options.KeepAtLeast = time.Hour
	kept, err := client.Acquire(background, options)
	works(err, what+"held")
	ok(kept.Release(), what+"left")
	_, err = client.Acquire(background, of(name, time.Minute))
	fails(err, dlock.Busy, what+"not even the same client has it")
	ok(b.holds(name) == 1, what+"it is kept")
	must(client.Close(background))
}

// Functions for events that block and panic, and leases that the program drops.
func (b *bench) program() {
	what := b.driver + ", events: "
	log.SetOutput(io.Discard)
	goOn := make(chan bool)
	var others, all counter
	panics := func(kind dlock.EventKind, name string, duration time.Duration) {
		all.add(kind, name, duration)
		panic("on purpose")
	}
	client := b.client(b.db, panics)
	blocking := of("blocking", 2*time.Second)
	blocking.OnEvent = func(dlock.EventKind, string, time.Duration) { <-goOn }
	blocked, err := client.Acquire(background, blocking)
	works(err, what+"held")
	counted := of("counted", 2*time.Second)
	counted.OnEvent = others.add
	_, err = client.Acquire(background, counted)
	works(err, what+"held")
	ok(until(func() bool { return others.of("renewed counted") > 3 && all.of("renewed blocking") > 3 }), what+"a function that blocks or panics stops no renewal")
	ok(blocked.Held(), what+"nor loses its lease")
	close(goOn)
	must(client.Close(background))
	ok(until(func() bool { return others.of("released counted") == 1 && all.of("released blocking") == 1 }), what+"released")

	what = b.driver + ", dropped: "
	var said logged
	log.SetOutput(&said)
	var events counter
	client = b.client(b.db, events.add)
	func() {
		_, err := client.Acquire(background, of("dropped", 2*time.Second))
		works(err, what+"held")
	}()
	isDropped := func(name string) func() bool {
		return func() bool {
			runtime.GC()
			return events.of("unreferenced "+name) == 1
		}
	}
	ok(until(isDropped("dropped")), what+"told")
	ok(strings.Contains(said.String(), "dropped: the program has dropped the lease"), what+"in the log")
	before := events.of("renewed dropped")
	ok(until(func() bool { return events.of("renewed dropped") > before+2 }), what+"and renewed")
	works(client.Run(background, of("run", 2*time.Second), func(context.Context, *dlock.Lease) error {
		ok(until(func() bool { runtime.GC(); return events.of("renewed run") > 1 }), what+"one that a block releases")
		return nil
	}), what+"run")
	func() {
		lease, err := client.Acquire(background, of("deferred", 2*time.Second))
		works(err, what+"held")
		defer lease.Release()
		ok(until(func() bool { runtime.GC(); return events.of("renewed deferred") > 1 }), what+"one whose release is deferred")
	}()
	ok(until(func() bool { return events.of("released deferred") == 1 }), what+"released")
	ok(events.of("unreferenced run")+events.of("unreferenced deferred") == 0, what+"are not dropped")
	must(client.Close(background))
	ok(b.holds("dropped") == 0, what+"the client releases it")
	log.SetOutput(os.Stderr)
}

type logged struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

// refusal is an error of a server.
type refusal struct{ error }

func (refusal) SQLState() string { return "57014" }

// namesIn are those of a call.
func namesIn(args []driver.NamedValue) (names []string) {
	text, _ := args[0].Value.(string)
	list, err := hex.DecodeString(text)
	if err != nil {
		return nil
	}
	return strings.Split(strings.Trim(string(list), `{}"`), `","`)
}

// One lease that cannot be renewed, among others; and drivers that do not come back.
func (b *bench) faults() {
	if b.isMySQL {
		return // whose driver does without QueryContext
	}
	for kind, fault := range map[string]error{"refused": refusal{errors.New("refused")}, "cut": errors.New("cut")} {
		what := b.driver + ", one is " + kind + ": "
		var mutex sync.Mutex
		var calls []int
		isMixed := false
		spoil := func(query string, args []driver.NamedValue) error {
			if !strings.Contains(query, "dlock_renew_many") {
				return nil
			}
			names := namesIn(args)
			mutex.Lock()
			defer mutex.Unlock()
			calls = append(calls, len(names))
			isSpoilt, isSlow := false, false
			for _, name := range names {
				isSpoilt = isSpoilt || name == "fault 7"
				isSlow = isSlow || strings.HasPrefix(name, "slow")
			}
			isMixed = isMixed || isSlow && !strings.HasPrefix(names[0], "slow")
			if isSpoilt {
				return fault
			}
			return nil
		}
		db := b.open(settings{wrapped: true, spoil: spoil})
		var events counter
		client := b.client(db, events.add)
		leases := make(map[string]*dlock.Lease)
		for i := 0; i < 20; i++ {
			name := fmt.Sprint("fault ", i)
			options := of(name, 8*time.Second)
			options.Wait = patience // for what the last round has lost
			lease, err := client.Acquire(background, options)
			must(err)
			leases[name] = lease
		}
		for i := 0; i < 3; i++ {
			name := fmt.Sprint("slow ", i)
			lease, err := client.Acquire(background, of(name, 9*time.Second))
			must(err)
			leases[name] = lease
		}
		<-leases["fault 7"].Lost()
		ok(events.of("late fault 7") > 1, what+"it is tried again")
		held := 0
		for _, lease := range leases {
			if lease.Held() {
				held++
			}
		}
		ok(held == 22, what+"the others are held")
		mutex.Lock()
		most, isOne := 0, false
		for _, n := range calls {
			if n > most {
				most = n
			}
			isOne = isOne || n == 1
		}
		ok(most > 10 && isOne, what+"many were in one call, and one alone in the end")
		ok(!isMixed, what+"those of another ttl in calls of their own")
		mutex.Unlock()
		must(client.Close(background))
		ok(b.holds("fault 1")+b.holds("slow 1") == 0, what+"released")
		db.Close()
	}

	// a driver that does not come back, though its context has ended
	what := b.driver + ", a driver that hangs: "
	goOn := make(chan bool)
	var calls int32
	hang := func(query string, args []driver.NamedValue) error {
		if strings.Contains(query, "dlock_renew_many") && atomic.AddInt32(&calls, 1) == 1 {
			<-goOn
		}
		return nil
	}
	db := b.open(settings{wrapped: true, spoil: hang})
	var events counter
	client := b.client(db, events.add)
	short, err := client.Acquire(background, of("hang 1", 4*time.Second))
	works(err, what+"held")
	long, err := client.Acquire(background, of("hang 2", time.Minute))
	works(err, what+"held")
	ok(until(func() bool { return events.of("renewed hang 1") > 1 }), what+"renewed by another connection")
	ok(events.of("late hang 1") > 0, what+"after the first attempt")
	ok(short.Held() && long.Held(), what+"all are held")
	close(goOn)
	must(client.Close(background))
	db.Close()

	// the connection that is kept for acquires is silent
	what = b.driver + ", a spare connection that is silent: "
	silent, isSilent := make(chan bool), int32(0)
	db = b.open(settings{wrapped: true, spoil: func(string, []driver.NamedValue) error {
		if atomic.CompareAndSwapInt32(&isSilent, 1, 2) {
			<-silent
		}
		return nil
	}})
	client = b.client(db, nil)
	for i := 0; i < 2; i++ {
		_, err := client.Acquire(background, of(fmt.Sprint("spare ", i), time.Hour))
		works(err, what+"held")
	}
	rests := dlock.Now()
	until(func() bool { return dlock.Now()-rests > 1100*time.Millisecond })
	atomic.StoreInt32(&isSilent, 1)
	waits := of("spare 2", time.Hour)
	waits.Wait, waits.ConnectTimeout = -1, 9*time.Second
	ctx, cancel := context.WithTimeout(background, patience)
	_, err = client.Acquire(ctx, waits)
	works(err, what+"replaced")
	cancel()
	close(silent)
	must(client.Close(background))
	db.Close()

	// a release of which nobody knows whether it was done
	what = b.driver + ", a release without an answer: "
	cut := func(query string, args []driver.NamedValue) error {
		if strings.Contains(query, "dlock_release_many") {
			return errors.New("cut")
		}
		return nil
	}
	db = b.open(settings{wrapped: true, spoil: cut})
	client = b.client(db, nil)
	lease, err := client.Acquire(background, of("unanswered", 3*time.Second))
	works(err, what+"held")
	ok(!lease.Release(), what+"not confirmed")
	_, err = client.Acquire(background, of("unanswered", 3*time.Second))
	fails(err, dlock.Busy, what+"the name is busy")
	wait := of("unanswered", 3*time.Second)
	wait.Wait = patience
	_, err = client.Acquire(background, wait)
	works(err, what+"until one TTL has passed")
	must(client.Close(background))
	db.Close()
}

func main() {
	for _, driver := range os.Args[1:] {
		b := &bench{driver: driver, isMySQL: driver == "mysql", db: openWith(driver, os.Getenv("DLOCK_PORT"), settings{})}
		b.settings()
		b.pool()
		b.names()
		b.program()
		b.faults()
	}
	fmt.Printf("1..%d\n", count)
	if failed > 0 {
		os.Exit(1)
	}
}
