/*
 * dlock.js
 *	  Leases of dlock that are kept alive, for pg and mysql2.
 *
 *		await withLease({ connect, name: 'nightly-report', ttl: 30 }, async (lease) => {
 *			for (const part of parts) {
 *				lease.check();				// throws Lost if it is not ours any more
 *				await work(part, lease.token, lease.signal);
 *			}
 *		});
 *
 * A lease is acquired before the function is called, renewed while it runs, and
 * released when it has ended.  clients/CONTRACT.md says what all clients of dlock
 * keep; dlock.d.ts says what the options and members are.
 *
 * Everything happens in the program's event loop.  A program that blocks it for longer than two
 * thirds of the TTL finds the lease lost when it goes on: every question compares the clock first.
 *
 * SPDX-License-Identifier: PostgreSQL
 */

'use strict';

const { randomBytes } = require('crypto');
const os = require('os');

const RELEASE_LIMIT = 5;		// seconds for which a release is tried at most
const LONGEST_NAP = 1;			// timers do not count a suspension, so look at the clock that often
const AHEAD = 0.02;				// seconds
const FIRST_PAUSE = 0.05;		// after a failure, doubled up to the longest
const LONGEST_PAUSE = 1;
const FIRST_TRY_AGAIN = 0.02;	// where the server does not wait: half as much more each time, up to the longest pause
const PROBED_AFTER = 1;			// seconds that a connection was idle
const MOST_NAMES = 1000;		// of a call
const MOST_EVENTS = 10000;		// that wait to be told

/* ------------------------------------------------------------------- clock */

/*
 * A clock that nobody sets, and that counts the time a machine was suspended, as Node.js has none on
 * Linux; "monotonic" and "wall" answer seconds.  To the first it adds by how much the second has
 * run ahead since the clock was last looked at.  Time services turn it by less than AHEAD meanwhile.
 * So a time of day that somebody sets can only shorten a lease.
 */
function clock(monotonic, wall) {
	let last = { monotonic: monotonic(), wall: wall() };
	let added = 0;
	return () => {
		const next = { monotonic: monotonic(), wall: wall() };
		const ahead = (next.wall - last.wall) - (next.monotonic - last.monotonic);
		if (ahead >= AHEAD)
			added += ahead;
		last = next;
		return next.monotonic + added;
	};
}

/* Seconds of the clock of all deadlines.  While a lease is held, something looks each second. */
const now = clock(() => Number(process.hrtime.bigint()) / 1e9, () => Date.now() / 1000);

/* ------------------------------------------------------------------ errors */

class DlockError extends Error {
	constructor(message, { sqlstate, errno, cause } = {}) {
		super(message, cause === undefined ? undefined : { cause });
		this.name = this.constructor.name;
		this.sqlstate = sqlstate;
		this.errno = errno;
	}
}
class Busy extends DlockError {}
class Lost extends DlockError {}
class Misuse extends DlockError {}
class Unavailable extends DlockError {}

/* Ends a wait that is of no use any more; callers never see it. */
class Stopped extends Error {}

const MISUSE_NUMBERS = new Set([
	1044, 1045, 1046, 1049, 1064, 1122, 1123, 1130, 1138, 1142, 1143, 1227, 1234, 1235, 1292, 1305, 1370, 1410, 1698,
	1820, 1862, 3037, 3118, 3955, 4151]);

function isMisuse(sqlstate, errno, message) {
	if (errno === undefined)
		return /^(22|28|42)/.test(sqlstate) || ['0A000', '25P01', '3D000', '3F000', '54000', '55000'].includes(sqlstate);
	// MariaDB has one number for a guard outside a transaction and for errors that may pass
	return MISUSE_NUMBERS.has(errno) || ['25P01', '54000', '55000'].includes(sqlstate)
		|| (errno === 1105 && message.includes('can only be used in transactions'));
}

/* Our error for what was thrown; a mistake of the program itself stays as it is. */
function told(error) {
	if (error instanceof DlockError || error instanceof Stopped || error instanceof TypeError
		|| error instanceof ReferenceError || error instanceof RangeError || error instanceof SyntaxError)
		return error;
	const message = error instanceof Error ? error.message || String(error.code) : String(error);
	const details = { cause: error };
	if (typeof error?.sqlState === 'string')
		Object.assign(details, { sqlstate: error.sqlState, errno: error.errno });
	else if (error?.severity !== undefined)
		details.sqlstate = error.code;
	else
		return new Unavailable(message, details);
	if (details.sqlstate === '55L01')
		return new Lost(message, details);
	if (details.sqlstate === '40P01' || details.errno === 3058)
		return new Busy(message, details);
	return new (isMisuse(details.sqlstate, details.errno, message) ? Misuse : Unavailable)(message, details);
}

/*
 * Has PostgreSQL no such function, or none of the tables or schemas that one uses?  Or is the schema
 * another's already, as a call learns that waited for so long?
 */
const isGone = (error) => ['42883', '42P01', '3F000'].includes(error.sqlstate)
	|| (error.sqlstate === '42501' && error.message.includes('dlock_private'));

/* Of the errors of two attempts, the one to tell: the later answer of the server, which has an
 * SQLSTATE, or if there is none, the later one. */
function reasonOf(error, before) {
	return before && isAnswer(before) && !isAnswer(error) ? before : error;
}

/* Whether this is what the server said. */
function isAnswer(error) {
	return error.sqlstate !== undefined;
}

/* ------------------------------------------------------------- connections */

// dlock_release_after() of many; a MySQL or MariaDB without it renews for that time
const LEAVE = 'dlock_release_after_many';

// the servers' error of a function that there is not; MySQL's, where no database is selected
const NO_FUNCTION = [1305, 1046];

/*
 * The program makes the connections.  Whatever it has set, how its driver parses values, how the
 * session quotes and which encoding it speaks, must change no answer, and the program's own
 * connection, which guard() uses, must stay as it is.  So each statement is ASCII, has text in a form
 * that nothing can read otherwise, and asks for answers as text that we read ourselves.
 *
 * Text is sent as it is where that is safe, since names should be readable in the server's lists of
 * what runs, and else as the bytes of its UTF-8.
 */

/*
 * Where the server has plain/dlock.sql and no library, what takes or extends a lease is a procedure,
 * which is called in another way, and does not wait.  The keeper learns it from the server's refusal (42809), and also
 * that it is so no more.
 */
const isProcedure = (request) => request !== 'dlock_guard' && request !== 'dlock_release_many';

const postgres = {
	stream: (client) => client.connection?.stream,
	observe: (client, listener) => client.on('error', listener).on('end', listener),
	// what a procedure answers cannot be cast, and the driver reads bytes as if they were text
	async open(client) {
		client.binary = false;
	},
	end: (client) => client.end(),

	async answer(client, calls, request, args) {
		if (calls && request === LEAVE) {
			const [names, owner, after, tokens] = args;
			const left = [];
			for (const [i, name] of names.entries())
				if (await this.answer(client, calls, 'dlock_release_after', [name, owner, after, tokens[i]]) === 't')
					left.push(name);
			return left;
		}
		const byCall = calls && isProcedure(request);
		const values = [];
		const mark = (value) => `$${values.push(value)}`;
		// all encodings of clients have ASCII in common
		const text = (value) => (/^[\x01-\x7f]*$/.test(value) ? mark(value) : `convert_from(${mark(Buffer.from(value))}, 'UTF8')`);
		const array = (list) => `{${list.map((item) => (typeof item === 'string' ? `"${item.replace(/["\\]/g, '\\$&')}"` : item)).join(',')}}`;
		const list = args.map((arg) => {
			if (Array.isArray(arg))
				return `${text(array(arg))}::${typeof arg[0] === 'string' ? 'text' : 'bigint'}[]`;
			return typeof arg === 'string' ? text(arg) : mark(String(arg));
		});
		if (byCall && request.startsWith('dlock_acquire'))
			values[values.length - 2] = '0';	// the wait, which is the client's
		const call = `${request}(${list.join(', ')})`;
		const [names, owner, after, tokens] = list;
		const found = request !== LEAVE ? `${call} name`
			: `ROWS FROM (unnest(${names}), unnest(${tokens})) lease(name, token) WHERE dlock_release_after(name, ${owner}, ${after}, token)`;
		const { rows } = await client.query({
			text: byCall ? `CALL ${call}`
				: request.endsWith('_many') ? `SELECT encode(convert_to(name, 'UTF8'), 'hex') FROM ${found}`
				: `SELECT ${call}${request === 'dlock_guard' ? '' : '::text'}`,
			values,
			rowMode: 'array',
			types: { getTypeParser: () => String },
		});
		// of many, the places of those for which it was done
		if (byCall && request.endsWith('_many'))
			return (rows[0][1].match(/\d+/g) ?? []).map((place) => args[0][place - 1]);
		return request.endsWith('_many') ? rows.map(([name]) => Buffer.from(name, 'hex').toString()) : rows[0][0];
	},
};
const mysql = {
	stream: (connection) => connection.connection?.stream,
	observe: (connection, listener) => connection.connection.on('error', listener).on('end', listener),
	// createConnection() of mysql2 itself has only begun to connect
	open: (connection) => connection.connect(),
	end: (connection) => connection.end(),

	async answer(connection, calls, request, args) {
		// The driver would escape by backslashes, which mean nothing under NO_BACKSLASH_ESCAPES, and
		// its own placeholders may be the program's: ? and :name.  Statements that are prepared
		// would be in the way of proxies, and convert text to the session's character set.
		const text = (value) => (/^[\w .,/+="[\]-]*$/.test(value) ? `_binary'${value}'` : `X'${Buffer.from(value).toString('hex')}'`);
		const marks = args.map((arg) => {
			if (Array.isArray(arg))
				return text(JSON.stringify(arg));
			return typeof arg === 'string' ? text(arg) : String(arg);
		});
		const list = marks.join(', ');
		const [names, owner, after, tokens] = marks;
		const isList = request === 'dlock_acquire_all' || request.endsWith('_many');
		const [rows] = await connection.query({
			sql: request === 'dlock_guard' ? `CALL dlock.guard(${list})`
				: request === LEAVE ? "SELECT CAST(COALESCE(CONVERT(JSON_ARRAYAGG(l.name) USING utf8mb4), '[]') AS BINARY)"
					+ ` FROM JSON_TABLE(CONVERT(${names} USING utf8mb4), '$[*]' COLUMNS`
					+ " (place FOR ORDINALITY, name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS l"
					+ ` WHERE dlock_release_after(l.name, ${owner}, ${after},`
					+ ` JSON_EXTRACT(CONVERT(${tokens} USING utf8mb4), CONCAT('$[', l.place - 1, ']'))) = 1`
				: `SELECT ${isList ? `CAST(${request}(${list}) AS BINARY)` : `${request}(${list})`} LIMIT 1`,		// whatever sql_select_limit is
			rowsAsArray: true,
			nestTables: false,
			typeCast: (field) => field.buffer()?.toString() ?? null,
		}, []);
		if (request === 'dlock_guard')
			return null;
		if (!request.endsWith('_many'))
			return rows[0][0];
		// a server may have no room for an answer, which says nothing about the leases
		if (rows[0][0] === null)
			throw new Unavailable('there is no answer');
		return JSON.parse(rows[0][0]);
	},
};

/* A driver, and the connection as we use it. */
function driverOf(connection) {
	const [driver, usable] = typeof connection?.execute !== 'function' ? [postgres, connection]
		: [mysql, typeof connection.promise === 'function' ? connection.promise() : connection];
	if (typeof usable?.query !== 'function')
		throw new Misuse('this is no connection of pg or mysql2');
	return [driver, usable];
}

/* Call a function of dlock.  An acquire answers its tokens, or null; what is done to many leases, the
 * names for which it was done. */
async function call(driver, connection, calls, request, ...args) {
	const answer = await driver.answer(connection, calls, request, args);
	if (request.startsWith('dlock_acquire'))
		return answer && answer.match(/\d+/g).map(Number);
	return answer;
}

/* --------------------------------------------------------------- arguments */

/* What the client takes; undefined and null are as good as left out. */
const LEASE_OPTIONS = ['name', 'names', 'ttl', 'wait', 'shared', 'permits', 'signal', 'onLost', 'onEvent', 'connectTimeout',
	'keepAtLeast'];
const CLIENT_OPTIONS = ['connect', 'owner', 'onEvent', 'connectTimeout'];

/* As core/duration.c has them. */
const UNITS = [
	[1e-6, 'us usec usecs microsecond microseconds'],
	[1e-3, 'ms msec msecs millisecond milliseconds'],
	[1, 's sec secs second seconds'],
	[60, 'm min mins minute minutes'],
	[3600, 'h hr hrs hour hours'],
	[86400, 'd day days'],
	[7 * 86400, 'w week weeks'],
	[30 * 86400, 'mon mons month months'],
	[360 * 86400, 'y yr yrs year years'],
];

function secondsOf(text) {
	const trimmed = text.trim();
	if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(trimmed))
		return Number(trimmed);
	const parts = [...trimmed.matchAll(/\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*([a-z]+)/gi)];
	if (!parts.length || parts.map(([part]) => part).join('') !== trimmed)
		return NaN;
	const given = new Set();
	let total = 0;
	for (const [, number, word] of parts) {
		const [unit] = UNITS.find(([, words]) => words.split(' ').includes(word.toLowerCase())) ?? [NaN];
		// each unit once
		if (given.has(unit))
			return NaN;
		given.add(unit);
		total += number * unit;
	}
	return Math.round(total * 1e6) / 1e6;
}

function readSeconds(value, what, isAllowed = () => true) {
	const seconds = typeof value === 'string' ? secondsOf(value) : value;
	if (!Number.isFinite(seconds) || Math.abs(seconds) > 1e9 || !isAllowed(seconds))
		throw new Misuse(`${what} cannot be "${String(value)}": it is a number of seconds, or text such as "500 ms"`);
	return seconds;
}

const isPositive = (seconds) => seconds > 0;

function readText(value, what) {
	if (typeof value !== 'string')
		throw new Misuse(`${what} must be text`);
	if (value.includes('\0') || /\p{Surrogate}/u.test(value))
		throw new Misuse(`${what} must not contain a NUL or half a surrogate pair`);
	const length = Buffer.byteLength(value);
	if (length < 1 || length > 255)
		throw new Misuse(`${what} must have 1 to 255 bytes; it has ${length}`);
	return value;
}

function readNames(names) {
	if (typeof names === 'string' || typeof names[Symbol.iterator] !== 'function')
		throw new Misuse('names must be a list');
	const list = [...names].map((name) => readText(name, 'name'));
	if (list.length < 1 || list.length > 100 || new Set(list).size < list.length)
		throw new Misuse('names must be 1 to 100 different names');
	return list;
}

/* The options that are given; misuse if there are others than those known. */
function readOptions(options, known) {
	if (typeof options !== 'object' || options === null)
		throw new Misuse('options must be an object');
	for (const option of Object.keys(options)) {
		if (!known.includes(option))
			throw new Misuse(`there is no option "${option}"`);
	}
	const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined && value !== null));
	for (const option of ['connect', 'onLost', 'onEvent']) {
		if (given[option] !== undefined && typeof given[option] !== 'function')
			throw new Misuse(`${option} must be a function`);
	}
	return given;
}

/* ----------------------------------------------------------------- waiting */

/* Waiting for promises, and for times.  wake() has all that wait look again, at what "until" and
 * "isOver" say by then. */
class Waits {
	#looks = new Set();

	wake() {
		for (const look of [...this.#looks])
			look();
	}

	/*
	 * Wait for a promise until a time, which is an error if it comes first; or without a promise
	 * just until then.  Throws Stopped if it is over.
	 */
	within(promise, until, isOver = () => false) {
		return new Promise((resolve, reject) => {
			let timer;
			let isDone = false;
			const done = (settle, value) => {
				isDone = true;
				clearTimeout(timer);
				this.#looks.delete(look);
				settle(value);
			};
			const look = () => {
				const isStopped = isOver();
				const left = until() - now();
				// asking for the time may end a lease, which wakes this
				if (isDone)
					return;
				clearTimeout(timer);
				if (isStopped)
					done(reject, new Stopped());
				else if (left > 0)
					timer = setTimeout(look, Math.ceil(1000 * Math.min(left, LONGEST_NAP)));
				else if (promise)
					done(reject, new Unavailable('the server did not answer in time'));
				else
					done(resolve);
			};
			this.#looks.add(look);
			promise?.then((value) => done(resolve, value), (error) => done(reject, told(error)));
			look();
		});
	}
}

/* What a program's function throws is a warning, which does not end a program that may have other
 * leases. */
async function callBack(called, ...args) {
	try {
		await called(...args);
	} catch (error) {
		process.emitWarning(error instanceof Error ? error : String(error));
	}
}

// the program's connections that links have: no two have the same
const taken = new WeakSet();

/* A connection of the client's own. */
class Link {
	#keeper;
	#given;						// by the program
	#connection;				// the same, as we use it
	#driver;
	#opening;
	#isOver = false;
	#idleSince = Infinity;

	constructor(keeper) {
		this.#keeper = keeper;
	}

	/* Whether it was closed, by whomever. */
	get isOver() { return this.#isOver; }

	/* Connect, once. */
	open() {
		this.#opening ??= this.#open();
		return this.#opening;
	}

	async #open() {
		try {
			// not on the stack of Lease.acquire()
			await null;
			const given = await this.#keeper.connect();
			const [driver, connection] = driverOf(given);
			// as those of pg-native, and pools
			if (typeof driver.stream(connection)?.destroy !== 'function')
				throw new Misuse('connect must make a connection of pg or mysql2, and no pool');
			// an acquire that waits would keep the heartbeat waiting
			if (taken.has(given))
				throw new Misuse('connect must make a new connection each time');
			taken.add(this.#given = given);
			[this.#driver, this.#connection] = [driver, connection];
			// without a listener, the end of an idle connection would end the program
			driver.observe(connection, () => { this.#isOver = true; });
			await driver.open(connection);
			// a stream of the program's own making may not have it
			driver.stream(connection).setKeepAlive?.(true, 15000);
		} catch (error) {
			const ours = told(error);
			// passwords and directories are sometimes wrong for a while
			throw this.#keeper.wasLoggedIn && ours instanceof Misuse && isAnswer(ours) ? new Unavailable(ours.message, ours) : ours;
		}
		this.#keeper.wasLoggedIn = true;
		// it may have been given up meanwhile
		if (this.#isOver)
			this.giveUp();
	}

	/* The answer, when the request was sent, and whether it was to a procedure. */
	async ask(request) {
		const sent = now();
		const { calls } = this.#keeper;
		let asked = request;
		const renew = () => { asked = ['dlock_renew_many', ...request.slice(1)]; };
		if (this.#keeper.cannotLeave && request[0] === LEAVE)
			renew();
		const answer = (byCall) => call(this.#driver, this.#connection, byCall, ...asked);
		try {
			return { sent, answer: await answer(calls), calls };
		} catch (error) {
			// a MySQL or MariaDB without dlock_release_after()
			if (asked[0] === LEAVE && NO_FUNCTION.includes(error.errno)) {
				this.#keeper.cannotLeave = true;
				renew();
				return { sent, answer: await answer(calls), calls };
			}
			// it is a procedure, or is none any more, as others learn at the same time; nothing was begun
			if (error.code !== '42809')
				throw error;
			this.#keeper.calls = !calls;
			return { sent, answer: await answer(!calls), calls: !calls };
		}
	}

	/* It is kept for the next acquire. */
	rest() {
		this.#idleSince = now();
		return this;
	}

	/* Connect, or find out whether what was idle still works: nobody may have said that its network is gone. */
	async ready() {
		await this.open();
		if (now() - this.#idleSince > PROBED_AFTER)
			await this.#connection.query('SELECT 1');
		this.#idleSince = Infinity;
	}

	/* End the connection now, whatever it is doing. */
	giveUp() {
		this.#isOver = true;
		if (!this.#connection)
			return;
		taken.delete(this.#given);
		this.#driver.stream(this.#connection).destroy();
	}

	/* End it in an orderly way. */
	close() {
		if (this.#isOver || !this.#connection) {
			this.giveUp();
			return;
		}
		this.#isOver = true;
		taken.delete(this.#given);
		const end = setTimeout(() => this.giveUp(), 1000);
		Promise.resolve(this.#driver.end(this.#connection)).catch(() => {}).finally(() => clearTimeout(end));
	}
}

/* --------------------------------------------------------------- heartbeat */

/*
 * What keeps the leases of one owner: those of a program's client, or one lease that was made without
 * one.  It renews and releases all of them by one connection, in one call after the other: run().
 *
 * In "names" is what no other lease of a client may have: from the beginning of an acquire until it
 * is over, or until the release was answered.  In "beating" are the leases that are to be renewed or
 * released; each has the time at which that is "due".
 */
class Keeper {
	wasLoggedIn = false;
	wasThere = false;			// dlock, as one of its functions has shown
	calls = false;				// the server has procedures, and no library
	cannotLeave = false;		// it is a MySQL or MariaDB without dlock_release_after()
	#link = null;				// the heartbeat's
	#spare = null;				// the next acquire's
	#names = new Map();			// until when each is taken
	#members = new Set();		// the leases that take them
	#beating = new Set();
	#isRunning = false;
	isClosing = false;
	#isFailing = false;			// the last call failed
	#pause = FIRST_PAUSE;		// after the next call without an answer
	#restUntil = 0;				// no call before
	#waits = new Waits();
	#watch;
	#events = [];
	#telling = null;

	constructor({ connect, owner, onEvent, connectTimeout = 10 }, isShared) {
		if (connect === undefined)
			throw new Misuse('connect must be a function that makes a connection');
		this.connect = connect;
		this.isShared = isShared;
		this.ownerIsOurs = owner === undefined;
		this.owner = this.ownerIsOurs ? `${os.hostname().slice(0, 180)}/${process.pid}/${randomBytes(8).toString('hex')}`
			: readText(owner, 'owner');
		this.onEvent = onEvent;
		this.connectTimeout = readSeconds(connectTimeout, 'connectTimeout', isPositive);
	}

	/* An acquire begins, if that answers 0; or until then, a lease that is over may still have one of
	 * the names. */
	enter(hold) {
		if (this.isClosing)
			throw new Misuse('the client is closed');
		const until = Math.max(0, ...this.isShared ? hold.names.map((name) => this.#names.get(name) ?? 0) : []);
		if (until === Infinity)
			throw new Misuse(`another lease of this client has "${hold.names.find((name) => this.#names.get(name) === until)}"`);
		if (until > now())
			return until;
		for (const name of hold.names)
			this.#names.set(name, Infinity);
		this.#members.add(hold);
		return 0;
	}

	/* A lease is over; the server may still have it for so many seconds. */
	leave(hold, seconds) {
		this.#members.delete(hold);
		for (const name of hold.names)
			this.#names.delete(name);
		if (seconds > 0 && this.isShared) {
			for (const name of hold.names)
				this.#names.set(name, now() + seconds);
			for (const [name, until] of this.#names) {
				if (until <= now())
					this.#names.delete(name);
			}
		}
		if (!this.#members.size && (this.isClosing || !this.isShared)) {
			for (const link of [this.#link, this.#spare])
				link?.close();
			this.#link = this.#spare = null;
		}
		this.#waits.wake();
	}

	/* A connection for an acquire, if there is one: it may have been closed. */
	takeSpare() {
		const link = this.#spare;
		this.#spare = null;
		return link?.isOver ? null : link;
	}

	/* An acquire does not need its connection any more. */
	putBack(link, isGranted) {
		if (isGranted && !this.#link)
			this.#link = link;
		else if (this.isShared && !this.#spare && !this.isClosing)
			this.#spare = link.rest();
		else
			link.close();
	}

	/* A lease is held. */
	begin(hold) {
		held.add(hold);
		this.#beating.add(hold);
		this.#go();
		this.#look();
	}

	/* It is lost. */
	end(hold) {
		this.#beating.delete(hold);
		this.#waits.wake();
	}

	/* Release a lease; whether the server has confirmed it. */
	release(hold, wasLost) {
		return new Promise((resolve) => {
			const limit = wasLost ? 1 : Math.min(RELEASE_LIMIT, Math.max(0, hold.deadline - now()));
			hold.leaving = { wasLost, since: now(), until: now() + limit, resolve };
			hold.due = 0;
			hold.part = null;
			this.#beating.add(hold);
			this.#go();
		});
	}

	async close() {
		this.isClosing = true;
		for (const hold of [...this.#members])
			hold.release();
		await this.#waits.within(null, () => (this.#members.size ? Infinity : 0));
		this.#spare?.close();
		this.#link?.close();
		await this.#telling;
	}

	/* Compare the clock with all deadlines, at least each second. */
	#look() {
		clearTimeout(this.#watch);
		let first = Infinity;
		for (const hold of this.#beating) {
			hold.look();
			if (hold.state === 'held')
				first = Math.min(first, hold.lostAt);
		}
		if (first < Infinity)
			this.#watch = setTimeout(() => this.#look(), Math.ceil(1000 * Math.min(LONGEST_NAP, Math.max(0, first - now())))).unref();
	}

	#go() {
		this.#waits.wake();
		if (!this.#isRunning) {
			this.#isRunning = true;
			this.#run();
		}
	}

	/* The heartbeat: until nothing is to be renewed or released. */
	async #run() {
		const at = () => {
			const next = this.#next();
			return next ? Math.max(next.due, this.#restUntil) : 0;
		};
		for (;;) {
			await this.#waits.within(null, at);
			const next = this.#next();
			if (!next)
				break;
			await this.#call(next);
		}
		this.#isRunning = false;
	}

	/*
	 * Of the leases that are to be renewed or released, the one whose turn is next.  Of those that are
	 * due it is one whose call did not fail, then one of the largest part of a call that did: so one
	 * bad lease stands in the way of few.  Then the one that ends first.
	 */
	#next() {
		const time = now();
		let next = null;
		const isBefore = (one, other) => {
			if (one.due > time || other.due > time)
				return one.due < other.due;
			const [size, otherSize] = [one, other].map(({ part }) => part?.length ?? Infinity);
			return size === otherSize ? one.lostAt < other.lostAt : size > otherSize;
		};
		if (this.#link?.isOver)
			this.#link = null;
		// a lost lease may still be held, but is not worth a connection of its own
		const isWorth = this.#link || [...this.#beating].some((hold) => !hold.leaving?.wasLost);
		for (const hold of this.#beating) {
			hold.look();
			if (hold.leaving && (time >= hold.leaving.until || !isWorth))
				this.#left(hold, false, hold.ttl);
			else if (this.#beating.has(hold) && (!next || isBefore(hold, next)))
				next = hold;
		}
		return next;
	}

	/* The leases of the next call: what it does is the same for all of them. */
	#batch() {
		const first = this.#next();
		if (!first || first.due > now())
			return [];
		if (first.isToBeKept)
			return [first];
		const isLike = first.leaving ? (hold) => hold.leaving && !hold.isToBeKept
			: (hold) => !hold.leaving && hold.ttl === first.ttl && hold.due <= now() + first.ttl / 6;
		let count = 0;
		return [...this.#beating].filter((hold) => isLike(hold) && hold.part === first.part)
			.sort((a, b) => a.lostAt - b.lostAt)
			.filter((hold) => (count += hold.names.length) <= MOST_NAMES);
	}

	/* How long a connection may be silent that was asked at this time, for a lease of this ttl. */
	#patience(asked, ofTtl) {
		let until = asked + ofTtl / 4;
		for (const { leaving, ttl } of this.#beating) {
			until = Math.min(until, leaving ? Math.max(asked, leaving.since) + Math.max(0.1, Math.min(ttl / 4, RELEASE_LIMIT / 2))
				: asked + ttl / 4);
		}
		return until;
	}

	/* One call of the heartbeat, for all that it can be for; this lease's turn is next. */
	async #call(next) {
		const began = now();
		const link = this.#link ??= new Link(this);
		let batch = [];
		let isRelease = false;
		let kept = 0;
		try {
			await this.#waits.within(link.open(), () => this.#patience(began, next.ttl));
			// what is due may be something else by now
			batch = this.#batch();
			if (!batch.length)
				return;
			const [{ leaving, ttl, isToBeKept, keepUntil }] = batch;
			isRelease = Boolean(leaving);
			const asked = now();
			// others that use an owner that the program named may believe for a ttl that they hold it
			kept = !isToBeKept ? 0 : this.ownerIsOurs ? keepUntil - asked : Math.max(keepUntil - asked, ttl);
			const names = batch.flatMap((hold) => hold.names);
			const tokens = batch.flatMap((hold) => hold.tokens);
			const lostAt = isRelease ? Infinity : batch[0].lostAt;
			const { sent, answer } = await this.#waits.within(link.ask(isRelease && !kept
				? ['dlock_release_many', names, this.owner, tokens]
				: [kept ? LEAVE : 'dlock_renew_many', names, this.owner, kept || ttl, tokens]), () => Math.min(this.#patience(asked, ttl), lostAt));
			this.#isFailing = false;
			this.#pause = FIRST_PAUSE;
			const done = new Set(answer);
			for (const hold of batch) {
				const isDone = hold.names.every((name) => done.has(name));
				if (isRelease)
					this.#left(hold, isDone, kept);
				else
					hold.answered(isDone, sent);
			}
		} catch (error) {
			this.#failed(error, link, batch, isRelease, kept);
		}
	}

	/*
	 * A call was not answered, or by an error; without a batch, there is no connection.  It is made
	 * again in two halves: one lease that cannot be renewed takes no other with it.  After an error
	 * that is the first in a row, the halves go by the same connection, at once.
	 */
	#failed(error, link, batch, isRelease, kept) {
		const isAnswered = batch.length > 0 && isAnswer(error);
		if (!isAnswered) {
			this.#restUntil = now() + this.#pause;
			this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
		} else if (this.#isFailing)
			this.#restUntil = now() + FIRST_PAUSE;
		if (!isAnswered || this.#isFailing || batch.length < 2) {
			// a server that refuses all, such as one that is read-only now, may not be the one any more
			if (isAnswered)
				link.close();
			else
				link.giveUp();
			if (this.#link === link)
				this.#link = null;
		}
		this.#isFailing = true;
		const dueNow = batch.length ? batch : [...this.#beating].filter((hold) => hold.due <= now());
		for (const hold of dueNow) {
			if (hold.state === 'held')
				hold.failed(error);
		}
		// those that still are as they were when they were asked for
		const again = batch.filter((hold) => this.#beating.has(hold) && Boolean(hold.leaving) === isRelease);
		if (isRelease && !kept && !isAnswered && !this.ownerIsOurs) {
			// it may have been done; a second one would take another hold of the owner
			for (const hold of again)
				this.#left(hold, false, hold.ttl);
			return;
		}
		const middle = Math.ceil(again.length / 2);
		for (const part of [again.slice(0, middle), again.slice(middle)]) {
			for (const hold of part)
				hold.part = part;
		}
		if (batch.length === 1 && again.length) {
			const [hold] = again;
			hold.due = now() + hold.pause;
			hold.pause = Math.min(2 * hold.pause, LONGEST_PAUSE);
		}
	}

	/* A lease was released, if that is done; the server may still have it for so many seconds. */
	#left(hold, isDone, seconds) {
		this.#beating.delete(hold);
		if (!hold.leaving.wasLost)
			this.tell(hold, 'released', now() - hold.acquiredAt);
		this.leave(hold, seconds);
		hold.leaving.resolve(isDone);
	}

	/* Events, in their order.  Between two the event loop goes on, so that a function that takes its
	 * time is not in the way of the heartbeat. */

	tell(hold, kind, seconds) {
		const called = hold.onEvent ?? this.onEvent;
		for (const name of called ? hold.names : []) {
			if (this.#events.length < MOST_EVENTS)
				this.#events.push([called, kind, name, seconds]);
		}
		if (this.#events.length)
			this.#telling ??= this.#tellAll();
	}

	async #tellAll() {
		while (this.#events.length) {
			await new Promise((resolve) => { setImmediate(resolve); });
			callBack(...this.#events.shift());
		}
		this.#telling = null;
	}

	/* All events until now are told. */
	get told() { return this.#telling; }
}

/* ------------------------------------------------------------------ leases */

// for releaseAll()
const held = new Set();

/*
 * A lease as its keeper has it.  The program's object is a Lease, which nothing here keeps alive: so
 * we find out if the program has dropped it.
 */
class Hold {
	state = 'new';
	tokens = [];
	deadline = 0;
	acquiredAt = 0;
	keepUntil = 0;
	loss = new AbortController();
	// its turn in the heartbeat
	due = 0;
	part = null;				// of a call that failed, what is made again together with this
	pause = FIRST_PAUSE;
	leaving = null;				// its release
	#cause;						// of the loss
	#isCanceled = false;
	#isDropped = false;
	#isSettled = true;			// what an acquire that failed may have been granted was given back
	#request = randomBytes(16).toString('hex');
	#waits = new Waits();

	constructor(keeper, { name, names, shared = false, permits, ttl = 30, wait = 0, signal, onLost, onEvent, connectTimeout, keepAtLeast = 0 }) {
		if ((name === undefined) === (names === undefined))
			throw new Misuse('name one lease, or several by names');
		if ((names !== undefined) + Boolean(shared) + (permits !== undefined) > 1)
			throw new Misuse('names, shared and permits exclude each other');
		if (permits !== undefined && !(Number.isSafeInteger(permits) && permits > 0))
			throw new Misuse('permits must be a whole number above 0');
		if (signal !== undefined && typeof signal.addEventListener !== 'function')
			throw new Misuse('signal must be an AbortSignal');
		this.keeper = keeper;
		this.isList = names !== undefined;
		this.names = this.isList ? readNames(names) : [readText(name, 'name')];
		this.isShared = Boolean(shared);
		this.permits = permits;
		this.ttl = readSeconds(ttl, 'ttl', isPositive);
		this.wait = readSeconds(wait, 'wait');
		this.connectTimeout = connectTimeout === undefined ? keeper.connectTimeout : readSeconds(connectTimeout, 'connectTimeout', isPositive);
		this.keepAtLeast = readSeconds(keepAtLeast, 'keepAtLeast', (seconds) => seconds >= 0);
		this.signal = signal;
		this.onLost = onLost;
		this.onEvent = onEvent;
	}

	/* When it is lost, or when its release is given up. */
	get lostAt() {
		return this.leaving ? this.leaving.until : this.deadline - Math.min(this.ttl / 10, 1);
	}

	/* Whether it is to be given back later. */
	get isToBeKept() { return Boolean(this.leaving) && !this.leaving.wasLost && this.keepUntil > now(); }

	/* Compare the clock with the deadline. */
	look() {
		if (this.state === 'held' && now() >= this.lostAt)
			this.lose(this.#cause ?? new Unavailable('it was not renewed in time'));
	}

	check() {
		this.look();
		if (this.state === 'lost')
			throw this.#lostError();
		if (this.state !== 'held')
			throw new Misuse(`the lease is not held: it is ${this.state}`);
	}

	async guard(connection) {
		this.check();
		const [driver, usable] = driverOf(connection);
		for (const [i, name] of this.names.entries()) {
			try {
				await call(driver, usable, false, 'dlock_guard', name, this.keeper.owner, this.tokens[i]);
			} catch (error) {
				const ours = told(error);
				if (ours instanceof Lost)
					this.lose(ours);
				throw ours;
			}
		}
	}

	/* A renewal was answered. */
	answered(isDone, sent) {
		this.look();
		// its release may have begun
		if (this.state !== 'held')
			return;
		this.#cause = undefined;
		if (!isDone) {
			this.lose();
			return;
		}
		this.deadline = sent + this.ttl;
		this.due = sent + this.ttl / 3;
		this.part = null;
		this.pause = FIRST_PAUSE;
		this.keeper.tell(this, 'renewed', now() - sent);
	}

	/* A renewal failed. */
	failed(error) {
		this.#cause = reasonOf(error, this.#cause);
		this.look();
		if (this.state === 'held')
			this.keeper.tell(this, 'late', this.lostAt - now());
	}

	lose(cause) {
		if (this.state !== 'held')
			return;
		this.state = 'lost';
		this.#cause = cause;
		held.delete(this);
		this.keeper.end(this);
		this.keeper.tell(this, 'lost', now() - this.acquiredAt);
		this.loss.abort(this.#lostError());
		// not from within a call of the program
		if (this.onLost)
			queueMicrotask(() => callBack(this.onLost, this.lease.deref() ?? new Lease(this)));
		if (this.#isDropped)
			this.release();
	}

	#lostError() {
		const { sqlstate, errno } = this.#cause ?? {};
		return new Lost(`${this.names.join(', ')}: the lease is lost`, { sqlstate, errno, cause: this.#cause });
	}

	/* The program has dropped its object.  Somebody may be working under the lease all the same. */
	dropped() {
		this.#isDropped = true;
		if (this.state === 'held') {
			process.emitWarning(`${this.names.join(', ')}: the lease is still renewed, but its object was dropped without release()`, 'DlockWarning');
			this.keeper.tell(this, 'unreferenced', now() - this.acquiredAt);
		} else
			this.release();
	}

	async release() {
		this.look();
		const was = this.state;
		if (was === 'waiting') {
			this.#isCanceled = true;
			this.#waits.wake();
			return false;
		}
		this.state = 'released';
		held.delete(this);
		return was === 'held' || was === 'lost' ? this.keeper.release(this, was === 'lost') : false;
	}

	async acquire() {
		if (this.state !== 'new')
			throw new Misuse(`a lease is acquired once: it is ${this.state}`);
		this.state = 'waiting';
		const { keeper, signal } = this;
		const start = now();
		// what ends the wait does not end the lease
		const cancel = () => this.state === 'waiting' && this.release();
		let hasEntered = false;
		signal?.addEventListener('abort', cancel);
		try {
			if (signal?.aborted)
				throw signal.reason;
			for (let until; (until = keeper.enter(this));) {
				if (this.wait >= 0 && until > start + this.wait)
					throw new Busy(`${this.names.join(', ')}: a lease of this client that is over may still be held`);
				await this.#waits.within(null, () => (keeper.isClosing ? 0 : until), () => this.#isCanceled);
			}
			hasEntered = true;
			await this.#acquire(start);
		} catch (error) {
			this.state = 'released';
			keeper.tell(this, 'refused', now() - start);
			if (hasEntered)
				keeper.leave(this, this.#isSettled ? 0 : this.ttl);
			throw error instanceof Stopped ? signal?.reason ?? new Unavailable('the acquire was canceled') : error;
		} finally {
			signal?.removeEventListener('abort', cancel);
		}
	}

	async #acquire(start) {
		const { keeper } = this;
		// until a server was reached; then without limit, or until the wait is over and the server has had its time to answer
		let last = start + this.connectTimeout;
		let pause = FIRST_PAUSE;
		let again = FIRST_TRY_AGAIN;
		let link = keeper.takeSpare();
		let isSpare = Boolean(link);
		let isUnsure = false;		// whether the server has granted it
		let reason;
		try {
			for (;;) {
				try {
					link ??= new Link(keeper);
					await this.#ask(link, null, Math.min(last, now() + this.connectTimeout / 3));
					last = this.wait < 0 ? Infinity : start + this.wait + this.connectTimeout;
					const left = this.wait < 0 ? this.wait : Math.max(0, start + this.wait - now());
					const wasUnsure = isUnsure;
					isUnsure = true;
					let { sent, answer, calls } = await this.#ask(link, this.#acquireRequest(left), last).catch((error) => {
						isUnsure = wasUnsure || !isAnswer(error);
						keeper.wasThere ||= /^55/.test(error.sqlstate);
						// somebody replaces plain/dlock.sql by the extension
						throw keeper.wasThere && isGone(error) ? new Unavailable(error.message, error) : error;
					});
					keeper.wasThere = true;
					if (answer === null) {
						isUnsure = false;
						const end = this.wait < 0 ? Infinity : start + this.wait;
						if (calls && now() < end) {
							const next = Math.min(end, now() + again * (0.5 + Math.random()));
							await this.#waits.within(null, () => next, () => this.#isCanceled);
							again = Math.min(1.5 * again, LONGEST_PAUSE);
							continue;
						}
						keeper.putBack(link, false);
						link = null;
						throw new Busy(`${this.names.join(', ')} not free within ${this.wait} s`);
					}
					const tokens = answer;
					if (now() - sent > this.ttl / 3) {
						// when was it granted?
						({ sent, answer } = await this.#ask(link, ['dlock_renew_many', this.names, keeper.owner, this.ttl, tokens],
							now() + this.ttl / 3));
						if (!this.names.every((name) => answer.includes(name)))
							continue;		// it is over: go on waiting
					}
					if (this.#isCanceled)
						throw new Stopped();
					this.deadline = sent + this.ttl;
					if (now() < this.lostAt) {
						this.tokens = tokens;
						this.due = sent + this.ttl / 3;
						this.acquiredAt = now();
						this.keepUntil = this.acquiredAt + this.keepAtLeast;
						this.state = 'held';
						keeper.tell(this, 'acquired', this.acquiredAt - start);
						keeper.putBack(link, true);
						keeper.begin(this);
						return;
					}
					// this took too long: the same request again moves the deadline
				} catch (error) {
					if (!(error instanceof Unavailable))
						throw error;
					link?.close();
					link = null;
					reason = reasonOf(error, reason);
					if (isSpare) {
						isSpare = false;
						last = now() + this.connectTimeout;
						continue;
					}
					if (now() + pause >= last)
						throw reason;
					const resume = now() + pause;
					await this.#waits.within(null, () => resume, () => this.#isCanceled);
					pause = Math.min(2 * pause, LONGEST_PAUSE);
				}
			}
		} catch (error) {
			link?.close();
			// it may have been granted, though no answer came
			this.#isSettled = !isUnsure || await this.#giveBack(now() + (error instanceof Unavailable ? 1 : RELEASE_LIMIT));
			throw error;
		}
	}

	/* Ask, or without a request only see to it that there is a connection; gives the connection up if there is no answer. */
	async #ask(link, request, until, isOver = () => this.#isCanceled) {
		try {
			return await this.#waits.within(request ? link.ask(request) : link.ready(), () => until, isOver);
		} catch (error) {
			if (!request || !isAnswer(error))
				link.giveUp();
			throw error;
		}
	}

	#acquireRequest(wait) {
		const tail = [wait, this.#request];
		const { owner } = this.keeper;
		if (this.isList)
			return ['dlock_acquire_all', this.names, owner, this.ttl, ...tail];
		if (this.permits !== undefined)
			return ['dlock_acquire_permit', this.names[0], owner, this.ttl, this.permits, ...tail];
		return [this.isShared ? 'dlock_acquire_shared' : 'dlock_acquire', this.names[0], owner, this.ttl, ...tail];
	}

	/* Give back what an acquire that was given up may have been granted; whether that is settled. */
	async #giveBack(until) {
		const { keeper } = this;
		const link = new Link(keeper);
		const ask = (request) => this.#ask(link, request, until, () => false);
		try {
			await ask(null);
			if (keeper.ownerIsOurs && !keeper.isShared)
				await ask(['dlock_release_many', this.names, keeper.owner]);
			else {
				// the owner may have other holds: repeating the request id finds this one's, or
				// takes one more
				const { answer } = await ask(this.#acquireRequest(0));
				if (answer !== null)
					await ask(['dlock_release_many', this.names, keeper.owner, answer]);
			}
			return true;
		} catch {
			return false;			// it ends at its deadline
		} finally {
			link.close();
		}
	}
}

const dropped = new FinalizationRegistry((hold) => hold.dropped());

class Lease {
	#hold;

	/* Made by the program from its options, or here, with the keeper of a client, or for a hold. */
	constructor(given, keeper) {
		if (given instanceof Hold) {
			this.#hold = given;
			return;
		}
		const options = readOptions(given, keeper ? LEASE_OPTIONS : [...LEASE_OPTIONS, ...CLIENT_OPTIONS]);
		this.#hold = new Hold(keeper ?? new Keeper(options, false), options);
		this.#hold.lease = new WeakRef(this);
	}

	get name() { return this.#hold.names[0]; }
	get names() { return [...this.#hold.names]; }
	get owner() { return this.#hold.keeper.owner; }
	get deadline() { return this.#hold.deadline; }
	get signal() { return this.#hold.loss.signal; }

	get state() {
		this.#hold.look();
		return this.#hold.state;
	}

	get held() { return this.state === 'held'; }

	get tokens() {
		if (!this.#hold.tokens.length)
			throw new Misuse('the lease was not acquired');
		return [...this.#hold.tokens];
	}

	get token() { return this.tokens[0]; }

	remaining() {
		return this.held ? Math.max(0, this.deadline - now()) : 0;
	}

	check() {
		this.#hold.check();
	}

	guard(connection) {
		return this.#hold.guard(connection);
	}

	/* No async function: drivers keep the stack of their connect(), and what awaits it is part of that. */
	acquire() {
		return this.#hold.acquire().then(() => {
			dropped.register(this, this.#hold, this.#hold);
			return this;
		});
	}

	release() {
		dropped.unregister(this.#hold);
		return this.#hold.release();
	}
}

/* Many leases by one connection, of one owner. */
class Client {
	#keeper;

	constructor(options) {
		this.#keeper = new Keeper(readOptions(options, CLIENT_OPTIONS), true);
	}

	get owner() { return this.#keeper.owner; }

	lease(options) {
		return new Lease(options, this.#keeper);
	}

	async withLease(options, work) {
		return workUnder(this.lease(options), work);
	}

	close() {
		return this.#keeper.close();
	}
}

// where the language has "await using"
if (Symbol.asyncDispose) {
	Lease.prototype[Symbol.asyncDispose] = async function asyncDispose() {
		const wasLost = this.state === 'lost';
		try {
			if (wasLost)
				this.check();
		} finally {
			await this.release();
		}
	};
	Client.prototype[Symbol.asyncDispose] = Client.prototype.close;
}

async function workUnder(lease, work) {
	await lease.acquire();
	let result;
	try {
		result = await work(lease);
		if (lease.state === 'lost')
			lease.check();
	} finally {
		await lease.release();
	}
	return result;
}

async function withLease(options, work) {
	return workUnder(new Lease(options), work);
}

async function releaseAll() {
	const holds = [...held];
	await Promise.all(holds.map((hold) => hold.release()));
	await Promise.all(holds.map((hold) => hold.keeper.told));
}

module.exports = { Client, Lease, withLease, releaseAll, now, clock, DlockError, Busy, Lost, Misuse, Unavailable };
