// examples/adapters/dlock-coordinator.js, with node-cron.
// speaks: postgres mariadb mysql
// npm: node-cron pg mysql2

'use strict';

const cron = require('node-cron');
const { DlockCoordinator } = require('../../../examples/adapters/dlock-coordinator.js');
const { server, address, ok, same, program, until } = require('./cases');

// as the adapter says
function pool() {
	if (server.isPostgres) {
		const made = new (require('pg').Pool)(address);
		return {
			end: () => made.end(),
			ask: (name, values) => made.query(`SELECT ${name}(${values.map((_, i) => `$${i + 1}`)}) AS answer`, values)
				.then(({ rows }) => rows[0].answer),
		};
	}
	const made = require('mysql2/promise').createPool(address);
	return {
		end: () => made.end(),
		ask: (name, values) => made.execute(`SELECT ${name}(${values.map(() => '?')}) AS answer`, values)
			.then(([rows]) => rows[0].answer),
	};
}

program(async () => {
	const { ask, end } = pool();
	const coordinators = [1, 2].map(() => new DlockCoordinator(ask));
	same(await coordinators[0].shouldRun('key', 600000), true, 'the first one runs');
	same(await coordinators[1].shouldRun('key', 600000), false, 'the second one does not');
	ok((await ask('dlock_remaining', ['key', coordinators[0].owner])) > 300, 'for as long as was asked for');
	same(await coordinators[1].shouldRun('half', 1500), true, 'a time with a fraction');

	// two schedulers, as in two processes: each fire runs once
	const runs = [];
	let skipped = 0;
	const tasks = coordinators.map((runCoordinator) => {
		const task = cron.createTask('* * * * * *', ({ date }) => { runs.push(date.toISOString()); }, {
			name: 'often', distributed: true, runCoordinator, distributedLease: 600000, suppressMissedWarning: true,
		});
		task.on('execution:skipped', () => { skipped++; });
		return task;
	});
	tasks.forEach((task) => task.start());
	await until(async () => runs.length >= 3 && skipped >= 3);
	await Promise.all(tasks.map((task) => task.destroy()));
	same(new Set(runs).size, runs.length, 'each fire runs once');
	await end();
});
