// lib/pq.
// speaks: postgres
// needs: golang-go golang-github-lib-pq-dev

package main

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/lib/pq"
)

func kindOf(err error) string {
	var server *pq.Error
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
		case "57014":
			return "timeout"
		}
		return ""
	}
	var network net.Error
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.As(err, &network) {
		return "gone"
	}
	return ""
}

func main() {
	db, err := sql.Open("postgres", "postgres://"+user+"@"+address+"/"+database+"?sslmode=disable")
	must(err)
	cases(db, kindOf, true)

	// lists
	names := pq.Array([]string{"l1", "l2"})
	var tokens []int64
	must(query(db, "dlock_acquire_all", names, "me", 30).Scan(pq.Array(&tokens)))
	same(len(tokens), 2, "a list goes in, tokens come out")
	var name string
	must(db.QueryRow("SELECT name FROM dlock_acquire_any($1, $2, $3, $4)", pq.Array([]string{"l1", "l3"}), "me", 30, 2).Scan(&name))
	same(name, "l3", "rows: the names that were free")
	var released []string
	must(db.QueryRow("SELECT ARRAY(SELECT dlock_release_many($1, $2, $3))", names, "me", pq.Array(tokens)).Scan(pq.Array(&released)))
	same(released, []string{"l1", "l2"}, "names and tokens go in")
	done()
}
