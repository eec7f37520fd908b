// The drivers for the programs of this folder, plain, and with settings that must change no answer.

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/stdlib"
	"github.com/lib/pq"
)

// settings are what a program may do to its connections.
type settings struct {
	parameters string                                             // more of the data source's name
	pgx        func(*pgx.ConnConfig)                              // the same for pgx
	wrapped    bool                                               // by a driver that traces
	session    []string                                           // statements at the beginning
	spoil      func(query string, args []driver.NamedValue) error // of a wrapped driver: instead of a query
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// openWith opens a database on a port.
func openWith(driverName, port string, with settings) *sql.DB {
	host, user, database := os.Getenv("DLOCK_HOST"), os.Getenv("DLOCK_USER"), os.Getenv("DLOCK_DATABASE")
	source := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable ", host, port, user, database) + with.parameters
	c := connector{settings: with}
	switch driverName {
	case "mysql":
		must(mysql.SetLogger(log.New(io.Discard, "", 0)))
		c.driver, c.name = mysql.MySQLDriver{}, user+"@tcp("+host+":"+port+")/"+database+"?"+with.parameters
	case "pgx":
		config, err := pgx.ParseConfig(source)
		must(err)
		if with.pgx != nil {
			with.pgx(config)
		}
		c.driver, c.name = stdlib.GetDefaultDriver(), stdlib.RegisterConnConfig(config)
	default:
		c.driver, c.name = &pq.Driver{}, source
	}
	return sql.OpenDB(c)
}

// open opens a database as the environment says.
func open(driverName, port string) *sql.DB {
	var with settings
	if os.Getenv("DLOCK_ODD") != "" {
		with = odd[driverName]
	}
	if os.Getenv("DLOCK_POOLED") != "" {
		// poolers in transaction mode know no prepared statements
		with.pgx = func(config *pgx.ConnConfig) { config.PreferSimpleProtocol = true }
		if driverName == "pq" {
			with.parameters = "binary_parameters=yes"
		}
	}
	return openWith(driverName, port, with)
}

// odd is as odd as the driver allows.
var odd = map[string]settings{
	"mysql": {parameters: "interpolateParams=true&charset=latin1&parseTime=true&clientFoundRows=true&columnsWithAlias=true", wrapped: true,
		session: []string{"SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"}},
	"pgx": {parameters: "options='-c client_encoding=LATIN1'", wrapped: true,
		session: []string{"SET standard_conforming_strings = off", "SET bytea_output = escape", "SET extra_float_digits = -15"}},
	"pq": {parameters: "binary_parameters=yes", wrapped: true,
		session: []string{"SET client_encoding = LATIN1", "SET standard_conforming_strings = off", "SET bytea_output = escape", "SET extra_float_digits = -15"}},
}

// connector begins each connection with the session's statements.
type connector struct {
	settings
	driver driver.Driver
	name   string
}

func (c connector) Driver() driver.Driver { return c.driver }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	connection, err := func() (driver.Conn, error) {
		with, isOne := c.driver.(driver.DriverContext)
		if !isOne {
			return c.driver.Open(c.name)
		}
		inner, err := with.OpenConnector(c.name)
		if err != nil {
			return nil, err
		}
		return inner.Connect(ctx)
	}()
	if err != nil {
		return nil, err
	}
	for _, statement := range c.session {
		if _, err := connection.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			connection.Close()
			return nil, err
		}
	}
	if c.wrapped {
		connection = &traced{connection, c.spoil}
	}
	return connection, nil
}

// traced is a connection inside of another, as those of otelsql and ocsql, which hides the driver's own type.
type traced struct {
	driver.Conn
	spoil func(query string, args []driver.NamedValue) error
}

func (t *traced) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return t.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (t *traced) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return t.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
}

func (t *traced) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := t.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	return result, wrap(err)
}

func (t *traced) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if t.spoil != nil {
		if err := t.spoil(query, args); err != nil {
			return nil, wrap(err)
		}
	}
	rows, err := t.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return rows, wrap(err)
}

func (t *traced) CheckNamedValue(value *driver.NamedValue) error {
	if checker, isOne := t.Conn.(driver.NamedValueChecker); isOne {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (t *traced) ResetSession(ctx context.Context) error {
	if resetter, isOne := t.Conn.(driver.SessionResetter); isOne {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func wrap(err error) error {
	if err == nil || err == driver.ErrSkip || err == driver.ErrBadConn {
		return err
	}
	return fmt.Errorf("traced: %w", err)
}
