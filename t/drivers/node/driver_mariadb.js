// mariadb (MariaDB Connector/Node.js).
// speaks: mariadb mysql
// npm: mariadb

'use strict';

const mariadb = require('mariadb');
const { server, address, ok, same, program, errorOf, until, kindOf, cases } = require('./cases');

async function connect(options) {
	const connection = await mariadb.createConnection({ ...address, allowPublicKeyRetrieval: true, ...options });
	// without it, the end of an idle connection ends the program
	connection.on('error', (error) => { connection.lastError = error; });
	return connection;
}

// call: execute or query, the same but for who puts the arguments into the statement
async function value(connection, call, expression, ...args) {
	const rows = await connection[call]({ sql: `SELECT ${expression}`, rowsAsArray: true }, args);
	return rows[0][0];
}

function opener(call) {
	return async function open() {
		const connection = await connect({ bigIntAsNumber: true });
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
	await cases(opener('query'));
	const one = await connect();
	await one.query(`SELECT dlock_release_all('me'), dlock_release_all('other'), dlock_release_all('goes')`);
	const session = await cases(opener('execute'));

	// what arrives without the option
	const token = await value(one, 'query', 'dlock_acquire(?, ?, ?)', 'big', 'me', 30);
	ok(typeof token === 'bigint', 'a token is a BigInt');
	same(await value(one, 'query', 'dlock_renew(?, ?, ?, ?)', 'big', 'me', 30, token), 1n, 'it goes back as one; true is 1n');

	// lists
	const json = (text) => JSON.parse(String(text));
	let answer = await value(one, 'query', 'dlock_acquire_all(?, ?, ?)', JSON.stringify(['l1', 'l2']), 'me', 30);
	same(Buffer.isBuffer(answer), server.kind === 'mariadb', 'bytes on MariaDB, text on MySQL');
	const tokens = json(answer);
	same(tokens.map((one) => typeof one), ['number', 'number'], 'a list goes in as JSON, tokens come out');
	answer = await errorOf(value(one, 'query', 'dlock_release_many(?, ?)', ['l1', 'l2'], 'me'));
	same(kindOf(answer), 'misuse', 'query: a list is several arguments');
	answer = await value(one, 'query', 'CONVERT(dlock_release_many(?, ?, ?) USING utf8mb4)', JSON.stringify(['l1', 'l2']), 'me',
		JSON.stringify(tokens));
	same(json(answer), ['l1', 'l2'], 'names and tokens go in; text, if the server converts it');
	answer = await value(one, 'execute', 'dlock_acquire_any(?, ?, ?, ?)', ['l1'], 'me', 30, 1);
	same(json(answer).map(({ name }) => name), ['l1'], 'execute: an array goes in');

	// a time-out
	await value(one, 'query', 'dlock_acquire(?, ?, ?)', 'late', 'me', 60);
	const hasty = await connect();
	const late = await errorOf(hasty.query({ sql: `SELECT dlock_acquire('late', 'hasty', 60, -1)`, timeout: 1000 }));
	if (server.kind === 'mariadb') same(kindOf(late), 'canceled', "timeout is the server's");
	else same(late.code, 'ER_TIMEOUT_NOT_SUPPORTED', 'timeout is refused');
	same(await session.value(`(SELECT COUNT(*) FROM dlock.waiters WHERE owner = 'hasty')`), 0, 'nobody is left waiting');
	same(await value(hasty, 'query', '?', 'goes on'), 'goes on', 'the connection goes on');

	// the end of an idle connection
	const idle = await connect();
	await one.query(`KILL CONNECTION ${idle.threadId}`);
	await until(() => idle.lastError);
	same(kindOf(idle.lastError), 'gone', "the end of an idle connection is an event 'error'");
	same(kindOf(await errorOf(value(idle, 'query', 'dlock_is_free(?)', 'x'))), 'gone', 'and an error of the next query');

	// a pool
	const pool = mariadb.createPool({ ...address, acquireTimeout: 180000, allowPublicKeyRetrieval: true, connectionLimit: 1, resetAfterUse: true });
	let pooled = await pool.getConnection();
	await value(pooled, 'query', 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	await pooled.release();
	pooled = await pool.getConnection();
	same(await value(one, 'query', 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null,
		'a session lease goes on after connection.release(), also with resetAfterUse');
	pooled.destroy();
	ok(await value(one, 'query', 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with connection.destroy()');
});
