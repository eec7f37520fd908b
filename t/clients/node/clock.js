// The clock of the client for Node.js, with made-up clocks in place of the machine's.  Prints TAP.

'use strict';

const path = require('path');
const dlock = require(path.join(__dirname, '../../../clients/node/dlock.js'));
const { end, ok } = require('./tap');

let [monotonic, wall] = [100, 1000];
const now = dlock.clock(() => monotonic, () => wall);
const passes = (by, ahead = 0) => { monotonic += by; wall += by + ahead; return now(); };
ok(passes(0) === 100, 'clock: the monotonic one');
ok(passes(5) === 105, 'clock: goes on with it');
ok(passes(1, 60) === 166, 'clock: a suspension counts');
ok(passes(1, -3600) === 167, 'clock: a time of day that was set back does not');
ok(passes(1, 0.019) === 168, 'clock: nor what time services do');
for (let i = 0; i < 1000; i++)
	passes(1, 0.0005);
ok(now() === 1168, 'clock: however often');
ok(Math.abs(passes(1, 3600) - 4769) < 1e-6, 'clock: a time of day that was set forward does, after a set back too');

end();
