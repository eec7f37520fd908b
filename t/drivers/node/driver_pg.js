// pg (node-postgres).
// speaks: postgres
// npm: pg

'use strict';

const { Client, Pool, types } = require('pg');
const { address, ok, same, program, errorOf, until, waiterOf, kindOf, numbered, cases } = require('./cases');

// tokens as numbers
const typesWithNumbers = {
	getTypeParser: (oid, format) => (oid === 20 ? Number : types.getTypeParser(oid, format)),
};

async function connect(options) {
	const client = new Client({ ...address, ...options });
	// without it, the end of an idle connection ends the program
	client.on('error', (error) => { client.lastError = error; });
	await client.connect();
	return client;
}

async function value(client, expression, ...args) {
	const { rows } = await client.query({ text: `SELECT ${numbered(expression)}`, values: args, rowMode: 'array' });
	return rows[0][0];
}

async function open() {
	const client = await connect({ types: typesWithNumbers });
	return {
		value: (expression, ...args) => value(client, expression, ...args),
		run: (statement) => client.query(statement),
		async transaction(work) {
			await client.query('BEGIN');
			try {
				await work((statement, ...args) => client.query(numbered(statement), args));
				await client.query('COMMIT');
			} catch (error) {
				await client.query('ROLLBACK');
				throw error;
			}
		},
		close: () => client.end(),
	};
}

program(async () => {
	const one = await cases(open);
	const client = await connect();

	// what arrives without a parser
	const token = await value(client, 'dlock_acquire(?, ?, ?)', 'text', 'me', 30);
	ok(typeof token === 'string' && Number.isSafeInteger(Number(token)), 'a token is text');
	same(await value(client, 'dlock_renew(?, ?, ?, ?)', 'text', 'me', 30, token), true, 'it goes back as text');

	// lists
	const tokens = await value(client, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
	same(tokens.map((one) => typeof one), ['string', 'string'], 'a list goes in, tokens come out');
	let { rows } = await client.query('SELECT name, token FROM dlock_acquire_any($1, $2, $3, $4)', [['l1', 'l3'], 'me', 30, 2]);
	same(rows.map((row) => row.name), ['l3'], 'rows: the names that were free');
	({ rows } = await client.query('SELECT dlock_release_many($1, $2, $3) AS name', [['l1', 'l2'], 'me', tokens]));
	same(rows.map((row) => row.name), ['l1', 'l2'], 'names and tokens go in');

	// a time-out of the client's
	await value(client, 'dlock_acquire(?, ?, ?)', 'late', 'me', 60);
	const hasty = await connect({ query_timeout: 1000 });
	const late = await errorOf(value(hasty, 'dlock_acquire(?, ?, ?, ?)', 'late', 'hasty', 60, -1));
	same(late.message, 'Query read timeout', 'query_timeout ends the wait for the answer');
	ok(await waiterOf(one, 'hasty'), 'but the server goes on waiting');
	await value(client, 'dlock_release(?, ?)', 'late', 'me');
	same(await until(() => value(client, 'dlock_owner(?)', 'late')), 'hasty', 'and the lease is taken by who was told of an error');

	// the end of an idle connection
	const idle = await connect();
	await value(client, 'pg_terminate_backend(?)', await value(idle, 'pg_backend_pid()'));
	await until(() => idle.lastError);
	same(kindOf(idle.lastError), 'gone', "the end of an idle connection is an event 'error'");
	same(kindOf(await errorOf(value(idle, 'dlock_is_free(?)', 'x'))), 'gone', 'and an error of the next query');

	// a pool
	const pool = new Pool({ ...address, max: 1 });
	let pooled = await pool.connect();
	await value(pooled, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	pooled.release();
	same(await value(client, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on after client.release()');
	pooled = await pool.connect();
	pooled.release(true);
	ok(await value(client, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) !== null, 'it ends with client.release(true)');
	same(pool.options.idleTimeoutMillis, 10000, 'a pool ends idle connections after 10 seconds');
	const short = new Pool({ ...address, idleTimeoutMillis: 100 });
	await value(short, 'dlock_acquire_session(?, ?, ?)', 'short', 'me', 30);
	ok(await value(client, 'dlock_acquire(?, ?, ?, ?)', 'short', 'other', 30, 60) !== null, 'or when the pool ends an idle connection');
});
