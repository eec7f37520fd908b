<?php
// The functions pg_*.
// speaks: postgres
// needs: php-cli php-pgsql

require __DIR__ . '/cases.php';

class Refused extends Exception
{
    public function __construct(string $message, public readonly ?string $state)
    {
        parent::__construct($message);
    }
}

// A statement, with an exception that has the SQLSTATE, which pg_query_params() does not tell.
function statement(PgSql\Connection $connection, string $sql, array $arguments): PgSql\Result
{
    while (pg_get_result($connection)) {
        // left by a call that did not get to its end: all has to be fetched
    }
    $result = @pg_send_query_params($connection, $sql, $arguments) ? pg_get_result($connection) : false;
    if ($result === false) {
        throw new Refused(pg_last_error($connection), null);
    }
    pg_get_result($connection); // there is no more: to be fetched, too
    if (pg_result_status($result) === PGSQL_FATAL_ERROR) {
        throw new Refused(pg_result_error($result), pg_result_error_field($result, PGSQL_DIAG_SQLSTATE));
    }
    return $result;
}

function value(PgSql\Connection $connection, string $sql, array $arguments = [])
{
    $number = 0;
    $sql = preg_replace_callback('/\?/', function () use (&$number) {
        $number++;
        return '$' . $number;
    }, $sql);
    return pg_fetch_result(statement($connection, "SELECT $sql", $arguments), 0, 0);
}

function transaction(PgSql\Connection $connection, callable $work): void
{
    pg_query($connection, 'BEGIN');
    try {
        $work();
        pg_query($connection, 'COMMIT');
    } catch (Throwable $error) {
        pg_query($connection, 'ROLLBACK');
        throw $error;
    }
}

function kind_of(Throwable $error): string
{
    $kind = match ($error instanceof Refused ? $error->state : '') {
        '55L01' => 'lost',
        '55P03' => 'blocked',
        '22004', '22007', '22023', '55000' => 'misuse',
        '40P01' => 'deadlock',
        '57P01', null => 'gone',
        default => null,
    };
    return $kind ?? get_class($error) . ' ' . $error->getMessage();
}

$address = 'host=' . HOST . ' port=' . PORT . ' dbname=' . DATABASE . ' user=' . USER;
$connection = driver_cases(
    connect: fn() => pg_connect($address, PGSQL_CONNECT_FORCE_NEW),
    close: pg_close(...),
    value: value(...),
    transaction: transaction(...),
    statement: fn($connection, $sql, $arguments) => value($connection, substr($sql, strlen('SELECT ')), $arguments),
    kind_of: kind_of(...),
    token: 'string',
    yes: 't',
    no: 'f'
);

// text is text
same((bool) value($connection, 'dlock_is_free($1)', ['itself']), true, 'what arrives for false is true for PHP');
same(value($connection, 'dlock_is_free($1)', ['itself']), 'f', 'for it is "f"');
$token = (int) value($connection, 'dlock_acquire($1, $2, $3)', ['int', 'me', 30]);
same(value($connection, 'dlock_release($1, $2, $3)', ['int', 'me', $token]), 't', 'a token that was made an int goes back');

// an error is no null
$result = @pg_query_params($connection, 'SELECT dlock_acquire($1, $2, $3)', ['', 'me', 30]);
same($result, false, 'pg_query_params: false for an error');

// persistent connections
$kept = pg_pconnect($address);
$number = value($kept, 'pg_backend_pid()');
ok(value($kept, 'dlock_acquire_session($1, $2, $3)', ['persistent', 'me', 30]) > 0, 'a session lease of a persistent connection');
pg_close($kept);
unset($kept);
same(value($connection, 'dlock_owner($1)', ['persistent']), 'me', 'pg_close does not end it');
$kept = pg_pconnect($address);
same(value($kept, 'pg_backend_pid()'), $number, 'the next pg_pconnect has the same connection');
pg_query($kept, 'DISCARD ALL');
same(value($connection, 'dlock_is_free($1)', ['persistent']), 't', 'DISCARD ALL ends it');
done();
