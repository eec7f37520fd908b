// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	mostBytes    = 255 // of a name or an owner
	mostOfAList  = 100 // names of one lease
	longest      = 1000000000 * time.Second
	shortestTime = time.Millisecond // in which a lease could be of use
)

func misuse(format string, args ...interface{}) *Error {
	return &Error{Class: Misuse, Message: fmt.Sprintf(format, args...)}
}

// check looks for what cannot be meant, and fills in what was left out.
func (o *Options) check() error {
	names := o.Names
	if len(names) == 0 {
		names = []string{o.Name}
	} else if o.Name != "" || o.Shared || o.Permits != 0 {
		return misuse("Names excludes Name, Shared and Permits")
	}
	if len(names) > mostOfAList {
		return misuse("%d names are more than %d", len(names), mostOfAList)
	}
	isThere := make(map[string]bool)
	for _, name := range names {
		if err := checkText("a name", name); err != nil {
			return err
		}
		if isThere[name] {
			return misuse("the name %q is there twice", name)
		}
		isThere[name] = true
	}
	if o.Permits < 0 {
		return misuse("the number of permits is below 1: %d", o.Permits)
	}
	if o.Shared && o.Permits != 0 {
		return misuse("Shared excludes Permits")
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	for what, d := range map[string]time.Duration{"TTL": o.TTL, "ConnectTimeout": o.ConnectTimeout} {
		if d < shortestTime {
			return misuse("%s is %v: too short, or a number of seconds without its unit, as in 30*time.Second", what, d)
		}
	}
	if o.Wait < 0 {
		o.Wait = -time.Second // a nanosecond less than 0 is 0 to the servers
	}
	if o.KeepAtLeast < 0 {
		return misuse("KeepAtLeast is below 0: %v", o.KeepAtLeast)
	}
	for what, d := range map[string]time.Duration{"TTL": o.TTL, "Wait": o.Wait, "ConnectTimeout": o.ConnectTimeout, "KeepAtLeast": o.KeepAtLeast} {
		if d > longest {
			return misuse("%s is longer than %v", what, longest)
		}
	}
	return nil
}

// checkText looks at a name or an owner.
func checkText(what, text string) error {
	switch {
	case text == "":
		return misuse("%s is empty", what)
	case len(text) > mostBytes:
		return misuse("%s has %d bytes, more than %d", what, len(text), mostBytes)
	case !utf8.ValidString(text):
		return misuse("%s is not UTF-8: %q", what, text)
	case strings.ContainsRune(text, 0):
		return misuse("%s has a NUL: %q", what, text)
	}
	return nil
}

var (
	aNumber = regexp.MustCompile(`^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$`)
	aPart   = regexp.MustCompile(`^([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*([a-zA-Z]+)\s*`)
	units   = make(map[string]unit)
)

// unit is how many seconds it has; each kind may be there once.
type unit struct {
	kind    int
	seconds float64
}

func init() {
	const day = 24 * 60 * 60
	for i, kind := range []struct {
		words   string
		seconds float64
	}{
		{"us usec usecs microsecond microseconds", 1e-6},
		{"ms msec msecs millisecond milliseconds", 1e-3},
		{"s sec secs second seconds", 1},
		{"m min mins minute minutes", 60},
		{"h hr hrs hour hours", 60 * 60},
		{"d day days", day},
		{"w week weeks", 7 * day},
		{"mon mons month months", 30 * day},
		{"y yr yrs year years", 12 * 30 * day},
	} {
		for _, word := range strings.Fields(kind.words) {
			units[word] = unit{i, kind.seconds}
		}
	}
}

// ParseDuration reads a time as SQL has it: a number of seconds, or numbers with units, added up, such as "0.5", "30s" or
// "1 day 2 hours".
func ParseDuration(text string) (time.Duration, error) {
	rest := strings.TrimSpace(text)
	wrong := misuse("%q is no time such as 30, \"30s\" or \"1 hour 30 minutes\"", text)
	var seconds float64
	if aNumber.MatchString(rest) {
		seconds, _ = strconv.ParseFloat(rest, 64) // out of range: infinite, as is told below
	} else {
		isThere := make(map[int]bool)
		for rest != "" {
			part := aPart.FindStringSubmatch(rest)
			if part == nil {
				return 0, wrong
			}
			unit, isOne := units[strings.ToLower(part[2])]
			if !isOne || isThere[unit.kind] {
				return 0, wrong
			}
			isThere[unit.kind] = true
			number, _ := strconv.ParseFloat(part[1], 64)
			seconds += number * unit.seconds
			rest = rest[len(part[0]):]
		}
		if len(isThere) == 0 {
			return 0, wrong
		}
	}
	if seconds > longest.Seconds() || seconds < -longest.Seconds() {
		return 0, misuse("%q is longer than %v", text, longest)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
