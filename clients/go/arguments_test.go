// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, wanted := range map[string]time.Duration{
		"30": 30 * time.Second, " 0.25 ": 250 * time.Millisecond, "-1": -time.Second, "1e3": 1000 * time.Second, ".5": 500 * time.Millisecond,
		"30s": 30 * time.Second, "500 ms": 500 * time.Millisecond, "5 Minutes": 5 * time.Minute, "5min": 5 * time.Minute,
		"1 day 2 hours": 26 * time.Hour, "1h30m": 90 * time.Minute, "-1s": -time.Second, "1 mon": 30 * 24 * time.Hour, "10us": 10 * time.Microsecond,
	} {
		if is, err := ParseDuration(text); err != nil || is != wanted {
			t.Errorf("%q: %v %v, not %v", text, is, err, wanted)
		}
	}
	for _, text := range []string{"", " ", "s", "30q", "30 s 5", "1s 1sec", "01:30:00", "PT1M", "nan", "inf", "1e10", "2 years 50 y", "40 y", "1e999", "0x10", "30s!", "3 0s x", "ſ"} {
		if is, err := ParseDuration(text); !Is(err, Misuse) {
			t.Errorf("%q: %v %v", text, is, err)
		}
	}
}

// What cannot be meant is told before anything is asked: the sql.DB has no driver.
func TestArguments(t *testing.T) {
	long := strings.Repeat("é", 128)
	list := func(n int) (names []string) {
		for i := 0; i < n; i++ {
			names = append(names, strconv.Itoa(i))
		}
		return
	}
	good := func() Options { return Options{DB: new(sql.DB), Name: "x", TTL: time.Minute} }
	for what, spoil := range map[string]func(*Options){
		"no DB":                     func(o *Options) { o.DB = nil },
		"no name":                   func(o *Options) { o.Name = "" },
		"long name":                 func(o *Options) { o.Name = long },
		"name with NUL":             func(o *Options) { o.Name = "a\x00b" },
		"name that is no UTF-8":     func(o *Options) { o.Name = "a\xff" },
		"long owner":                func(o *Options) { o.Owner = long },
		"owner with NUL":            func(o *Options) { o.Owner = "\x00" },
		"owner that is no UTF-8":    func(o *Options) { o.Owner = "\xc3" },
		"both":                      func(o *Options) { o.Names = []string{"y"} },
		"too many names":            func(o *Options) { o.Name, o.Names = "", list(101) },
		"twice":                     func(o *Options) { o.Name, o.Names = "", []string{"a", "b", "a"} },
		"an empty one":              func(o *Options) { o.Name, o.Names = "", []string{"a", ""} },
		"no names":                  func(o *Options) { o.Name, o.Names = "", []string{} },
		"shared list":               func(o *Options) { o.Name, o.Names, o.Shared = "", list(2), true },
		"no TTL":                    func(o *Options) { o.TTL = 0 },
		"negative TTL":              func(o *Options) { o.TTL = -time.Second },
		"TTL without unit":          func(o *Options) { o.TTL = 30 },
		"long TTL":                  func(o *Options) { o.TTL = math.MaxInt64 },
		"long wait":                 func(o *Options) { o.Wait = math.MaxInt64 },
		"connect time-out, no unit": func(o *Options) { o.ConnectTimeout = 10 },
		"negative connect time-out": func(o *Options) { o.ConnectTimeout = -1 },
		"negative keep":             func(o *Options) { o.KeepAtLeast = -1 },
		"negative permits":          func(o *Options) { o.Permits = -1 },
		"shared permits":            func(o *Options) { o.Permits, o.Shared = 2, true },
	} {
		options := good()
		spoil(&options)
		if _, err := Acquire(context.Background(), options); !Is(err, Misuse) {
			t.Errorf("%s: %v", what, err)
		}
	}
	client, err := NewClient(ClientOptions{DB: new(sql.DB)})
	if err != nil {
		t.Fatal(err)
	}
	for what, options := range map[string]Options{
		"a DB":     good(),
		"an owner": {Name: "x", TTL: time.Minute, Owner: "x"},
		"a kind":   {Name: "x", TTL: time.Minute, MySQL: true},
	} {
		if _, err := client.Acquire(context.Background(), options); !Is(err, Misuse) {
			t.Errorf("%s of a client's lease: %v", what, err)
		}
	}
}
