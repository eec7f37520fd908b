// mysql2.
// speaks: mariadb mysql
// npm: mysql2

'use strict';

const mysql = require('mysql2/promise');
const { server, address, ok, same, program, errorOf, until, waiterOf, kindOf, cases } = require('./cases');

async function connect(options) {
	const connection = await mysql.createConnection({ ...address, ...options });
	// without it, the end of an idle connection ends the program
	connection.on('error', (error) => { connection.lastError = error; });
	return connection;
}

// call: execute or query, the same but for who puts the arguments into the statement
async function value(connection, call, expression, ...args) {
	const [rows] = await connection[call]({ sql: `SELECT ${expression}`, rowsAsArray: true }, args);
	return rows[0][0];
}

function opener(call) {
	return async function open() {
		const connection = await connect();
		return {
			value: (expression, ...args) => value(connection, call, expression, ...args),
			run: (statement) => connection.query(statement),
			async transaction(work) {
				await connection.beginTransaction();
				try {
					await work((statement, ...args) => connection[call](statement, args));
					await connection.commit();
				} catch (error) {
					await connection.rollback();
					throw error;
				}
			},
			close: () => connection.end(),
		};
	};
}

program(async () => {
	await cases(opener('query'), { pastes: true });
	const one = await connect();
	await one.query(`SELECT dlock_release_all('me'), dlock_release_all('other'), dlock_release_all('goes')`);
	const session = await cases(opener('execute'));

	// lists
	const json = (text) => JSON.parse(String(text));
	let answer = await value(one, 'execute', 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
	same(Buffer.isBuffer(answer), server.kind === 'mariadb', 'bytes on MariaDB, text on MySQL');
	same(json(answer).map((one) => typeof one), ['number', 'number'], 'execute: a list goes in, tokens come out');
	answer = await errorOf(value(one, 'query', 'dlock_release_many(?, ?)', ['l1', 'l2'], 'me'));
	same(kindOf(answer), 'misuse', 'query: a list is several arguments');
	answer = await value(one, 'query', 'dlock_release_many(?, ?)', JSON.stringify(['l1', 'l2']), 'me');
	same(json(answer), ['l1', 'l2'], 'query: a list goes in as JSON');
	answer = await value(one, 'query', 'CONVERT(dlock_acquire_any(?, ?, ?, ?) USING utf8mb4)', JSON.stringify(['l1']), 'me', 30, 1);
	same(json(answer).map(({ name }) => name), ['l1'], 'text, if the server converts it');

	// a time-out of the client's
	await value(one, 'execute', 'dlock_acquire(?, ?, ?)', 'late', 'me', 60);
	const hasty = await connect();
	const late = await errorOf(hasty.query({ sql: `SELECT dlock_acquire('late', 'hasty', 60, -1)`, timeout: 1000 }));
	same(late.code, 'PROTOCOL_SEQUENCE_TIMEOUT', 'timeout ends the wait for the answer');
	ok(await waiterOf(session, 'hasty'), 'but the server goes on waiting');
	await value(one, 'execute', 'dlock_release(?, ?)', 'late', 'me');
	same(String(await until(() => value(one, 'execute', 'dlock_owner(?)', 'late'))), 'hasty',
		'and the lease is taken by who was told of an error');

	// the end of an idle connection
	const idle = await connect();
	await one.query(`KILL CONNECTION ${idle.threadId}`);
	await until(() => idle.lastError);
	same(kindOf(idle.lastError), 'gone', "the end of an idle connection is an event 'error'");
	same(kindOf(await errorOf(value(idle, 'query', 'dlock_is_free(?)', 'x'))), 'gone', 'and an error of the next query');

	// a pool
	const pool = mysql.createPool({ ...address, connectionLimit: 1, resetOnRelease: true });
	let pooled = await pool.getConnection();
	await value(pooled, 'execute', 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	pooled.release();
	pooled = await pool.getConnection();
	same(await value(one, 'execute', 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null,
		'a session lease goes on after connection.release(), also with resetOnRelease');
	pooled.destroy();
	ok(await value(one, 'execute', 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with connection.destroy()');
});
