// The agent for Node.js; t/clients/Agent.pm says what it does.
// Drivers: pg mysql2 mysql2_callback

'use strict';

const path = require('path');
const readline = require('readline');
const dlock = require(path.join(__dirname, '../../../clients/node/dlock.js'));

const [driver, port] = [process.argv[2], Number(process.argv[3])];
// what the program's own connections go by, when a lease's go by a proxy
const direct = Number(process.env.DLOCK_PORT);

// settings of a program's that are as odd as the drivers allow
const isOdd = process.env.DLOCK_ODD === '1';
const odd = !isOdd ? {} : driver === 'pg' ? { binary: true, types: { getTypeParser: () => () => 'odd' } } : {
	charset: 'latin1',
	typeCast: () => 'odd',
	nestTables: true,
	namedPlaceholders: true,
	supportBigNumbers: true,
	bigNumberStrings: true,
	decimalNumbers: true,
	jsonStrings: true,
	multipleStatements: true,
	// as the documentation of mysql has it, but for those who forget to escape
	queryFormat: (sql, values) => sql.replace(/:(\w+)/g, (text, key) => (key in (values ?? []) ? values[key] : text)).replace(/\?/g, 'NULL'),
};

async function connect(by = port) {
	const where = { host: process.env.DLOCK_HOST, port: by, user: process.env.DLOCK_USER, database: process.env.DLOCK_DATABASE, ...odd };
	if (driver === 'pg') {
		const client = new (require('pg').Client)(where);
		client.on('error', () => {});
		await client.connect();
		if (isOdd)
			await client.query("SET client_encoding TO latin1; SET bytea_output TO escape; SET standard_conforming_strings TO off");
		return client;
	}
	// a busy machine has more time for that than ten seconds
	where.connectTimeout = 180000;
	const connection = driver === 'mysql2' ? await require('mysql2/promise').createConnection(where)
		: require('mysql2').createConnection(where);
	if (isOdd) {
		for (const setting of ["sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", 'collation_connection = utf16_general_ci', 'sql_select_limit = 0'])
			connection.query(`SET ${setting}`);
	}
	return connection;
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

const optionsOf = (words) => Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]));

function event(kind, name, seconds) {
	say('event', kind, name, seconds);
}

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

// TTL and WAIT, as the program would give them
const time = (text) => (/^-?[\d.]+(e\d+)?$/.test(text) ? Number(text) : text);

let cancel;
async function block([names, ttl, wait, ...rest]) {
	const given = optionsOf(rest);
	cancel = new AbortController();
	const options = {
		...(given.list ? { names: names.split(',') } : { name: names }),
		connect,
		ttl: time(ttl),
		wait: time(wait),
		shared: Boolean(given.shared),
		permits: given.permits && Number(given.permits),
		owner: given.owner,
		connectTimeout: Number(given.connect_timeout ?? 10),
		keepAtLeast: Number(given.keep_at_least ?? 0),
		signal: cancel.signal,
		onLost: () => say('lost', dlock.now()),
		...(given.events && { onEvent: event }),
		...(given.unknown && { TTL: 3 }),
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

// many leases, by one client
let client;
const leases = new Map();

async function many([prefix, count, ttl, wait, ...rest]) {
	const given = optionsOf(rest);
	const connectTimeout = Number(given.connect_timeout ?? 180);
	client ??= new dlock.Client({ connect, owner: given.owner, ...(given.events && { onEvent: event }) });
	let number = 0;
	let failure;
	await Promise.all(Array.from({ length: 10 }, async () => {
		while (number < count) {
			const name = `${prefix}${++number}`;
			try {
				const lease = client.lease({ name, ttl: time(ttl), wait: time(wait), connectTimeout, shared: Boolean(given.shared),
					keepAtLeast: Number(given.keep_at_least ?? 0), onLost: () => say('lost-one', name, dlock.now()) });
				await lease.acquire();
				leases.set(name, lease);
			} catch (error) {
				failure ??= error;
			}
		}
	}));
	say('many', failure ? outcome(failure) : count);
}

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
	const words = line.split(' ');
	switch (words[0]) {
	case 'lease':
		block(words.slice(1));
		break;
	case 'cancel':
		cancel.abort();
		break;
	case 'many':
		many(words.slice(1));
		break;
	case 'many-held':
		say('many-held', [...leases.values()].filter((lease) => lease.held).length);
		break;
	case 'many-release':
		say('many-release', Number(await leases.get(words[1]).release()));
		break;
	case 'many-close':
		await client.close();
		say('many-close');
		break;
	case 'exit':
		await dlock.releaseAll();
		process.exit(0);
		break;
	default:
		orders.push(words[0]);
		wake();
	}
});
