// What the programs for cases that only Node.js has share: TAP, polling, and connections.

'use strict';

let count = 0;
let failed = 0;

function ok(passed, what) {
	count++;
	failed += !passed;
	console.log(`${passed ? 'ok' : 'not ok'} ${count} - ${what}`);
}

// The end of the program, unless something keeps the process alive.
function end() {
	console.log(`1..${count}`);
	process.exitCode = failed ? 1 : 0;
}

async function errorOf(promise) {
	try {
		await promise;
	} catch (error) {
		return error;
	}
	return null;
}

// a busy machine has more time to connect than the ten seconds that a client has by itself
const PATIENCE = 180;

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

async function until(isSo) {
	for (let i = 0; i < 9000 && !await isSo(); i++)
		await sleep(20);
	return isSo();
}

function connector(driver) {
	const where = { host: process.env.DLOCK_HOST, port: Number(process.env.DLOCK_PORT), user: process.env.DLOCK_USER,
		database: process.env.DLOCK_DATABASE };
	return async () => {
		if (driver !== 'pg')
			return require('mysql2/promise').createConnection({ ...where, connectTimeout: 1000 * PATIENCE });
		const client = new (require('pg').Client)(where);
		await client.connect();
		return client;
	};
}

module.exports = { PATIENCE, connector, end, errorOf, ok, until };
