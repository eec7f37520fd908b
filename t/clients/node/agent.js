// The agent for Node.js; t/clients/Agent.pm says what it does.
// Drivers: pg mysql2 mysql2_callback

'use strict';

const path = require('path');
const readline = require('readline');
const dlock = require(path.join(__dirname, '../../../clients/node/dlock.js'));

const [driver, port] = [process.argv[2], Number(process.argv[3])];
// what the program's own connections go by, when a lease's go by a proxy
const direct = Number(process.env.DLOCK_PORT);

async function connect(by = port) {
	const where = { host: process.env.DLOCK_HOST, port: by, user: process.env.DLOCK_USER, database: process.env.DLOCK_DATABASE };
	if (driver === 'pg') {
		const client = new (require('pg').Client)(where);
		client.on('error', () => {});
		await client.connect();
		return client;
	}
	// a busy machine has more time for that than ten seconds
	where.connectTimeout = 180000;
	return driver === 'mysql2' ? require('mysql2/promise').createConnection(where) : require('mysql2').createConnection(where);
}

function say(...words) {
	console.log(words.join(' '));
}

function outcome(error) {
	if (!(error instanceof dlock.DlockError))
		return `${error.name} ${error.message}`;
	const code = error.sqlstate && error.sqlstate !== 'HY000' ? error.sqlstate : error.errno ?? '-';
	return `${error.name.toLowerCase()} ${code}`;
}

class Raised extends Error {}

// the orders for a block, one at a time
const orders = [];
let wake = () => {};
async function order() {
	while (!orders.length)
		await new Promise((resolve) => { wake = resolve; });
	return orders.shift();
}

async function guard(lease, isOutside) {
	const connection = await connect(direct);
	const promised = typeof connection.promise === 'function' ? connection.promise() : connection;
	const prefix = isOutside ? 'guard-outside' : 'guard';
	try {
		if (!isOutside)
			await promised.query('BEGIN');
		await lease.guard(connection);
		await promised.query('COMMIT');
		say(prefix, 'ok');
	} catch (error) {
		await promised.query('ROLLBACK');
		say(prefix, outcome(error));
	}
	await promised.end();
}

function check(lease) {
	try {
		lease.check();
		// the other ways to ask agree
		say(lease.held && !lease.signal.aborted && lease.remaining() > 0 ? 'check ok' : 'check disagrees');
	} catch (error) {
		say(!lease.held && lease.signal.aborted && lease.remaining() === 0 ? `check ${outcome(error)}` : 'check disagrees');
	}
}

let cancel;
async function block([names, ttl, wait, ...rest]) {
	const given = Object.fromEntries(rest.map((word) => word.split('=')));
	cancel = new AbortController();
	const options = {
		...(given.list ? { names: names.split(',') } : { name: names }),
		connect,
		ttl: Number(ttl),
		wait: Number(wait),
		shared: Boolean(given.shared),
		permits: given.permits && Number(given.permits),
		owner: given.owner,
		connectTimeout: Number(given.connect_timeout ?? 10),
		signal: cancel.signal,
		onLost: () => say('lost', dlock.now()),
	};
	let isHeld = false;
	try {
		await dlock.withLease(options, async (lease) => {
			say('held', lease.tokens.join(','), dlock.now());
			isHeld = true;
			for (;;) {
				const what = await order();
				if (what === 'check')
					check(lease);
				else if (what.startsWith('guard'))
					await guard(lease, what === 'guard-outside');
				else if (what === 'raise')
					throw new Raised();
				else
					return;
			}
		});
		say('ended');
	} catch (error) {
		if (error instanceof Raised)
			say('raised');
		else if (error.name === 'AbortError')
			say('failed canceled -');
		else
			say(isHeld ? 'ended' : 'failed', outcome(error));
	}
}

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
	const words = line.split(' ');
	if (words[0] === 'lease')
		block(words.slice(1));
	else if (words[0] === 'cancel')
		cancel.abort();
	else if (words[0] === 'exit') {
		await dlock.releaseAll();
		process.exit(0);
	} else {
		orders.push(words[0]);
		wake();
	}
});
