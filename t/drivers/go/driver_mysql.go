// Go-MySQL-Driver.
// speaks: mariadb mysql
// needs: golang-go golang-github-go-sql-driver-mysql-dev

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"log"

	"github.com/go-sql-driver/mysql"
)

func kindOf(err error) string {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		switch server.Number {
		case 1644:
			return "lost"
		case 3572:
			return "blocked"
		case 3058:
			return "deadlock"
		case 1138, 1234, 1292, 3037:
			return "misuse"
		}
		return ""
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) {
		return "gone"
	}
	return ""
}

func main() {
	must(mysql.SetLogger(log.New(io.Discard, "", 0)))
	source := user + "@tcp(" + address + ")/" + database
	db, err := sql.Open("mysql", source)
	must(err)
	cases(db, kindOf, false)

	// lists
	names, err := json.Marshal([]string{"l1", "l2"})
	must(err)
	var list []byte
	must(query(db, "dlock_acquire_all", names, "me", 30).Scan(&list))
	var tokens []int64
	must(json.Unmarshal(list, &tokens))
	same(len(tokens), 2, "a JSON list goes in, tokens come out")
	var released []byte
	must(query(db, "dlock_release_many", names, "me", list).Scan(&released))
	same(string(released), `["l1", "l2"]`, "names and tokens go in")

	// in the text of the statement, where all answers are text
	db, err = sql.Open("mysql", source+"?interpolateParams=true")
	must(err)
	quoting(db)
	ok(mustToken(db, "dlock_acquire", "interpolated", "me", 30.5).Valid, "with interpolateParams")
	same(mustAnswer(db, "dlock_release", "interpolated", "me"), yes, "released")
	done()
}
