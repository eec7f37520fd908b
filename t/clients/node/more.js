// Cases that only the client for Node.js has.  Prints TAP; its arguments are the
// drivers.

'use strict';

const path = require('path');
const dlock = require(path.join(__dirname, '../../../clients/node/dlock.js'));
const { PATIENCE, connector, end, errorOf, ok, until } = require('./tap');

/* What release() answers, and the lease, which is acquired with the number of the try.  A release
   that has no answer within half of 5 s is given up, and tried once more with another lease. */
async function released(acquire) {
	for (let number = 0; ; number++) {
		const lease = await acquire(number);
		const began = dlock.now();
		const answer = await lease.release();
		if (answer || dlock.now() < began + 2.5 || number === 20)
			return [answer, lease];
	}
}

async function cases(driver) {
	const connect = connector(driver);
	const options = (name, more) => ({ connect, name, ttl: 60, connectTimeout: PATIENCE, ...more });
	const is = (what, passed) => ok(passed, `${driver}: ${what}`);

	const lease = new dlock.Lease(options('order'));
	is('not held yet', await errorOf((async () => lease.check())()) instanceof dlock.Misuse);
	await lease.acquire();
	is('a token is a number', Number.isSafeInteger(lease.token));
	is('acquired once', await errorOf(lease.acquire()) instanceof dlock.Misuse);
	await lease.release();
	let [answer, last] = await released((number) => new dlock.Lease(options(`order-${driver}-${number}`)).acquire());
	is('released once', answer === true && await last.release() === false && last.state === 'released');
	is('withLease answers what the function does', await dlock.withLease(options('answer'), () => 7) === 7);

	// signals
	const aborted = AbortSignal.abort(new Error('why'));
	is('aborted before', (await errorOf(new dlock.Lease(options('abort', { signal: aborted })).acquire())).message === 'why');
	const controller = new AbortController();
	const kept = await new dlock.Lease(options('abort', { signal: controller.signal })).acquire();
	controller.abort();
	is('what ends the wait does not end the lease', kept.held);
	if (Symbol.asyncDispose) {
		await kept[Symbol.asyncDispose]();
		is('disposed', kept.state === 'released');
	} else
		await kept.release();

	// keep at least
	[answer, last] = await released((number) =>
		new dlock.Lease(options(`kept-${driver}-${number}`, { ttl: 600, keepAtLeast: 300 })).acquire());
	is('keepAtLeast: released', answer);
	const connection = await connect();
	const result = await connection.query(driver === 'pg' ? `SELECT remaining AS seconds FROM dlock_holders('${last.name}')`
		: `SELECT JSON_VALUE(dlock_holders('${last.name}'), '$[0].remaining') AS seconds`);
	const [{ seconds }] = driver === 'pg' ? result.rows : result[0];
	is('keepAtLeast: but to be kept until then', seconds > 0 && seconds <= 300);
	await connection.end();

	// the owner's other holds stay
	[answer] = await released(async (number) => {
		const twice = options(`twice-${driver}-${number}`, { owner: 'me' });
		const first = await new dlock.Lease(twice).acquire();
		is('two of one owner', await dlock.withLease(twice, (second) => second.token) === first.token);
		return first;
	});
	is('each has a hold of its own', answer);

	// a release while the heartbeat connects
	[answer] = await released(async (number) => {
		let first;
		let isConnecting = false;
		let goOn;
		const mayConnect = new Promise((resolve) => { goOn = resolve; });
		const again = await new dlock.Lease(options(`again-${driver}-${number}`, {
			connect: async () => {
				isConnecting = first !== undefined;
				if (isConnecting)
					await mayConnect;
				const made = await connect();
				first ??= made;
				return made;
			},
			ttl: 15,
			owner: 'me',
		})).acquire();
		first.connection.stream.destroy();
		await until(() => isConnecting);
		return {
			release: () => {
				const answered = again.release();
				goOn();
				return answered;
			},
		};
	});
	is('a release waits for the connection that the heartbeat makes', answer);

	// connect() hangs, fails, is wrong
	let hangs = false;
	let told = 0;
	let link;
	const lost = await new dlock.Lease(options('hangs', {
		connect: async () => {
			if (hangs)
				await new Promise(() => {});
			link = await connect();
			return link;
		},
		ttl: 2,
		onLost: () => { told++; },
	})).acquire();
	hangs = true;
	(link.connection.stream).destroy();
	is('lost is told though connect() hangs', await until(() => lost.signal.aborted));
	is('its reason', lost.signal.reason instanceof dlock.Lost && lost.signal.reason.cause !== undefined);
	await lost.release();
	is('once', told === 1);
	is("connect()'s own mistakes come out",
		await errorOf(new dlock.Lease(options('wrong', { connect: () => null.x })).acquire()) instanceof TypeError);
	is('it must make a connection', await errorOf(new dlock.Lease(options('wrong', { connect: () => 1 })).acquire()) instanceof dlock.Misuse);

	const isFree = async (name) => {
		const other = await connect();
		const answered = await other.query(`SELECT CASE WHEN dlock_is_free('${name}') THEN 1 ELSE 0 END AS free`);
		await other.end();
		return (driver === 'pg' ? answered.rows : answered[0])[0].free === 1;
	};

	// a blocked event loop
	const warnings = [];
	const warned = (warning) => warnings.push(warning.message);
	process.on('warning', warned);
	const blocked = await new dlock.Lease(options('blocked', { ttl: 3, onLost: () => { throw new Error('of the program'); } })).acquire();
	for (const end = dlock.now() + 3; dlock.now() < end;);
	is('who blocks the event loop finds the lease lost', !blocked.held && blocked.signal.aborted);
	is('an error of onLost is a warning', await until(() => warnings.includes('of the program')));
	process.off('warning', warned);
	if (Symbol.asyncDispose)
		is('disposed, it raises Lost', await errorOf(blocked[Symbol.asyncDispose]()) instanceof dlock.Lost);
	is('it is released', blocked.state === 'released' || await blocked.release());
	[answer, last] = await released(async (number) => {
		const all = await new dlock.Lease(options(`all-${driver}-${number}`)).acquire();
		return { all, release: () => dlock.releaseAll().then(() => isFree(all.name)) };
	});
	is('releaseAll', last.all.state === 'released' && answer);
}

(async () => {
	for (const driver of process.argv.slice(2))
		await cases(driver);
	end();
})();
