// Cases that only the client for Go has.  Prints TAP; its arguments are the drivers.

package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
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
		query = "SELECT count(*) FROM dlock.locks WHERE name = CONVERT(UNHEX(?) USING utf8mb4) AND remaining > 0"
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

func main() {
	for _, driver := range os.Args[1:] {
		b := &bench{driver: driver, isMySQL: driver == "mysql", db: openWith(driver, os.Getenv("DLOCK_PORT"), settings{})}
		b.settings()
	}
	fmt.Printf("1..%d\n", count)
	if failed > 0 {
		os.Exit(1)
	}
}
