// dlock-coordinator.js: a run coordinator for node-cron 4: each fire of a task runs in one of
// many processes.
//
//   const coordinator = new DlockCoordinator(ask);
//   cron.schedule('0 2 * * *', report, { name: 'report', distributed: true, runCoordinator: coordinator });
//
// "ask" calls a function of dlock's, over the driver that you have; with pg, and with mysql2:
//
//   (name, values) => pool.query(`SELECT ${name}(${values.map((_, i) => `$${i + 1}`)}) AS answer`, values)
//     .then(({ rows }) => rows[0].answer)
//   (name, values) => pool.execute(`SELECT ${name}(${values.map(() => '?')}) AS answer`, values)
//     .then(([rows]) => rows[0].answer)
//
// The key has the task's name and the time of the fire, so the tasks need names.  The lease is
// not given back when the task has ended: a process whose clock is slow comes to this fire
// later, and is to find it taken.  It ends after distributedLease.  So a task that takes longer
// than the time to the next fire may run twice at a time: take a lease on a name of your own
// in it.

'use strict';

const { randomBytes } = require('crypto');
const { hostname } = require('os');

class DlockCoordinator {
	constructor(ask) {
		this.ask = ask;
		this.owner = `${hostname()}/${process.pid}/${randomBytes(8).toString('hex')}`;
	}

	async shouldRun(key, ttlMs) {
		// a fraction that the drivers bind as a number
		return (await this.ask('dlock_acquire', [key, this.owner, ttlMs / 1000])) !== null;
	}
}

module.exports = { DlockCoordinator };
