// Knex, over pg and mysql2.
// speaks: postgres mariadb mysql
// npm: knex pg mysql2

'use strict';

const knex = require('knex');
const { types } = require('pg');
const { server, address, ok, same, program, errorOf, kindOf, cases } = require('./cases');

// tokens as numbers; on MySQL and MariaDB they are
types.setTypeParser(types.builtins.INT8, Number);

function connect(pool) {
	return knex({ client: server.isPostgres ? 'pg' : 'mysql2', connection: address, pool: { min: 0, max: 1, ...pool } });
}

async function value(db, expression, ...args) {
	const answer = await db.raw(`SELECT ${expression} AS answer`, args);
	const rows = server.isPostgres ? answer.rows : answer[0];
	return rows[0].answer;
}

async function open() {
	const db = connect();
	return {
		value: (expression, ...args) => value(db, expression, ...args),
		run: (statement) => db.raw(statement),
		transaction: (work) => db.transaction((trx) => work((statement, ...args) => trx.raw(statement, args))),
		close: () => db.destroy(),
	};
}

program(async () => {
	await cases(open, { pastes: !server.isPostgres });
	const db = connect();

	// lists
	if (server.isPostgres) {
		const tokens = await value(db, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
		same(tokens.map((one) => typeof one), ['string', 'string'], 'a list goes in, tokens come out as text');
		const { rows } = await db.raw('SELECT dlock_release_many(?, ?, ?) AS name', [['l1', 'l2'], 'me', tokens]);
		same(rows.map((row) => row.name), ['l1', 'l2'], 'names and tokens go in');
	} else {
		const list = JSON.stringify(['l1', 'l2']);
		const error = await errorOf(value(db, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30));
		same(kindOf(error), 'misuse', 'a list is several arguments');
		const tokens = JSON.parse(String(await value(db, 'dlock_acquire_all(?, ?, ?)', list, 'me', 30)));
		same(tokens.map((one) => typeof one), ['number', 'number'], 'a list goes in as JSON, tokens come out');
	}

	// what a new connection is told first
	if (!server.isPostgres) {
		const told = connect({ afterCreate: (connection, done) => connection.query(`SET SESSION sql_mode = REPLACE(@@sql_mode, 'NO_ENGINE_SUBSTITUTION', '')`, done) });
		ok(!(await value(told, '@@SESSION.sql_mode')).includes('NO_ENGINE'), 'afterCreate sets the sql_mode');
		await told.destroy();
	}

	// the pool
	const other = connect();
	await value(db, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	same(await value(other, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on in the pool');
	await db.destroy();
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with the pool');
	const short = connect({ idleTimeoutMillis: 100, reapIntervalMillis: 100 });
	await value(short, 'dlock_acquire_session(?, ?, ?)', 'short', 'me', 30);
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'short', 'other', 30, 60) > 0, 'or when the pool ends an idle connection');
});
