// postgres (Postgres.js).
// speaks: postgres
// npm: postgres

'use strict';

const postgres = require('postgres');
const { address, ok, same, program, errorOf, template, waiterOf, until, cases } = require('./cases');

// its own option for numbers of 64 bits would make them BigInt
const tokensAsNumbers = { token: { to: 20, from: [20], serialize: String, parse: Number } };

function connect(options) {
	return postgres({ ...address, max: 1, ...options });
}

// sql`SELECT ...`
async function value(sql, expression, ...args) {
	const [[answer]] = await sql(template(`SELECT ${expression}`), ...args).values();
	return answer;
}

async function open() {
	const sql = connect({ types: tokensAsNumbers });
	return {
		value: (expression, ...args) => value(sql, expression, ...args),
		run: (statement) => sql.unsafe(statement),
		transaction: (work) => sql.begin((sql) => work((statement, ...args) => sql(template(statement), ...args))),
		close: () => sql.end(),
	};
}

program(async () => {
	const one = await cases(open);
	const sql = connect();

	// what arrives without a parser
	const [{ token }] = await sql`SELECT dlock_acquire('text', 'me', ${30}) AS token`;
	ok(typeof token === 'string' && Number.isSafeInteger(Number(token)), 'a token is text');
	const [{ renewed }] = await sql`SELECT dlock_renew('text', 'me', ${30}, ${token}) AS renewed`;
	same(renewed, true, 'it goes back as text');

	// a BigInt is of the server's type bigint, a number of whatever type the server wants
	const error = await errorOf(value(sql, 'dlock_acquire_permit(?, ?, ?, ?)', 'permits', 'me', 30, 2n));
	same(error.code, '42883', 'a limit cannot be a BigInt');

	// lists
	const tokens = await value(sql, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
	same(tokens.map((one) => typeof one), ['string', 'string'], 'a list goes in, tokens come out');
	let rows = await sql`SELECT name, token FROM dlock_acquire_any(${['l1', 'l3']}, 'me', ${30}, ${2})`;
	same(rows.map((row) => row.name), ['l3'], 'rows: the names that were free');
	rows = await sql`SELECT dlock_release_many(${['l1', 'l2']}, 'me', ${tokens}) AS name`;
	same(rows.map((row) => row.name), ['l1', 'l2'], 'names and tokens go in');

	// a cancel is the server's
	await value(sql, 'dlock_acquire(?, ?, ?)', 'canceled', 'me', 60);
	const other = connect();
	const query = other`SELECT dlock_acquire('canceled', 'other', 60, -1)`;
	const canceled = errorOf(query);
	await waiterOf(one, 'other');
	query.cancel();
	same((await canceled).code, '57014', 'query.cancel() ends the call in the server');

	// a connection that ends is made anew
	const [{ pid }] = await other`SELECT pg_backend_pid() AS pid`;
	await value(sql, 'pg_terminate_backend(?)', pid);
	await until(async () => (await errorOf(other`SELECT 1`)) === undefined);
	ok((await other`SELECT pg_backend_pid() AS pid`)[0].pid !== pid, 'after the end of an idle connection there is another');

	// a pool
	const reserved = await other.reserve();
	await value(reserved, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	reserved.release();
	same(await value(sql, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on after reserved.release()');
	await other.end();
	ok(await value(sql, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) !== null, 'it ends with the pool');
	ok(sql.options.max_lifetime() > 0, 'connections have a longest life');
	const short = connect({ max_lifetime: 1 });
	await value(short, 'dlock_acquire_session(?, ?, ?)', 'short', 'me', 30);
	ok(await value(sql, 'dlock_acquire(?, ?, ?, ?)', 'short', 'other', 30, 60) !== null,
		'or when the pool ends a connection of max_lifetime');
});
