// The example of clients/node/README.md for prom-client, run with the real library.  Prints TAP; its
// arguments are the drivers.

'use strict';

const fs = require('fs');
const path = require('path');
const prom = require('prom-client');

const folder = path.join(__dirname, '../../../clients/node');
const dlock = require(folder);
const { connector, ok, end } = require('./tap');

// the block of the readme, as a function of connect() that answers its client
const [, block] = fs.readFileSync(path.join(folder, 'README.md'), 'utf8').match(/```js\n(import prom .*?)```/s);
const run = new Function('connect', 'require', `${block.replace(/import (.*) from '(.*)';/g, "const $1 = require('$2');")}\nreturn leases;`);

async function cases(driver) {
	prom.register.clear();
	const connect = connector(driver);
	const leases = run(connect, (name) => (name === 'dlock-client' ? dlock : require(name)));
	const rival = new dlock.Client({ connect, connectTimeout: 180 });
	await leases.withLease({ name: 'counted', connectTimeout: 180 }, async () => {
		await rival.withLease({ name: 'counted' }, () => {}).catch(() => {});
	});
	await rival.withLease({ name: 'taken' }, () => leases.withLease({ name: 'taken', connectTimeout: 180 }, () => {}).catch(() => {}));
	await leases.close();
	await rival.close();
	const text = await prom.register.metrics();
	for (const line of [
		'dlock_events_total{kind="acquired",name="counted"} 1',
		'dlock_events_total{kind="released",name="counted"} 1',
		'dlock_events_total{kind="refused",name="taken"} 1',
		'dlock_acquire_seconds_count{kind="acquired"} 1',
		'dlock_acquire_seconds_count{kind="refused"} 1',
	])
		ok(text.includes(`\n${line}\n`), `${driver}: ${line}`);
}

(async () => {
	for (const driver of process.argv.slice(2))
		await cases(driver);
	end();
})();
