// What the programs for the drivers of Node.js share: TAP, the server, and the cases that
// every driver goes through.

'use strict';

const { isDeepStrictEqual, inspect } = require('util');

const kind = process.env.DLOCK_SERVER;
const server = { kind, isPostgres: kind === 'postgres' };
const address = {
	host: process.env.DLOCK_HOST,
	port: Number(process.env.DLOCK_PORT),
	user: process.env.DLOCK_USER,
	database: process.env.DLOCK_DATABASE,
	// which is ten seconds by itself, or one
	...(server.isPostgres ? {} : { connectTimeout: 180000 }),
};

let count = 0;
let failed = 0;

// One line of TAP.
function ok(passed, what) {
	count++;
	if (!passed) failed++;
	console.log(`${passed ? 'ok' : 'not ok'} ${count} - ${what}`);
	return passed;
}

// The same value, and of the same type.
function same(is, wanted, what) {
	if (!ok(isDeepStrictEqual(is, wanted), what)) {
		console.log(`#   got ${inspect(is)}, wanted ${inspect(wanted)}`.replaceAll('\n', '\n#   '));
	}
}

// Run a program to its end.
async function program(main) {
	try {
		await main();
	} catch (error) {
		ok(false, 'it goes well');
		console.log(`#   ${inspect(error)}`.replaceAll('\n', '\n#   '));
	}
	console.log(`1..${count}`);
	// a connection that is left must not keep the program
	process.exit(failed ? 1 : 0);
}

// The error that a promise ends with; undefined: it ends well.
async function errorOf(promise) {
	try {
		await promise;
	} catch (error) {
		return error;
	}
	return undefined;
}

// What look() answers once that is something.
async function until(look) {
	for (;;) {
		const answer = await look();
		if (answer) return answer;
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
}

// The connection in which an owner waits for a lease, once it does.
function waiterOf(session, owner) {
	const number = server.isPostgres ? 'pid' : 'connection_id';
	return until(() => session.value(`(SELECT ${number} FROM dlock.waiters WHERE owner = ?)`, owner));
}

// What doc/drivers.md says that a driver's error is: lost, blocked, misuse, deadlock or gone,
// or canceled.  Those of the drivers for PostgreSQL are alike here, and so are those of the
// others.
function kindOf(error) {
	if (server.isPostgres) {
		switch (error.code) {
		case '55L01': return 'lost';
		case '55P03': return 'blocked';
		case '40P01': return 'deadlock';
		case '22004': case '22007': case '22023': case '55000': return 'misuse';
		}
		// the server says that it ends, or nothing: what it says has a severity
		return error.code === '57P01' || error.severity === undefined ? 'gone' : error;
	}
	switch (error.errno) {
	case 1644: return 'lost';
	case 3572: return 'blocked';
	case 3058: return 'deadlock';
	case 1138: case 1234: case 1292: case 3037: return 'misuse';
	// mariadb calls it fatal, though the connection goes on
	case 1317: return 'canceled';
	}
	return error.fatal ? 'gone' : error;
}

// SQL with ? for its arguments, as a template literal calls its tag with it.
function template(sql) {
	const strings = sql.split('?');
	return Object.assign(strings, { raw: strings });
}

// SQL with $1, $2... for each ?.
function numbered(sql) {
	let number = 0;
	return sql.replace(/\?/g, () => `$${++number}`);
}

// Say whether a name is held, without a driver's help with its letters.
async function isHeld(session, name) {
	const bytes = Buffer.from(name).toString('hex');
	const free = await session.value(`dlock_is_free(${server.isPostgres ? `convert_from(decode('${bytes}', 'hex'), 'UTF8')` : `x'${bytes}'`})`);
	return !free;
}

// What makes a backslash in a literal what it usually is not in this session, and what it usually is:
// nothing special and an escape; on PostgreSQL, before 19, the other way round.
const backslashes = server.isPostgres ? {
	unusual: `SELECT set_config('standard_conforming_strings', 'off', false) WHERE current_setting('server_version_num')::int < 190000`,
	usual: `SELECT set_config('standard_conforming_strings', 'on', false)`,
} : {
	unusual: `SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'`,
	usual: 'SET SESSION sql_mode = DEFAULT',
};

// Go through the cases with a driver.
//
// open(): a session, which is one connection, or a pool of one:
//   value(expression, ...args)    what SELECT answers for it; its arguments are "?" in there
//   transaction(work)             in a transaction of the driver's own, which is rolled back
//                                 if there is an error: await work(run), in which
//                                 run(statement, ...args) runs one
//   run(statement)                a statement without arguments
//   close()                       as the driver does
// driverError(error): the driver's own error, in the one that a layer above it makes
// pastes: it puts arguments into the statement, and takes it for granted what a backslash is there
async function cases(open, { driverError = (error) => error, pastes = false } = {}) {
	const [yes, no] = server.isPostgres ? [true, false] : [1, 0];
	const kindOfError = (error) => kindOf(driverError(error));
	const one = await open();
	const second = await open();

	// names, whatever a backslash is in a literal
	const hard = await open();
	for (const kind of ['unusual', 'usual']) {
		await hard.run(backslashes[kind]);
		for (const name of [`it's`, 'C:\\jobs\\x', 'a\\', `x\\' OR '`, 'caf\u00e9"']) {
			const what = `${name}, with the ${kind} backslash`;
			const error = await errorOf(hard.value('dlock_acquire(?, ?, ?)', name, 'names', 30));
			if (kind === 'unusual' && pastes && (!server.isPostgres || name.includes('\\'))) ok(!await isHeld(one, name), `${what}: not that name`);
			else ok(!error && await isHeld(one, name), what);
		}
		await one.value('dlock_release_all(?)', 'names');
	}
	await hard.close();

	// numbers; JavaScript has no exact decimals but in text, and no durations
	for (const [ttl, seconds] of [[30, 30], [30.5, 30.5], ['31.25', 31.25], ['1 minute', 60], [45n, 45]]) {
		const what = `ttl ${inspect(ttl)}`;
		ok(await one.value('dlock_acquire(?, ?, ?)', what, 'me', ttl) > 0, what);
		const left = await one.value('dlock_remaining(?, ?)', what, 'me');
		ok(left > seconds - 20 && left <= seconds, `${what}: as long as that`);
	}
	let token = await one.value('dlock_acquire(?, ?, ?, ?, ?)', 'waits', 'me', 600, 60.5, 'request-1');
	ok(Number.isSafeInteger(token), 'a token is a number');
	same(await one.value('dlock_acquire(?, ?, ?, ?, ?)', 'waits', 'me', 600, '60500 ms', 'request-1'), token,
		'the same request again: the same token');

	// token, limit, null
	same(await one.value('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, token), yes, 'renewed by its token');
	same(await one.value('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, token + 1), no, 'not by another');
	same(await one.value('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, BigInt(token)), yes, 'a token as a BigInt');
	ok(await one.value('dlock_acquire_permit(?, ?, ?, ?)', 'permits', 'me', 30, 2) > 0, 'a limit');
	same(await one.value('dlock_acquire(?, ?, ?)', 'waits', 'other', 30), null, 'null: somebody has it');
	same(await one.value('dlock_release(?, ?, ?)', 'waits', 'me', token), yes, 'released');
	same(await one.value('dlock_release(?, ?)', 'waits', 'me'), null, 'null: nobody has it');

	// guards and errors
	token = await one.value('dlock_acquire(?, ?, ?)', 'guarded', 'me', 600);
	const guard = server.isPostgres ? 'SELECT dlock_guard(?, ?, ?)' : 'CALL dlock.guard(?, ?, ?)';
	// the error of what a guard keeps until its transaction ends
	async function blockedCall() {
		if (!server.isPostgres) return errorOf(second.value('dlock_downgrade(?, ?)', 'guarded', 'me'));
		await second.value(`set_config('lock_timeout', '200ms', false)`);
		const error = await errorOf(second.value('dlock_acquire(?, ?, ?, ?)', 'guarded', 'other', 30, 600));
		await second.value(`set_config('lock_timeout', '0', false)`);
		return error;
	}
	let blocked;
	same(await errorOf(one.transaction(async (run) => {
		await run(guard, 'guarded', 'me', token);
		blocked = await blockedCall();
	})), undefined, 'a guard in a transaction');
	same(kindOfError(blocked), 'blocked', 'an error: blocked');
	same(kindOfError(await errorOf(one.transaction((run) => run(guard, 'guarded', 'me', token + 1)))), 'lost', 'an error: lost');
	same(kindOfError(await errorOf(one.value('dlock_acquire(?, ?, ?)', '', 'me', 30))), 'misuse', 'an error: misuse');
	// who waits for itself
	await one.value('dlock_acquire_permit(?, ?, ?, ?)', 'itself', 'me', 30, 1);
	same(kindOfError(await errorOf(one.value('dlock_acquire_permit(?, ?, ?, ?, ?)', 'itself', 'me', 30, 1, 60))), 'deadlock',
		'an error: deadlock');

	// session leases
	const third = await open();
	ok(await third.value('dlock_acquire_session(?, ?, ?)', 'session', 'me', 30) > 0, 'a session lease');
	await third.close();
	ok(await one.value('dlock_acquire(?, ?, ?, ?)', 'session', 'other', 30, 60) > 0, 'it ends with its connection');

	// gone
	await one.value('dlock_acquire(?, ?, ?)', 'gone', 'me', 60);
	const gone = errorOf(second.value('dlock_acquire(?, ?, ?, ?)', 'gone', 'goes', 30, -1));
	const number = await waiterOf(one, 'goes');
	await one.run(server.isPostgres ? `SELECT pg_terminate_backend(${number})` : `KILL CONNECTION ${number}`);
	same(kindOfError(await gone), 'gone', 'an error: the server is gone');
	return one;
}

// For those that send reads to replicas: an address that stands for one, and an expression that says
// which was asked.
const replica = { ...address, database: server.isPostgres ? 'template1' : 'information_schema' };
const asked = server.isPostgres ? 'current_database()' : 'database()';

module.exports = { replica, asked, server, address, ok, same, program, errorOf, until, waiterOf, kindOf, template, numbered, cases };
