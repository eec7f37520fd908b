// Sequelize, over pg and mysql2.
// speaks: postgres mariadb mysql
// npm: sequelize pg mysql2

'use strict';

const { QueryTypes, Sequelize } = require('sequelize');
const { types } = require('pg');
const { server, address, replica, asked, ok, same, program, errorOf, numbered, cases } = require('./cases');

// tokens as numbers; on MySQL and MariaDB they are
types.setTypeParser(types.builtins.INT8, Number);

function connect(pool, options) {
	const { database, user, host, port, connectTimeout } = address;
	return new Sequelize(database, user, null, {
		host, port, dialect: server.isPostgres ? 'postgres' : 'mysql', dialectOptions: connectTimeout ? { connectTimeout } : {}, logging: false, pool: { max: 1, ...pool },
		...options,
	});
}

// the server puts the arguments into the statement
async function value(sequelize, expression, ...args) {
	const sql = `SELECT ${numbered(expression)} AS answer`;
	const [row] = await sequelize.query(sql, { bind: args, type: QueryTypes.SELECT });
	return row.answer;
}

// Sequelize does
async function replaced(sequelize, expression, ...args) {
	const sql = `SELECT ${expression} AS answer`;
	const [row] = await sequelize.query(sql, { replacements: args, type: QueryTypes.SELECT });
	return row.answer;
}

function opener(value) {
	return async function open() {
		const sequelize = connect();
		return {
			value: (expression, ...args) => value(sequelize, expression, ...args),
			run: (statement) => sequelize.query(statement),
			transaction: (work) => sequelize.transaction((transaction) =>
				work((statement, ...args) => sequelize.query(statement, { replacements: args, transaction }))),
			close: () => sequelize.close(),
		};
	};
}

program(async () => {
	const driverError = ({ original }) => original;
	const session = await cases(opener(value), { driverError });
	await session.run(`SELECT dlock_release_all('me'), dlock_release_all('other'), dlock_release_all('goes')`);
	await cases(opener(replaced), { driverError, pastes: true });
	const one = connect();

	// lists
	const { original } = await errorOf(replaced(one, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30));
	same(server.isPostgres ? original.code : original.errno, server.isPostgres ? '22P02' : 3037,
		'replacements: a list is several arguments');
	if (server.isPostgres) {
		const tokens = await value(one, 'dlock_acquire_all(?, ?, ?)', ['l1', 'l2'], 'me', 30);
		same(tokens.map((one) => typeof one), ['string', 'string'], 'bind: a list goes in, tokens come out as text');
		const rows = await one.query('SELECT dlock_release_many(ARRAY[?], ?, ARRAY[?]::bigint[]) AS name',
			{ replacements: [['l1', 'l2'], 'me', tokens], type: QueryTypes.SELECT });
		same(rows.map((row) => row.name), ['l1', 'l2'], 'replacements: names and tokens go in by ARRAY[]');
	} else {
		const list = JSON.stringify(['l1', 'l2']);
		const tokens = JSON.parse(String(await value(one, 'dlock_acquire_all(?, ?, ?)', list, 'me', 30)));
		same(tokens.map((one) => typeof one), ['number', 'number'], 'a list goes in as JSON, tokens come out');
	}

	// replicas
	const split = connect({}, { replication: { write: { ...address, username: address.user }, read: [{ ...replica, username: replica.user }] } });
	const where = async (options) => {
		const [row] = await split.query(`SELECT ${asked} AS name`, { type: QueryTypes.SELECT, ...options });
		return row.name;
	};
	same(await where({}), replica.database, 'a SELECT goes to a replica');
	same(await where({ useMaster: true }), address.database, 'with useMaster to the primary');
	same(await split.transaction((transaction) => where({ transaction })), address.database, 'and so does one in a transaction');
	await split.close();

	// the pool
	const other = connect();
	await value(one, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
	same(await value(other, 'dlock_acquire(?, ?, ?)', 'pooled', 'other', 30), null, 'a session lease goes on in the pool');
	await one.close();
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'pooled', 'other', 30, 60) > 0, 'it ends with the pool');
	const short = connect({ idle: 100, evict: 100 });
	await value(short, 'dlock_acquire_session(?, ?, ?)', 'short', 'me', 30);
	ok(await value(other, 'dlock_acquire(?, ?, ?, ?)', 'short', 'other', 30, 60) > 0, 'or when the pool ends an idle connection');
});
