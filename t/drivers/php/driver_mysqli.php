<?php
// mysqli.
// speaks: mariadb mysql
// needs: php-cli php-mysql

require __DIR__ . '/cases.php';

function connect(string $host = HOST): mysqli
{
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $connection = new mysqli($host, USER, '', DATABASE, PORT);
    $connection->set_charset('utf8mb4');
    return $connection;
}

function statement(mysqli $connection, string $sql, array $arguments): mysqli_result|bool
{
    $statement = $connection->prepare($sql);
    $statement->execute($arguments);
    return $statement->get_result();
}

function value(mysqli $connection, string $sql, array $arguments = [])
{
    return statement($connection, "SELECT $sql", $arguments)->fetch_row()[0];
}

function transaction(mysqli $connection, callable $work): void
{
    $connection->begin_transaction();
    try {
        $work();
        $connection->commit();
    } catch (Throwable $error) {
        $connection->rollback();
        throw $error;
    }
}

function kind_of(Throwable $error): string
{
    $kind = match ($error instanceof mysqli_sql_exception ? $error->getCode() : null) {
        1644 => 'lost',
        3572 => 'blocked',
        1138, 1234, 1292, 3037 => 'misuse',
        3058 => 'deadlock',
        1927, 2006, 2013, 4031 => 'gone',
        default => null,
    };
    return $kind ?? get_class($error) . ' ' . $error->getCode() . ' ' . $error->getMessage();
}

$connection = driver_cases(
    connect: connect(...),
    close: fn(mysqli $connection) => $connection->close(),
    value: value(...),
    transaction: transaction(...),
    statement: statement(...),
    kind_of: kind_of(...),
    token: 'int',
    yes: 1,
    no: 0
);

// types said by the program
$statement = $connection->prepare('SELECT dlock_acquire_permit(?, ?, ?, ?, ?)');
[$name, $owner, $ttl, $limit, $wait] = ['typed', 'me', 30, 2, 60.5];
$statement->bind_param('ssiid', $name, $owner, $ttl, $limit, $wait);
$statement->execute();
ok($statement->get_result()->fetch_row()[0] > 0, 'numbers of type i and d');
$statement->close();

// query() has no arguments, and answers text
$token = $connection->query("SELECT dlock_acquire('text', 'me', 30)")->fetch_row()[0];
same(get_debug_type($token), 'string', 'a token is a string with query()');
same(value($connection, 'dlock_renew(?, ?, ?, ?)', ['text', 'me', 30, $token]), 1, 'which goes back');

// execute_query() is shorter
same($connection->execute_query('SELECT dlock_renew(?, ?, ?, ?)', ['text', 'me', 30, $token])->fetch_row()[0], 1, 'execute_query');
$lost = connect();
$connection->query("KILL $lost->thread_id");
same($lost->execute_query('SELECT dlock_acquire(?, ?, ?)', ['gone', 'me', 30]), false, 'execute_query: false, and no exception, when the server is gone');

// an error is no null
mysqli_report(MYSQLI_REPORT_OFF);
same($connection->execute_query('SELECT dlock_acquire(?, ?, ?)', ['', 'me', 30]), false, 'MYSQLI_REPORT_OFF: false for an error');

// persistent connections
$kept = connect('p:' . HOST);
$number = $kept->thread_id;
ok(value($kept, 'dlock_acquire_session(?, ?, ?)', ['persistent', 'me', 30]) > 0, 'a session lease of a persistent connection');
$kept->close();
same(value($connection, 'dlock_owner(?)', ['persistent']), 'me', 'close does not end it');
$kept = connect('p:' . HOST);
same($kept->thread_id, $number, 'the next mysqli has the same connection');
same(value($connection, 'dlock_owner(?)', ['persistent']), SERVER === 'mysql' ? 'me' : null,
    'which was reset: that ends a session lease on MariaDB, and does not on MySQL');
value($kept, 'dlock_release_all(?)', ['me']);
same(value($connection, 'dlock_is_free(?)', ['persistent']), 1, 'dlock_release_all does');
done();
