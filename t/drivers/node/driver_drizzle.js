// Drizzle, over pg and mysql2.
// speaks: postgres mariadb mysql
// npm: drizzle-orm pg mysql2

'use strict';

const { sql } = require('drizzle-orm');
const pg = require('pg');
const mysql = require('mysql2/promise');
const { server, address, replica, asked, ok, same, program, errorOf, template, cases } = require('./cases');

const { withReplicas } = require(server.isPostgres ? 'drizzle-orm/pg-core' : 'drizzle-orm/mysql-core');
const { drizzle } = require(server.isPostgres ? 'drizzle-orm/node-postgres' : 'drizzle-orm/mysql2');

// tokens as numbers; on MySQL and MariaDB they are
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

function connect(where = address) {
	if (!server.isPostgres) return drizzle({ client: mysql.createPool({ ...where, connectionLimit: 1 }) });
	const pool = new pg.Pool({ ...where, max: 1 });
	// without it, the end of an idle connection ends the program
	pool.on('error', () => {});
	return drizzle({ client: pool });
}

async function rowsOf(db, query) {
	const answer = await db.execute(query);
	return server.isPostgres ? answer.rows : answer[0];
}

// sql`SELECT ... AS answer`
async function value(db, expression, ...args) {
	const [row] = await rowsOf(db, sql(template(`SELECT ${expression} AS answer`), ...args));
	return row.answer;
}

async function open() {
	const db = connect();
	return {
		value: (expression, ...args) => value(db, expression, ...args),
		run: (statement) => db.execute(sql.raw(statement)),
		transaction: (work) => db.transaction((tx) => work((statement, ...args) => tx.execute(sql(template(statement), ...args)))),
		close: () => db.$client.end(),
	};
}

program(async () => {
	await cases(open, { driverError: ({ cause }) => cause, pastes: !server.isPostgres });
	const db = connect();

	// lists
	const { cause } = await errorOf(value(db, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30));
	same(server.isPostgres ? cause.code : cause.errno, server.isPostgres ? '42883' : 1241, 'a list is several arguments');
	if (server.isPostgres) {
		const tokens = await value(db, 'dlock_acquire_all(?, ?, ?)', sql.param(['l1', 'l2']), 'me', 30);
		same(tokens.map((one) => typeof one), ['string', 'string'], 'sql.param(): a list goes in, tokens come out as text');
		const rows = await rowsOf(db, sql`SELECT dlock_release_many(${sql.param(['l1', 'l2'])}, 'me', ${sql.param(tokens)}) AS name`);
		same(rows.map((row) => row.name), ['l1', 'l2'], 'names and tokens go in');
	} else {
		const list = JSON.stringify(['l1', 'l2']);
		const tokens = JSON.parse(String(await value(db, 'dlock_acquire_all(?, ?, ?)', list, 'me', 30)));
		same(tokens.map((one) => typeof one), ['number', 'number'], 'a list goes in as JSON, tokens come out');
	}

	// what a new connection is told first
	if (!server.isPostgres) {
		const told = connect();
		told.$client.on('connection', (connection) => connection.query(`SET SESSION sql_mode = REPLACE(@@sql_mode, 'NO_ENGINE_SUBSTITUTION', '')`));
		ok(!(await value(told, '@@SESSION.sql_mode')).includes('NO_ENGINE'), 'a listener of the pool sets the sql_mode');
		await told.$client.end();
	}

	// replicas
	const split = withReplicas(connect(), [connect(replica)]);
	const [selected] = await split.select({ name: sql`${sql.raw(asked)}` }).from(sql`(SELECT 1) AS one`);
	same(selected.name, replica.database, 'select() asks a replica');
	same(await value(split, asked), address.database, 'execute() asks the primary');
	for (const one of [split.$primary, ...split.$replicas]) await one.$client.end();

	// the pool
	const other = connect();
	await value(db, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	same(await value(other, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on in the pool');
	await db.$client.end();
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with the pool');
});
