// pgx 4, by way of database/sql and by itself.
// speaks: postgres
// needs: golang-go golang-github-jackc-pgx-v4-dev

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgtype"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
	_ "github.com/jackc/pgx/v4/stdlib"
)

func kindOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "55L01":
			return "lost"
		case "55P03":
			return "blocked"
		case "40P01":
			return "deadlock"
		case "22004", "22007", "22023", "55000":
			return "misuse"
		case "57P01":
			return "gone"
		}
		return ""
	}
	// which pgx makes a net.Error of
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	var network net.Error
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return "gone"
	}
	return ""
}

// The SQLSTATE of an error; empty if it is none of the server's.
func stateOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

func native(pool *pgxpool.Pool) {
	value := func(to interface{}, function string, arguments ...interface{}) error {
		return pool.QueryRow(ctx, "SELECT "+call(function, len(arguments)), arguments...).Scan(to)
	}

	// numbers, and what cannot be bound as it is
	var token *int64
	var left float64
	for _, ttl := range []interface{}{30, 30.5, "40s", time.Minute.Seconds()} {
		must(value(&token, "dlock_acquire", "native", "me", ttl))
		must(value(&left, "dlock_remaining", "native", "me"))
		ok(left > 10 && left <= 60, "pgx alone: a ttl")
	}
	same(stateOf(value(&token, "dlock_acquire", "native", "me", time.Minute)), "22023", "a time.Duration is refused")
	exact := &pgtype.Numeric{}
	must(exact.Set("31.25"))
	same(stateOf(value(&token, "dlock_acquire", "native", "me", exact)), "22P03", "and a pgtype.Numeric")
	for _, c := range []struct {
		ttl  interface{}
		cast string
	}{{time.Minute, "interval"}, {exact, "numeric"}} {
		err := pool.QueryRow(ctx, "SELECT dlock_acquire('cast', 'me', $1::"+c.cast+")", c.ttl).Scan(&token)
		same(err, nil, "unless it is cast to "+c.cast)
	}
	must(value(&token, "dlock_acquire", "native", "other", 30))
	ok(token == nil, "nil: somebody has it")
	var released *bool
	must(value(&released, "dlock_release", "nobody's", "me"))
	ok(released == nil, "nil: nobody has it")

	// lists
	var tokens []int64
	names := []string{"l1", "l2"}
	must(value(&tokens, "dlock_acquire_all", names, "me", 30))
	same(len(tokens), 2, "a list goes in, tokens come out")
	rows, err := pool.Query(ctx, "SELECT name, token FROM dlock_acquire_any($1, $2, $3, $4)", []string{"l1", "l3"}, "me", 30, int64(2))
	must(err)
	var free []string
	for rows.Next() {
		var name string
		var token int64
		must(rows.Scan(&name, &token))
		free = append(free, name)
	}
	must(rows.Err())
	same(free, []string{"l3"}, "rows: the names that were free")
	var done []string
	must(pool.QueryRow(ctx, "SELECT ARRAY(SELECT dlock_release_many($1, $2, $3))", names, "me", tokens).Scan(&done))
	same(done, names, "names and tokens go in")

	// guards
	guard := func(token int64) error {
		return pool.BeginFunc(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT dlock_guard($1, $2, $3)", "guarded-2", "me", token)
			return err
		})
	}
	must(value(&token, "dlock_acquire", "guarded-2", "me", 30))
	same(guard(*token), nil, "a guard in BeginFunc()")
	same(kindOf(guard(*token+1)), "lost", "and one that is lost")

	// session leases
	connection, err := pool.Acquire(ctx)
	must(err)
	const take = "SELECT dlock_acquire_session($1, $2, $3)"
	must(connection.QueryRow(ctx, take, "session-2", "me", 30).Scan(&token))
	ok(token != nil, "a session lease")
	_, err = connection.Exec(ctx, "DISCARD ALL")
	must(err)
	var isFree bool
	must(value(&isFree, "dlock_is_free", "session-2"))
	ok(isFree, "DISCARD ALL ends it")
	same(stateOf(connection.QueryRow(ctx, take, "session-2", "me", 30).Scan(&token)), "26000", "and the statements that pgx has prepared")
	must(connection.Conn().Close(ctx))
	connection.Release()
	connection, err = pool.Acquire(ctx)
	must(err)
	must(connection.QueryRow(ctx, take, "session-2", "me", 30).Scan(&token))
	connection.Release()
	must(value(&isFree, "dlock_is_free", "session-2"))
	ok(!isFree, "it outlives Release()")
	must(value(&released, "dlock_release", "session-2", "me"))
	connection, err = pool.Acquire(ctx)
	must(err)
	must(connection.QueryRow(ctx, take, "session-2", "me", 30).Scan(&token))
	must(connection.Conn().Close(ctx))
	connection.Release()
	must(value(&token, "dlock_acquire", "session-2", "other", 30, 60))
	ok(token != nil, "closed before Release(), the connection ends it")
}

func main() {
	source := "postgres://" + user + "@" + address + "/" + database + "?sslmode=disable"
	db, err := sql.Open("pgx", source)
	must(err)
	cases(db, kindOf, false)
	var tokens string
	must(query(db, "dlock_acquire_all", []string{"s1", "s2"}, "me", 30).Scan(&tokens))
	ok(tokens != "", "a list goes in by way of database/sql")
	must(db.Close())

	// in the text of the statement
	db, err = sql.Open("pgx", source+"&prefer_simple_protocol=true")
	must(err)
	db.SetMaxOpenConns(1)
	ok(mustToken(db, "dlock_acquire", `it's C:\jobs\x`, "me", 30).Valid, "prefer_simple_protocol: a name")
	same(mustAnswer(db, "dlock_is_free", `it's C:\jobs\x`), no, "that is held")
	_, err = db.Exec(backslash("unusual"))
	must(err)
	_, err = token(db, "dlock_acquire", "x", "me", 30)
	ok(err != nil && strings.Contains(err.Error(), "standard_conforming_strings"), "refused where a backslash is an escape")
	must(db.Close())

	pool, err := pgxpool.Connect(ctx, source)
	must(err)
	native(pool)
	pool.Close()
	done()
}
