<?php
// hold.php NAME SECONDS : work for some seconds under a lease, which "dlock hold" holds.

// Call a function under a lease.  It gets the token, and a function that says whether the lease
// is lost.  Answers "busy", "lost" or "done".
function with_lease(string $name, callable $work, string ...$options): string
{
    $command = ['dlock', 'hold', '--quiet', ...$options, $name];
    $hold = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
    $held = fgets($pipes[1]);
    if ($held === false) {
        return proc_close($hold) === 75 ? 'busy' : 'lost';
    }
    stream_set_blocking($pipes[1], false);
    $lost = function () use ($pipes): bool {
        stream_get_contents($pipes[1]);
        return feof($pipes[1]); // it ends with the lease
    };
    try {
        $work(json_decode($held)->token, $lost);
    } finally {
        fclose($pipes[0]); // gives it back
        $status = proc_close($hold);
    }
    return $status === 0 ? 'done' : 'lost';
}

[, $name, $seconds] = $argv;
echo with_lease($name, function (int $token, callable $lost) use ($seconds) {
    echo "held $token\n";
    for ($step = 0; $step < $seconds * 10 && !$lost(); $step++) {
        usleep(100000); // a step of the work
    }
}), "\n";
