// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"errors"
	"reflect"
	"strings"
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

var loginNumbers = map[uint16]bool{1044: true, 1045: true, 1049: true, 1130: true, 1698: true, 1862: true, 3118: true, 3955: true, 4151: true}

// isLogin says whether a log-in has failed.
func (e *Error) isLogin() bool {
	return strings.HasPrefix(e.SQLState, "28") || e.SQLState == "3D000" || loginNumbers[e.Number]
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
