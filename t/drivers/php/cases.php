<?php
// What the programs for PHP's drivers share: TAP, the server, and the cases that each of
// them goes through.

error_reporting(E_ALL);
ini_set('display_errors', 'stdout');

define('SERVER', getenv('DLOCK_SERVER'));
define('HOST', getenv('DLOCK_HOST'));
define('PORT', (int) getenv('DLOCK_PORT'));
define('USER', getenv('DLOCK_USER'));
define('DATABASE', getenv('DLOCK_DATABASE'));
const IS_POSTGRES = SERVER === 'postgres';

// Names as JSON, whatever is in them, and what is made of the answer to decode it.
const NAMES = IS_POSTGRES ? 'ARRAY(SELECT json_array_elements_text(?))' : '?';
const TOKENS = IS_POSTGRES ? 'ARRAY(SELECT json_array_elements_text(?)::bigint)' : '?';
const AS_JSON = IS_POSTGRES ? 'to_json' : '';

$count = 0;
$failed = 0;

// What makes a backslash in a literal what it usually is not in this session, and what it usually is:
// nothing special and an escape; on PostgreSQL, before 19, the other way round.
const BACKSLASHES = IS_POSTGRES ? [
    'unusual' => "SELECT set_config('standard_conforming_strings', 'off', false) WHERE current_setting('server_version_num')::int < 190000",
    'usual' => "SELECT set_config('standard_conforming_strings', 'on', false)",
] : [
    'unusual' => "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
    'usual' => 'SET SESSION sql_mode = DEFAULT',
];

// One line of TAP.
function ok(bool $passed, string $what): bool
{
    global $count, $failed;
    $count++;
    $failed += !$passed;
    echo ($passed ? 'ok' : 'not ok') . " $count - $what\n";
    return $passed;
}

// The same value, and of the same type.
function same($is, $wanted, string $what): void
{
    if (!ok($is === $wanted, $what)) {
        echo '#   got ' . json_encode($is) . ', wanted ' . json_encode($wanted) . "\n";
    }
}

function done(): never
{
    global $count, $failed;
    echo "1..$count\n";
    exit($failed ? 1 : 0);
}

// What a call ends with if it does not end well.
function error_of(callable $call): ?Throwable
{
    try {
        $call();
    } catch (Throwable $error) {
        return $error;
    }
    return null;
}

// A DateInterval of days and less as text that both servers understand.
function as_text(DateInterval $interval): string
{
    return $interval->format('P%dDT%hH%iM%s.%FS');
}

// Go through the cases with a driver, which is
//
//   connect        a new connection
//   close          end it
//   value          (connection, expression with ?, arguments): what it is, as it arrives
//   transaction    (connection, work): do it in a transaction of the driver's own
//   statement      (connection, statement with ?, arguments): execute it
//   kind_of        (error): what doc/drivers.md says that it is: lost, blocked, misuse, deadlock
//                  or gone
//   token          the type that a token arrives as; yes and no, true and false
//
// Answers a connection.
function driver_cases(
    callable $connect,
    callable $close,
    callable $value,
    callable $transaction,
    callable $statement,
    callable $kind_of,
    string $token,
    mixed $yes,
    mixed $no
) {
    $mine = $connect();
    $second = $connect();
    $ask = fn(string $sql, ...$arguments) => $value($mine, $sql, $arguments);
    $ask_second = fn(string $sql, ...$arguments) => $value($second, $sql, $arguments);

    // names, whatever a backslash is in a literal
    foreach (BACKSLASHES as $kind => $setting) {
        $statement($mine, $setting, []);
        foreach (["it's", 'C:\\jobs\\x', 'a\\', "x\\' OR '", 'café"'] as $odd) {
            $what = "$odd, with the $kind backslash";
            same(error_of(fn() => $ask('dlock_acquire(?, ?, ?)', $odd, 'names', 30)), null, $what);
            // without the driver's help with its letters
            $literal = bin2hex($odd);
            $literal = IS_POSTGRES ? "convert_from(decode('$literal', 'hex'), 'UTF8')" : "x'$literal'";
            same($ask("dlock_is_free($literal)"), $no, "$what: that name is held");
        }
        $ask('dlock_release_all(?)', 'names');
    }

    // numbers
    $minute_and_half_second = new DateInterval('PT1M');
    $minute_and_half_second->f = 0.5;
    $ttls = [
        'a whole number' => [30, 30],
        'a fraction' => [30.5, 30.5],
        'an exact decimal, which is text' => ['31.25', 31.25],
        'a DateInterval, as text' => [as_text($minute_and_half_second), 60.5],
        'a DateInterval of days, as text' => [as_text(new DateInterval('PT20H')), 72000],
        'text that is a number' => ['40', 40],
        'text' => ['5 minutes', 300],
    ];
    foreach ($ttls as $what => [$ttl, $seconds]) {
        ok($ask('dlock_acquire(?, ?, ?)', "ttl $what", 'me', $ttl) > 0, "ttl: $what");
        $left = (float) $ask('dlock_remaining(?, ?)', "ttl $what", 'me');
        ok($seconds - 20 < $left && $left <= $seconds, "ttl: $what: as long as that");
    }
    $error = error_of(fn() => $ask('dlock_acquire(?, ?, ?)', 'interval', 'me', $minute_and_half_second));
    ok($error !== null && str_contains($error->getMessage(), 'could not be converted to string'), 'a DateInterval itself cannot be bound');
    $name = 'waits';
    $first = $ask('dlock_acquire(?, ?, ?, ?, ?)', $name, 'me', 30, 60.5, 'request-1');
    same(get_debug_type($first), $token, "a token is of type $token");
    ok((string) (int) $first === (string) $first && $first > 0, 'and a whole number');
    same($ask('dlock_acquire(?, ?, ?, ?, ?)', $name, 'me', 30, '60500 ms', 'request-1'), $first, 'the same request again: the same token');

    // token, limit, null, booleans
    same($ask('dlock_renew(?, ?, ?, ?)', $name, 'me', 30, $first), $yes, 'renewed by its token');
    same($ask('dlock_renew(?, ?, ?, ?)', $name, 'me', 30, (int) $first), $yes, 'renewed by its token as an int');
    same($ask('dlock_renew(?, ?, ?, ?)', $name, 'me', 30, (int) $first + 1), $no, 'not by another');
    same($ask('dlock_renew(?, ?, ?, ?)', $name, 'me', 30, null), $yes, 'null: by whichever it has');
    ok($ask('dlock_acquire_permit(?, ?, ?, ?)', 'permits', 'me', 30, 2) > 0, 'a limit');
    same($ask('dlock_acquire(?, ?, ?)', $name, 'other', 30), null, 'null: somebody has it');
    same($ask('dlock_release(?, ?, ?)', $name, 'me', $first), $yes, 'released');
    same($ask('dlock_release(?, ?)', $name, 'me'), null, 'null: nobody has it');

    // lists
    $names = ['plain', 'a "quoted", {one} \\'];
    $tokens = json_decode($ask(AS_JSON . '(dlock_acquire_all(' . NAMES . ', ?, ?))', json_encode($names), 'me', 30));
    same(array_map('get_debug_type', $tokens), ['int', 'int'], 'names go in as JSON, tokens come out');
    same($ask('dlock_owner(?)', $names[1]), 'me', 'the names are those');
    $claimed = IS_POSTGRES
        ? $ask('json_agg(a) FROM dlock_acquire_any(' . NAMES . ', ?, ?, ?) a', json_encode(['plain', 'free']), 'me', 30, 2)
        : $ask('dlock_acquire_any(?, ?, ?, ?)', json_encode(['plain', 'free']), 'me', 30, 2);
    same(array_column(json_decode($claimed, true), 'name'), ['free'], 'names and tokens come out: what was free');
    $many = IS_POSTGRES
        ? 'json_agg(name) FROM dlock_release_many(' . NAMES . ', ?, ' . TOKENS . ') name'
        : 'dlock_release_many(?, ?, ?)';
    same(json_decode($ask($many, json_encode($names), 'me', json_encode($tokens))), $names, 'names and tokens go in');

    // guards and errors
    $first = $ask('dlock_acquire(?, ?, ?)', 'guarded', 'me', 600);
    $guard = fn($with) => $statement($mine, IS_POSTGRES ? 'SELECT dlock_guard(?, ?, ?)' : 'CALL dlock.guard(?, ?, ?)', ['guarded', 'me', $with]);
    $blocked = null;
    $work = function () use ($ask, $ask_second, $guard, $first, &$blocked) {
        $guard($first);
        // what the guard keeps until its transaction ends
        if (IS_POSTGRES) {
            $ask_second("set_config('lock_timeout', '200ms', false)");
            $blocked = error_of(fn() => $ask_second('dlock_acquire(?, ?, ?, ?)', 'guarded', 'other', 30, 600));
            $ask_second("set_config('lock_timeout', '0', false)");
        } else {
            $blocked = error_of(fn() => $ask_second('dlock_downgrade(?, ?)', 'guarded', 'me'));
        }
        same((string) $ask('1'), '1', 'a statement after the guard');
    };
    same(error_of(fn() => $transaction($mine, $work)), null, "a guard in a transaction of the driver's own");
    same($blocked === null ? null : $kind_of($blocked), 'blocked', 'an error: blocked');
    $kind_of_error = fn(callable $call) => ($error = error_of($call)) === null ? null : $kind_of($error);
    same($kind_of_error(fn() => $transaction($mine, fn() => $guard((int) $first + 1))), 'lost', 'an error: lost');
    same($kind_of_error(fn() => $ask('dlock_acquire(?, ?, ?)', '', 'me', 30)), 'misuse', 'an error: misuse, an empty name');
    same($kind_of_error(fn() => $ask('dlock_acquire(?, ?, ?)', 'x', 'me', '3 apples')), 'misuse', 'an error: misuse, no time');
    same($kind_of_error(fn() => $ask('dlock_acquire(?, ?, ?)', 'x', null, 30)), 'misuse', 'an error: misuse, null');
    same($kind_of_error(fn() => $ask('dlock_acquire_session(?, ?, ?)', 'guarded', 'me', 600)), 'misuse', 'an error: misuse, another kind of lease');

    // who waits for itself
    $ask('dlock_acquire_permit(?, ?, ?, ?)', 'itself', 'me', 30, 1);
    same(
        $kind_of_error(fn() => $ask('dlock_acquire_permit(?, ?, ?, ?, ?)', 'itself', 'me', 30, 1, 60)),
        'deadlock',
        'an error: deadlock'
    );

    // session leases
    $third = $connect();
    ok($value($third, 'dlock_acquire_session(?, ?, ?)', ['session', 'me', 30]) > 0, 'a session lease');
    $close($third);
    unset($third);
    ok($ask('dlock_acquire(?, ?, ?, ?)', 'session', 'other', 30, 60) > 0, 'it ends with its connection');

    // gone
    $number = $ask_second(IS_POSTGRES ? 'pg_backend_pid()' : 'connection_id()');
    $statement($mine, IS_POSTGRES ? 'SELECT pg_terminate_backend(?)' : 'KILL ' . (int) $number, IS_POSTGRES ? [$number] : []);
    same($kind_of_error(fn() => $ask_second('dlock_acquire(?, ?, ?)', 'x', 'me', 30)), 'gone', 'an error: the server is gone');
    same($kind_of_error(fn() => $ask_second('dlock_acquire(?, ?, ?)', 'x', 'me', 30)), 'gone', 'and again');
    return $mine;
}
