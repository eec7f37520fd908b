// Events of leases as Prometheus has them: the example of clients/go/README.md, with the real library.
// Prints TAP; its argument is a driver.

package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"dlock"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// the example

var leaseEvents = promauto.NewHistogramVec(prometheus.HistogramOpts{
	Name: "app_lease_event_seconds", Help: "What happened to leases, and how long it took.",
}, []string{"kind", "lease"})

func observe(kind dlock.EventKind, name string, duration time.Duration) {
	leaseEvents.WithLabelValues(string(kind), name).Observe(duration.Seconds())
}

// its end

func main() {
	driver := os.Args[1]
	db := openWith(driver, os.Getenv("DLOCK_PORT"), settings{})
	must(dlock.Run(context.Background(), dlock.Options{DB: db, MySQL: driver == "mysql", Name: "metrics", TTL: time.Minute, ConnectTimeout: 3 * time.Minute, OnEvent: observe},
		func(context.Context, *dlock.Lease) error { return nil }))
	server := httptest.NewServer(promhttp.Handler())
	var text string
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(text, `kind="released"`) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		answer, err := server.Client().Get(server.URL)
		must(err)
		body, err := io.ReadAll(answer.Body)
		must(err)
		answer.Body.Close()
		text = string(body)
	}
	failed := 0
	for i, kind := range []string{"acquired", "released"} {
		word := "ok"
		if !strings.Contains(text, `app_lease_event_seconds_count{kind="`+kind+`",lease="metrics"} 1`) {
			word = "not ok"
			failed++
		}
		fmt.Println(word, i+1, "- Prometheus counts", kind)
	}
	fmt.Println("1..2")
	os.Exit(failed)
}
