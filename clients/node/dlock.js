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

/* Of the errors of two attempts, the one to tell: the later answer of the server, which has an
 * SQLSTATE, or if there is none, the later one. */
function reasonOf(error, before) {
	return before?.sqlstate !== undefined && error.sqlstate === undefined ? before : error;
}

/* ------------------------------------------------------------- connections */

/*
 * The program makes the connections.  Whatever it has set, how its driver parses values, how the
 * session quotes and which encoding it speaks, must change no answer, and the program's own
 * connection, which guard() uses, must stay as it is.  So each statement is ASCII, has text in a form
 * that nothing can read otherwise, and asks for answers as text that we read ourselves.
 *
 * Text is sent as it is where that is safe, since names should be readable in the server's lists of
 * what runs, and else as the bytes of its UTF-8.
 */
const postgres = {
	stream: (client) => client.connection?.stream,
	observe: (client, listener) => client.on('error', listener).on('end', listener),
	async open() {},
	end: (client) => client.end(),

	async answer(client, request, args) {
		const values = [];
		const mark = (value) => `$${values.push(value)}`;
		// all encodings of clients have ASCII in common
		const text = (value) => (/^[\x01-\x7f]*$/.test(value) ? mark(value) : `convert_from(${mark(Buffer.from(value))}, 'UTF8')`);
		const array = (list) => `{${list.map((item) => (typeof item === 'string' ? `"${item.replace(/["\\]/g, '\\$&')}"` : item)).join(',')}}`;
		const call = `${request}(${args.map((arg) => {
			if (Array.isArray(arg))
				return `${text(array(arg))}::${typeof arg[0] === 'string' ? 'text' : 'bigint'}[]`;
			return typeof arg === 'string' ? text(arg) : mark(String(arg));
		}).join(', ')})`;
		const { rows } = await client.query({
			text: request.endsWith('_many') ? `SELECT encode(convert_to(name, 'UTF8'), 'hex') FROM ${call} name`
				: `SELECT ${call}${request === 'dlock_guard' ? '' : '::text'}`,
			values,
			rowMode: 'array',
			types: { getTypeParser: () => String },
		});
		return request.endsWith('_many') ? rows.map(([name]) => Buffer.from(name, 'hex').toString()) : rows[0][0];
	},
};
const mysql = {
	stream: (connection) => connection.connection?.stream,
	observe: (connection, listener) => connection.connection.on('error', listener).on('end', listener),
	// createConnection() of mysql2 itself has only begun to connect
	open: (connection) => connection.connect(),
	end: (connection) => connection.end(),

	async answer(connection, request, args) {
		// The driver would escape by backslashes, which mean nothing under NO_BACKSLASH_ESCAPES, and
		// its own placeholders may be the program's: ? and :name.  Statements that are prepared
		// would be in the way of proxies, and convert text to the session's character set.
		const text = (value) => (/^[\w .,/+=-]*$/.test(value) ? `_binary'${value}'` : `X'${Buffer.from(value).toString('hex')}'`);
		const list = args.map((arg) => {
			if (Array.isArray(arg))
				return text(JSON.stringify(arg));
			return typeof arg === 'string' ? text(arg) : String(arg);
		}).join(', ');
		const isList = request === 'dlock_acquire_all' || request.endsWith('_many');
		const [rows] = await connection.query({
			sql: request === 'dlock_guard' ? `CALL dlock.guard(${list})`
				: `SELECT ${isList ? `CAST(${request}(${list}) AS BINARY)` : `${request}(${list})`} LIMIT 1`,		// whatever sql_select_limit is
			rowsAsArray: true,
			nestTables: false,
			typeCast: (field) => field.buffer()?.toString() ?? null,
		}, []);
		if (request === 'dlock_guard')
			return null;
		return request.endsWith('_many') ? JSON.parse(rows[0][0]) : rows[0][0];
	},
};

/* A driver, and the connection as we use it. */
function driverOf(connection) {
	const [driver, usable] = typeof connection?.execute !== 'function' ? [postgres, connection]
		: [mysql, typeof connection.promise === 'function' ? connection.promise() : connection];
	if (typeof usable?.query !== 'function' || typeof driver.stream(usable)?.destroy !== 'function')
		throw new Misuse('this is no connection of pg or mysql2');
	return [driver, usable];
}

/* Call a function of dlock.  An acquire answers its tokens, or null; what is done to many leases, the
 * names for which it was done. */
async function call(driver, connection, request, ...args) {
	const answer = await driver.answer(connection, request, args);
	if (request.startsWith('dlock_acquire'))
		return answer && answer.match(/\d+/g).map(Number);
	return answer;
}

/* A connection of the lease's own.  After an error it is of no use any more. */
class Link {
	#connection;
	#driver;
	#givenUp = false;
	#opening;

	constructor(connect) {
		this.connect = connect;
	}

	/* Connect, once. */
	open() {
		this.#opening ??= this.#open();
		return this.#opening;
	}

	async #open() {
		const [driver, connection] = driverOf(await this.connect());
		[this.#driver, this.#connection] = [driver, connection];
		// without a listener, the end of an idle connection would end the program
		driver.observe(connection, () => {});
		await driver.open(connection);
		// a stream of the program's own making may not have it
		driver.stream(connection).setKeepAlive?.(true, 15000);
		if (this.#givenUp)
			this.giveUp();
	}

	/* The answer, and when the request was sent. */
	async ask(request, ...args) {
		const sent = now();
		return { sent, answer: await call(this.#driver, this.#connection, request, ...args) };
	}

	/* End the connection now, whatever it is doing. */
	giveUp() {
		this.#givenUp = true;
		if (this.#connection)
			this.#driver.stream(this.#connection).destroy();
	}

	close() {
		const end = setTimeout(() => this.giveUp(), 1000);
		Promise.resolve(this.#driver.end(this.#connection)).catch(() => {}).finally(() => clearTimeout(end));
	}
}

/* ------------------------------------------------------------------ leases */

const held = new Set();

class Lease {
	#options;
	#names;
	#isList;
	#owner;
	#ownerIsOurs;
	#ttl;
	#wait;
	#connectTimeout;
	#keepAtLeast;
	#margin;
	#request = randomBytes(16).toString('hex');
	#state = 'new';
	#tokens = [];
	#deadline = 0;
	#keepUntil = 0;
	#link = null;
	#cause;						// of the loss
	#canceled = false;
	#lost = new AbortController();
	#looks = new Set();			// functions that wait for a change of the state

	constructor(options) {
		const { connect, name, names, shared = false, permits, ttl = 30, wait = 0, connectTimeout = 10, keepAtLeast = 0 } = options;
		if (typeof connect !== 'function')
			throw new Misuse('connect must be a function that makes a connection');
		if ((name === undefined) === (names === undefined))
			throw new Misuse('name one lease, or several by names');
		if ((names !== undefined) + Boolean(shared) + (permits !== undefined) > 1)
			throw new Misuse('names, shared and permits exclude each other');
		this.#options = options;
		this.#isList = names !== undefined;
		this.#names = this.#isList ? [...names] : [name];
		this.#ownerIsOurs = options.owner === undefined;
		this.#owner = options.owner ?? `${os.hostname().slice(0, 180)}/${process.pid}/${randomBytes(8).toString('hex')}`;
		this.#ttl = Number(ttl);
		this.#wait = Number(wait);
		this.#connectTimeout = Number(connectTimeout);
		this.#keepAtLeast = Number(keepAtLeast);
		this.#margin = Math.min(this.#ttl / 10, 1);
	}

	get name() { return this.#names[0]; }
	get names() { return [...this.#names]; }
	get owner() { return this.#owner; }
	get deadline() { return this.#deadline; }
	get signal() { return this.#lost.signal; }

	get state() {
		this.#look();
		return this.#state;
	}

	get held() { return this.state === 'held'; }

	get tokens() {
		if (!this.#tokens.length)
			throw new Misuse('the lease was not acquired');
		return [...this.#tokens];
	}

	get token() { return this.tokens[0]; }

	remaining() {
		return this.held ? Math.max(0, this.#deadline - now()) : 0;
	}

	check() {
		const { state } = this;
		if (state === 'lost')
			throw this.#lostError();
		if (state !== 'held')
			throw new Misuse(`the lease is not held: it is ${state}`);
	}

	async guard(connection) {
		this.check();
		const [driver, usable] = driverOf(connection);
		for (const [i, name] of this.#names.entries()) {
			try {
				await call(driver, usable, 'dlock_guard', name, this.#owner, this.#tokens[i]);
			} catch (error) {
				const ours = told(error);
				if (ours instanceof Lost)
					this.#lose(ours);
				throw ours;
			}
		}
	}

	async acquire() {
		if (this.#state !== 'new')
			throw new Misuse(`a lease is acquired once: it is ${this.#state}`);
		this.#state = 'waiting';
		const { signal } = this.#options;
		const cancel = () => {
			this.#canceled = true;
			this.#wake();
		};
		signal?.addEventListener('abort', cancel);
		try {
			if (signal?.aborted)
				throw signal.reason;
			await this.#acquire();
		} catch (error) {
			this.#state = 'released';
			throw error instanceof Stopped ? signal?.reason ?? new Unavailable('the acquire was canceled') : error;
		} finally {
			signal?.removeEventListener('abort', cancel);
		}
		held.add(this);
		return this;
	}

	async release() {
		this.#look();
		const was = this.#state;
		if (was === 'waiting') {
			this.#canceled = true;
			this.#wake();
		}
		if (was === 'waiting' || was === 'released')
			return false;
		const link = this.#link;
		this.#state = 'released';
		this.#link = null;
		this.#wake();
		held.delete(this);
		if (was === 'new')
			return false;
		// a lost lease may still be held, but is not worth a new connection
		const limit = was === 'lost' ? 1 : Math.min(RELEASE_LIMIT, Math.max(0, this.#deadline - now()));
		return this.#release(link, now() + limit, was === 'held');
	}

	/* Requests: a function and its arguments. */

	#acquireRequest(wait) {
		const tail = [wait, this.#request];
		if (this.#isList)
			return ['dlock_acquire_all', this.#names, this.#owner, this.#ttl, ...tail];
		if (this.#options.permits !== undefined)
			return ['dlock_acquire_permit', this.name, this.#owner, this.#ttl, this.#options.permits, ...tail];
		return [this.#options.shared ? 'dlock_acquire_shared' : 'dlock_acquire', this.name, this.#owner, this.#ttl, ...tail];
	}

	#renewRequest(tokens, ttl) {
		return ['dlock_renew_many', this.#names, this.#owner, ttl, tokens];
	}

	#releaseRequest(tokens) {
		return ['dlock_release_many', this.#names, this.#owner, ...(tokens ? [tokens] : [])];
	}

	/* Whether a renewal or a release was done, for all names. */
	#isDone(answer) {
		return this.#names.every((name) => answer.includes(name));
	}

	/* Waiting. */

	#wake() {
		for (const look of [...this.#looks])
			look();
	}

	/*
	 * Wait for a promise until a time, which is an error if it comes first; or without a promise
	 * just until then.  Throws Stopped if the lease changes its state.
	 */
	#within(promise, until, state) {
		return new Promise((resolve, reject) => {
			let timer;
			const done = (settle, value) => {
				clearTimeout(timer);
				this.#looks.delete(look);
				settle(value);
			};
			const look = () => {
				clearTimeout(timer);
				if (state && (this.#state !== state || (state === 'waiting' && this.#canceled))) {
					done(reject, new Stopped());
					return;
				}
				const left = until - now();
				if (left > 0)
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

	/* Ask, or without a request only connect; gives the connection up if that does not work. */
	async #ask(link, request, until, state) {
		try {
			return await this.#within(request ? link.ask(...request) : link.open(), until, state);
		} catch (error) {
			// a renewal may be answered before the release, on the same connection
			if (!(error instanceof Stopped && state === 'held'))
				link.giveUp();
			throw error;
		}
	}

	/* The acquire. */

	async #acquire() {
		const start = now();
		// until a server was reached; then without limit, or until the wait is over and the server has had its time to answer
		let last = start + this.#connectTimeout;
		let pause = 0.05;
		let link = null;
		let asked = false;
		let reason;
		try {
			for (;;) {
				try {
					if (!link) {
						link = new Link(this.#options.connect);
						await this.#ask(link, null, Math.min(last, now() + this.#connectTimeout / 3), 'waiting');
						last = this.#wait < 0 ? Infinity : start + this.#wait + this.#connectTimeout;
					}
					const left = this.#wait < 0 ? this.#wait : Math.max(0, start + this.#wait - now());
					asked = true;
					let { sent, answer } = await this.#ask(link, this.#acquireRequest(left), last, 'waiting');
					const tokens = answer;
					if (answer === null) {
						link.close();
						link = null;
						throw new Busy(`${this.#names.join(', ')} not free within ${this.#wait} s`);
					}
					if (now() - sent > this.#ttl / 3) {
						// when was it granted?
						({ sent, answer } = await this.#ask(link, this.#renewRequest(tokens, this.#ttl), now() + this.#ttl / 3, 'waiting'));
						if (!this.#isDone(answer))
							continue;		// it is over: go on waiting
					}
					if (this.#canceled)
						throw new Stopped();
					if (now() < sent + this.#ttl - this.#margin) {
						this.#link = link;
						this.#tokens = tokens;
						this.#deadline = sent + this.#ttl;
						this.#keepUntil = now() + this.#keepAtLeast;
						this.#state = 'held';
						this.#keep();
						return;
					}
					// this took too long: the same request again moves the deadline
				} catch (error) {
					if (!(error instanceof Unavailable))
						throw error;
					link = null;
					reason = reasonOf(error, reason);
					if (now() + pause >= last)
						throw reason;
					await this.#within(null, now() + pause, 'waiting');
					pause = Math.min(2 * pause, 1);
				}
			}
		} catch (error) {
			link?.giveUp();
			// it may have been granted, though no answer came
			if (asked && !(error instanceof Busy || error instanceof Misuse))
				await this.#giveBack(now() + (error instanceof Unavailable ? 1 : RELEASE_LIMIT));
			throw error;
		}
	}

	/* Give back what an acquire that was given up may have been granted. */
	async #giveBack(until) {
		const link = new Link(this.#options.connect);
		try {
			await this.#ask(link, null, until);
			if (this.#ownerIsOurs)
				await this.#ask(link, this.#releaseRequest(), until);
			else {
				// the owner may have other holds: repeating the request id finds this one's, or
				// takes one more
				const { answer } = await this.#ask(link, this.#acquireRequest(0), until);
				if (answer !== null)
					await this.#ask(link, this.#releaseRequest(answer), until);
			}
			link.close();
		} catch {
			// it ends at its deadline
		}
	}

	/* The heartbeat: until the lease is lost or released. */
	async #keep() {
		try {
			for (;;) {
				await this.#within(null, this.#deadline - this.#ttl * 2 / 3, 'held');
				await this.#renew();
			}
		} catch (error) {
			if (!(error instanceof Stopped))
				throw error;
		}
	}

	async #renew() {
		for (let pause = 0.05; ; pause = Math.min(2 * pause, 1)) {
			const lostAt = this.#deadline - this.#margin;
			const until = Math.min(now() + this.#ttl / 3, lostAt);
			this.#look();
			if (this.#state !== 'held')
				throw new Stopped();
			try {
				this.#link ??= new Link(this.#options.connect);
				const link = this.#link;
				await this.#ask(link, null, until, 'held');
				const { sent, answer } = await this.#ask(link, this.#renewRequest(this.#tokens, this.#ttl), until, 'held');
				this.#look();
				if (this.#state === 'held' && !this.#isDone(answer))
					this.#lose();
				if (this.#state !== 'held')
					throw new Stopped();
				this.#deadline = sent + this.#ttl;
				this.#cause = undefined;
				return;
			} catch (error) {
				if (error instanceof Stopped)
					throw error;
				this.#cause = reasonOf(error, this.#cause);
				this.#link = null;
				await this.#within(null, Math.min(now() + pause, lostAt), 'held');
			}
		}
	}

	/* Compare the clock with the deadline. */
	#look() {
		if (this.#state === 'held' && now() >= this.#deadline - this.#margin)
			this.#lose(this.#cause ?? new Unavailable('it was not renewed in time'));
	}

	#lose(cause) {
		if (this.#state !== 'held')
			return;
		this.#state = 'lost';
		this.#cause = cause;
		held.delete(this);
		this.#wake();
		this.#lost.abort(this.#lostError());
		// not from within a call of the program
		if (this.#options.onLost)
			queueMicrotask(() => this.#tell());
	}

	/* An error of the program's own function does not end the program, which may have other leases. */
	async #tell() {
		try {
			await this.#options.onLost(this);
		} catch (error) {
			process.emitWarning(error instanceof Error ? error : String(error));
		}
	}

	#lostError() {
		const { sqlstate, errno } = this.#cause ?? {};
		return new Lost(`${this.#names.join(', ')}: the lease is lost`, { sqlstate, errno, cause: this.#cause });
	}

	/* Give the lease back, by this connection or, if "again", by new ones. */
	async #release(link, until, again) {
		for (let pause = 0.05; link || (again && now() < until); pause = Math.min(2 * pause, 1)) {
			const limit = Math.min(until, now() + Math.max(0.1, Math.min(this.#ttl / 3, RELEASE_LIMIT / 2)));
			let asked = false;
			try {
				link ??= new Link(this.#options.connect);
				// a renewal may be connecting it
				await this.#ask(link, null, limit);
				const left = again ? this.#keepUntil - now() : 0;
				asked = true;
				// an owner that the program named may have other holds, which must not end sooner
				const { answer } = await this.#ask(link, left > 0
					? this.#renewRequest(this.#tokens, this.#ownerIsOurs ? left : Math.max(left, this.#ttl))
					: this.#releaseRequest(this.#tokens), limit);
				link.close();
				return this.#isDone(answer);
			} catch {
				link = null;
				// it may have been done; a second one would take another hold of the owner
				if (asked && !this.#ownerIsOurs)
					return false;
				if (again)
					await this.#within(null, Math.min(now() + pause, until));
			}
		}
		return false;
	}
}

// where the language has "await using"
if (Symbol.asyncDispose)
	Lease.prototype[Symbol.asyncDispose] = async function asyncDispose() {
		const wasLost = this.state === 'lost';
		try {
			if (wasLost)
				this.check();
		} finally {
			await this.release();
		}
	};

async function withLease(options, work) {
	const lease = await new Lease(options).acquire();
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

async function releaseAll() {
	await Promise.all([...held].map((lease) => lease.release()));
}

module.exports = { Lease, withLease, releaseAll, now, clock, DlockError, Busy, Lost, Misuse, Unavailable };
