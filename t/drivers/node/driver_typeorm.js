// TypeORM, over pg and mysql2.
// speaks: postgres mariadb mysql
// npm: typeorm pg mysql2

'use strict';

const { DataSource } = require('typeorm');
const { types } = require('pg');
const { server, address, replica, asked, ok, same, program, errorOf, kindOf, numbered, cases } = require('./cases');

// tokens as numbers; on MySQL and MariaDB they are
types.setTypeParser(types.builtins.INT8, Number);

// arguments are $1 or ?, as the driver has them
const written = server.isPostgres ? numbered : (sql) => sql;

function connect(options) {
	const { user: username, ...where } = address;
	return new DataSource({
		...where, username, poolSize: 1,
		...(server.isPostgres ? { type: 'postgres' } : { type: 'mysql', connectorPackage: 'mysql2', bigNumberStrings: false }),
		...options,
	}).initialize();
}

async function value(source, expression, ...args) {
	const [row] = await source.query(written(`SELECT ${expression} AS answer`), args);
	return row.answer;
}

async function open() {
	const source = await connect();
	return {
		value: (expression, ...args) => value(source, expression, ...args),
		run: (statement) => source.query(statement),
		transaction: (work) => source.transaction((manager) =>
			work((statement, ...args) => manager.query(written(statement), args))),
		close: () => source.destroy(),
	};
}

program(async () => {
	await cases(open, { driverError: ({ driverError }) => driverError, pastes: !server.isPostgres });
	const one = await connect();

	// lists
	if (server.isPostgres) {
		const tokens = await value(one, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
		same(tokens.map((one) => typeof one), ['string', 'string'], 'a list goes in, tokens come out as text');
		const rows = await one.query('SELECT dlock_release_many($1, $2, $3) AS name', [['l1', 'l2'], 'me', tokens]);
		same(rows.map((row) => row.name), ['l1', 'l2'], 'names and tokens go in');
	} else {
		const list = JSON.stringify(['l1', 'l2']);
		const { driverError } = await errorOf(value(one, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30));
		same(kindOf(driverError), 'misuse', 'a list is several arguments');
		const tokens = JSON.parse(String(await value(one, 'dlock_acquire_all(?, ?, ?)', list, 'me', 30)));
		same(tokens.map((one) => typeof one), ['number', 'number'], 'a list goes in as JSON, tokens come out');
	}

	// without the option
	if (!server.isPostgres) {
		const texts = await connect({ bigNumberStrings: true });
		ok(typeof await value(texts, 'dlock_acquire(?, ?, ?)', 'text', 'me', 30) === 'string', 'bigNumberStrings: a token is text');
		same(await value(texts, 'dlock_renew(?, ?, ?, ?)', 'text', 'me', 30, 1), '0', "and so is false, '0', which is true to JavaScript");
	}

	// what a new connection is told first
	if (!server.isPostgres) {
		const told = await connect({ poolSize: 2 });
		told.driver.pool.on('connection', (connection) => connection.query(`SET SESSION sql_mode = REPLACE(@@sql_mode, 'NO_ENGINE_SUBSTITUTION', '')`));
		const [early, late] = [told.createQueryRunner(), told.createQueryRunner()];
		ok((await value(early, '@@SESSION.sql_mode')).includes('NO_ENGINE'), 'the first connection has been made before');
		ok(!(await value(late, '@@SESSION.sql_mode')).includes('NO_ENGINE'), 'a listener of the pool sets the sql_mode of the others');
		await told.destroy();
	}

	// replicas
	const split = await connect({ replication: {
		master: { ...address, username: address.user }, slaves: [{ ...replica, username: replica.user }] } });
	const slave = split.createQueryRunner('slave');
	same(await value(slave, asked), replica.database, "createQueryRunner('slave') asks a replica");
	same(await value(split, asked), address.database, 'query() asks the primary');
	await slave.release();
	await split.destroy();

	// the pool
	const other = await connect();
	const runner = one.createQueryRunner();
	await value(runner, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	await runner.release();
	same(await value(other, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on after runner.release()');
	await one.destroy();
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with the pool');
});
