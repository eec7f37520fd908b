// Cases of a client object with many leases, with connections that go wrong on order.  Prints TAP;
// its arguments are the drivers.

'use strict';

const path = require('path');
const { setFlagsFromString } = require('v8');
const { runInNewContext } = require('vm');
const dlock = require(path.join(__dirname, '../../../clients/node/dlock.js'));
const { now } = dlock;
const { PATIENCE, connector, end, errorOf, ok, until } = require('./tap');

// What a server would say.
class Refusal extends Error {
	constructor(driver, isMisuse = false) {
		super('no');
		Object.assign(this, driver === 'pg' ? { severity: 'ERROR', code: isMisuse ? '42501' : '57014' }
			: isMisuse ? { sqlState: '42000', errno: 1370 } : { sqlState: '70100', errno: 1317 });
	}
}

/*
 * A network between clients and the server.  "on" is asked before each statement, with its whole text
 * and the connection; what it answers takes the place of the statement's own answer, unless it is
 * undefined.  "connections" are all that were made, in their order.
 */
class Network {
	connections = [];
	statements = [];
	on = () => undefined;

	constructor(driver, connect) {
		this.driver = driver;
		this.connect = async () => {
			const connection = await connect();
			connection.number = this.connections.push(connection);
			const query = connection.query.bind(connection);
			connection.query = async (statement, ...rest) => {
				const text = `${statement.text ?? statement.sql} ${(statement.values ?? []).map(String).join(' ')}`
					// MySQL gets lists as bytes
					.replace(/X'([0-9a-f]+)'/g, (_, hex) => Buffer.from(hex, 'hex').toString());
				this.statements.push([connection.number, text]);
				const answer = this.on(text, connection, () => query(statement, ...rest));
				return answer === undefined ? query(statement, ...rest) : answer;
			};
			return connection;
		};
	}

	get open() { return this.connections.filter((connection) => !this.stream(connection).destroyed).length; }

	stream(connection) { return this.driver === 'pg' ? connection.connection.stream : connection.connection.stream; }

	calls(request) { return this.statements.filter(([, text]) => text.includes(`${request}(`)); }
}

async function cases(driver) {
	const connect = connector(driver);
	const is = (what, passed) => ok(passed, `${driver}: ${what}`);
	const asker = await connect();
	const value = async (sql) => {
		const result = await asker.query(driver === 'pg' ? { text: `SELECT ${sql}`, rowMode: 'array' } : { sql: `SELECT ${sql}`, rowsAsArray: true });
		return (driver === 'pg' ? result.rows : result[0])[0][0];
	};
	const isFree = async (name) => Boolean(await value(`dlock_is_free('${name}')`));
	const fresh = (more) => {
		const network = new Network(driver, connect);
		const events = [];
		const client = new dlock.Client({ connect: network.connect, connectTimeout: PATIENCE, onEvent: (...event) => { events.push(event); }, ...more });
		return { network, events, client, has: (kind, name) => events.some((event) => event[0] === kind && event[1] === name) };
	};
	const all = (client, names, more) => Promise.all(names.map((name) => client.lease({ name, ttl: 60, ...more }).acquire()));
	const names = (prefix, number) => Array.from({ length: number }, (_, i) => `${prefix}${i + 1}`);

	// what belongs to the client
	{
		const { network, events, client } = fresh();
		is('a lease of a client has no connection of its own', await errorOf(client.withLease({ name: 'a', connect }, () => {})) instanceof dlock.Misuse);
		is('nor an owner', await errorOf(client.withLease({ name: 'a', owner: 'me' }, () => {})) instanceof dlock.Misuse);
		is('withLease answers what the function does', await client.withLease({ name: 'a' }, (lease) => lease.owner) === client.owner);
		await all(client, names('own', 12));
		await until(() => network.open === 2);
		is('connections for the heartbeat and the next acquire', network.open === 2);
		is('a name once', await errorOf(client.lease({ names: ['free', 'own1'] }).acquire()) instanceof dlock.Misuse);
		is('and nothing was taken', await isFree('free'));
		await client.close();
		is('closed: all are free', await isFree('own1') && await isFree('own12'));
		is('closed: no connection is left', await until(() => network.open === 0));
		is('closed: no acquire', await errorOf(client.lease({ name: 'a' }).acquire()) instanceof dlock.Misuse);
		is('closed: twice', await client.close() === undefined);
		is('all events are told', events.filter(([kind]) => kind === 'released').length === 13);
		is('in their order', events.filter(([, name]) => name === 'own3').map(([kind]) => kind).join() === 'acquired,released');
	}

	// an owner that the program named, and what takes time
	{
		const { client } = fresh({ owner: 'by-name' });
		const held = await client.lease({ name: 'taken', ttl: '1 h' }).acquire();
		is('the owner', held.owner === 'by-name');
		is('times as text', held.remaining() > 3500 && held.remaining() <= 3600);
		const waiting = fresh();
		const acquire = errorOf(waiting.client.lease({ name: 'taken', ttl: 600, wait: -1 }).acquire());
		await until(() => waiting.network.calls('dlock_acquire').length);
		await waiting.client.close();
		is('closing ends a wait', await acquire instanceof dlock.DlockError && waiting.has('refused', 'taken'));
		await client.close();
		is('nobody waited any more', await until(() => isFree('taken')));
	}

	// keep at least
	{
		const { client } = fresh();
		const lease = await client.lease({ name: 'kept', ttl: 60, keepAtLeast: 600 }).acquire();
		is('kept: released', await lease.release() && !await isFree('kept'));
		is('kept: it is not free for another lease of the client', await errorOf(client.lease({ name: 'kept' }).acquire()) instanceof dlock.Busy);
		const [short] = await all(client, ['kept-shortly'], { keepAtLeast: 1 });
		await short.release();
		is('kept: but for one that waits, at the end of that time', await errorOf(client.lease({ name: 'kept-shortly', wait: PATIENCE }).acquire()) === null);
		const waits = errorOf(client.lease({ name: 'kept', wait: -1 }).acquire());
		await client.close();
		is('kept: closing ends a wait for that', await waits instanceof dlock.Misuse);
		await value(`dlock_release('kept', '${client.owner}')`);
	}

	// a failure of the kept connections
	{
		const { network, client } = fresh();
		await all(client, ['first', 'second']);
		await all(client, ['third']);
		const before = network.connections.length;
		for (const connection of network.connections)
			network.stream(connection).destroy();
		const [fourth] = await all(client, ['fourth']);
		is('a kept connection that was closed is replaced', fourth.held && network.connections.length === before + 1);
		network.on = (text) => {
			if (!text.includes('dlock_acquire'))
				return undefined;
			network.on = () => undefined;
			return Promise.reject(new Error('cut off'));
		};
		const [fifth] = await all(client, ['fifth']);
		is('one that fails is', fifth.held && network.connections.length === before + 2);
		// one that is silent, of which nobody has said so
		const [kept] = network.connections.filter((connection) => !network.stream(connection).destroyed).slice(-1);
		const since = now();
		await until(() => now() - since > 1);
		network.on = (text, connection) => (connection === kept ? new Promise(() => {}) : undefined);
		const unheard = errorOf(client.lease({ name: 'unheard', ttl: 60, wait: -1, connectTimeout: 3 }).acquire());
		is('one that is silent is', await until(() => isFree('unheard').then((is) => !is)) && await unheard === null);
		network.on = () => undefined;
		is('all are released by a new connection', (await Promise.all((await all(client, ['sixth'])).map((lease) => lease.release())))[0]);
		await client.close();
		is('to the last', await isFree('first') && await isFree('fifth'));
	}

	// one lease that cannot be renewed
	for (const [how, refuse] of [['refused', () => Promise.reject(new Refusal(driver))], ['cut off', () => Promise.reject(new Error('cut off'))]]) {
		const { network, client, has } = fresh();
		const prefix = `${how.replace(' ', '-')}-`;
		network.on = (text) => (text.includes('dlock_renew_many') && text.includes(`"${prefix}13"`) ? refuse() : undefined);
		const leases = await all(client, names(prefix, 20), { ttl: 18 });
		is(`${how}: it is lost`, await until(() => has('lost', `${prefix}13`)));
		is(`${how}: late first`, has('late', `${prefix}13`));
		is(`${how}: it takes no other with it`, leases.filter((lease) => lease.held).length === 19);
		is(`${how}: its reason`, leases[12].signal.reason.cause.message === (how === 'refused' ? 'no' : 'cut off'));
		network.on = () => undefined;
		await client.close();
		is(`${how}: all are released`, await isFree(`${prefix}1`) && await isFree(`${prefix}13`));
	}

	// a server that refuses all, such as one that was the primary
	{
		const { network, client, has } = fresh();
		const leases = await all(client, names('demoted', 64), { ttl: 18 });
		const before = network.connections.length;
		network.on = (text, { number }) => (text.includes('dlock_renew_many') && number <= before ? Promise.reject(new Refusal(driver)) : undefined);
		is('demoted: all are renewed by another one', await until(() => names('demoted', 64).every((name) => has('renewed', name)))
			&& leases.every((lease) => lease.held));
		is('demoted: which is not asked for each', network.calls('dlock_renew_many').length < 20);
		await client.close();
	}

	// one of two ttls, one eviction, and a silent connection
	{
		const { network, client, has } = fresh();
		const short = await all(client, names('short', 5), { ttl: 15 });
		const long = await all(client, names('long', 5), { ttl: 40 });
		await value(`dlock_release('short3', '${client.owner}')`);
		is('evicted: lost', await until(() => has('lost', 'short3')));
		await short[2].release();
		is('evicted: not released', !has('released', 'short3'));
		is('evicted: the others go on', await until(() => names('short', 5).every((name) => name === 'short3' || has('renewed', name))));
		is('two ttls: in calls of their own', await until(() => has('renewed', 'long5'))
			&& network.calls('dlock_renew_many').every(([, text]) => !(text.includes('short1') && text.includes('long1'))));
		let silent = 0;
		network.on = (text, { number }) => {
			if (!text.includes('dlock_renew_many') || (silent && silent !== number))
				return undefined;
			silent = number;
			return new Promise(() => {});
		};
		is('silent: it was', await until(() => silent));
		const before = network.calls('dlock_renew_many').length;
		is('silent: renewed by another one', await until(() => network.calls('dlock_renew_many').slice(before).some(([number]) => number !== silent)));
		await until(() => network.stream(network.connections[silent - 1]).destroyed);
		is('silent: it was given up', network.stream(network.connections[silent - 1]).destroyed);
		is('silent: nothing is lost', [...short, ...long].filter((lease) => lease.held).length === 9);
		await client.close();
	}

	// a release that meets a renewal
	{
		const { network, client, has } = fresh();
		const [racing, other] = await all(client, ['racing', 'other'], { ttl: 12 });
		let answer;
		network.on = (text, connection, go) => {
			if (!text.includes('dlock_renew_many'))
				return undefined;
			network.on = () => undefined;
			return new Promise((resolve) => { answer = () => resolve(driver === 'pg' ? { rows: [] } : [[['[]']]]); });
		};
		await until(() => answer);
		const release = racing.release();
		answer();
		is('racing: released', await release === true && await isFree('racing'));
		is('racing: not lost', !has('lost', 'racing'));
		is('racing: what was not renewed is', await until(() => has('lost', 'other')) && !other.held);
		await client.close();
	}

	// a release without an answer
	for (const owner of [undefined, 'by-name']) {
		const { network, client } = fresh({ owner });
		const [lease] = await all(client, ['unanswered'], { ttl: 40 });
		network.on = (text, connection, go) => {
			if (!text.includes('dlock_release_many'))
				return undefined;
			network.on = () => undefined;
			return go().then(() => { throw new Error('the reply was lost'); });
		};
		is('unanswered: false', await lease.release() === false && await isFree('unanswered'));
		const isRepeated = network.calls('dlock_release_many').length > 1;
		is(`unanswered: ${owner ? 'not ' : ''}repeated`, isRepeated === !owner);
		const again = await errorOf(client.lease({ name: 'unanswered' }).acquire());
		is(`unanswered: ${owner ? 'busy for a while' : 'free, since the second was'}`, owner ? again instanceof dlock.Busy : again === null);
		await client.close();
	}

	// a lost reply to an acquire
	{
		const { network, client } = fresh();
		network.on = (text, connection, go) => {
			if (!text.includes('dlock_acquire'))
				return undefined;
			network.on = () => undefined;
			return go().then(() => { throw new Error('the reply was lost'); });
		};
		const [lease] = await all(client, ['replied']);
		is('a lost reply: one hold', lease.held && await lease.release() && await isFree('replied'));
		let asked = 0;
		network.on = (text, connection, go) => {
			if (!text.includes('dlock_acquire'))
				return undefined;
			if (asked++)
				return Promise.reject(new Refusal(driver, true));
			return go().then(() => { throw new Error('the reply was lost'); });
		};
		is('a lost reply, and then no privilege: misuse', await errorOf(client.lease({ name: 'revoked', ttl: 60 }).acquire()) instanceof dlock.Misuse);
		network.on = () => undefined;
		is('and the name is busy', await errorOf(client.lease({ name: 'revoked' }).acquire()) instanceof dlock.Busy);
		await client.close();
	}

	// a function that connects no more than once
	{
		const connection = await connect();
		const client = new dlock.Client({ connect: () => connection, connectTimeout: PATIENCE });
		const [lease] = await all(client, ['one-connection']);
		is('the same connection twice', await errorOf(client.lease({ name: 'of-a-second', wait: -1 }).acquire()) instanceof dlock.Misuse && lease.held);
		await client.close();
	}

	// the program's functions
	{
		const warnings = [];
		const warned = (warning) => warnings.push(warning.message);
		process.on('warning', warned);
		let told = 0;
		const wrong = () => { throw new Error('of a listener'); };
		const { client } = fresh({ onEvent: wrong });
		const lease = await client.lease({ name: 'functions', ttl: 600, onEvent: async () => { told++; throw new Error('of another'); } }).acquire();
		const plain = await client.lease({ name: 'of-the-client', ttl: 600 }).acquire();
		is('an error of a listener is a warning', await until(() => warnings.includes('of a listener') && warnings.includes('of another')));
		is('and changes nothing', await lease.release() && await plain.release());
		await client.close();
		is('each event is told', told === 2);
		process.off('warning', warned);
	}

	// an object that the program drops
	{
		setFlagsFromString('--expose-gc');
		const collect = runInNewContext('gc');
		const warnings = [];
		const warned = (warning) => warnings.push(warning.message);
		process.on('warning', warned);
		const { client, has } = fresh();
		// a function of its own, whose variables are gone
		const drop = (make) => make().acquire().then(() => {});
		await drop(() => client.lease({ name: 'dropped', ttl: 600 }));
		const lone = [];
		await drop(() => new dlock.Lease({ connect, name: 'lone', ttl: 600, connectTimeout: PATIENCE, onEvent: (kind) => lone.push(kind) }));
		is('an object that was dropped is reported', await until(() => { collect(); return has('unreferenced', 'dropped') && lone.includes('unreferenced'); }));
		is('by a warning', await until(() => warnings.some((text) => text.startsWith('dropped:')) && warnings.some((text) => text.startsWith('lone:'))));
		is('but goes on', !await isFree('dropped') && !await isFree('lone'));
		process.off('warning', warned);
		await client.close();
		await dlock.releaseAll();
		is('until it is released', await isFree('dropped') && await isFree('lone'));
	}

	// more than one call's names
	{
		const { network, client } = fresh();
		const lists = await Promise.all(names('list', 12).map((name) => client.lease({ names: names(`${name}-`, 100), ttl: 30 }).acquire()));
		is('1,200 names: renewed', await until(() => lists.every((lease) => lease.remaining() > 20 && lease.held)
			&& network.calls('dlock_renew_many').length > 1));
		const most = (request) => Math.max(...network.calls(request).map(([, text]) => text.match(/"list\d+-\d+"/g).length));
		is('by at most 1,000 in a call', most('dlock_renew_many') <= 1000);
		await client.close();
		is('and released', await isFree('list1-1') && await isFree('list12-100') && most('dlock_release_many') <= 1000);
	}
	await asker.end();
}

(async () => {
	for (const driver of process.argv.slice(2))
		await cases(driver);
	end();
})();
