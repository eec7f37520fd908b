<?php
// PDO, with the drivers pgsql and mysql.
// speaks: postgres mariadb mysql
// needs: php-cli php-pgsql php-mysql

require __DIR__ . '/cases.php';

function connect(array $options = []): PDO
{
    $address = 'host=' . HOST . ';port=' . PORT . ';dbname=' . DATABASE;
    $dsn = IS_POSTGRES ? "pgsql:$address" : "mysql:$address;charset=utf8mb4";
    return new PDO($dsn, USER, '', $options + [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

function statement(PDO $pdo, string $sql, array $arguments): PDOStatement
{
    $statement = $pdo->prepare($sql);
    $statement->execute($arguments);
    return $statement;
}

function value(PDO $pdo, string $sql, array $arguments = [])
{
    return statement($pdo, "SELECT $sql", $arguments)->fetchColumn();
}

function transaction(PDO $pdo, callable $work): void
{
    $pdo->beginTransaction();
    try {
        $work();
        $pdo->commit();
    } catch (Throwable $error) {
        $pdo->rollBack();
        throw $error;
    }
}

function kind_of(Throwable $error): string
{
    [$state, $number] = $error instanceof PDOException ? $error->errorInfo : [null, null];
    $kind = IS_POSTGRES
        ? match ($state) {
            '55L01' => 'lost',
            '55P03' => 'blocked',
            '22004', '22007', '22023', '55000' => 'misuse',
            '40P01' => 'deadlock',
            '57P01', 'HY000', '08006' => 'gone',
            default => null,
        }
        : match ($number) {
            1644 => 'lost',
            3572 => 'blocked',
            1138, 1234, 1292, 3037 => 'misuse',
            3058 => 'deadlock',
            1927, 2006, 2013, 4031 => 'gone',
            default => null,
        };
    return $kind ?? get_class($error) . ' ' . $error->getMessage();
}

function cases(array $options): PDO
{
    return driver_cases(
        connect: fn() => connect($options),
        close: fn() => null, // with the last reference
        value: value(...),
        transaction: transaction(...),
        statement: statement(...),
        kind_of: kind_of(...),
        token: 'int',
        yes: IS_POSTGRES ? true : 1,
        no: IS_POSTGRES ? false : 0
    );
}

// all text, and the server's own prepared statements, which pgsql has unless told otherwise
foreach ([true, false] as $emulated) {
    echo '# ' . ($emulated ? 'emulated' : 'prepared by the server') . "\n";
    $pdo = cases([PDO::ATTR_EMULATE_PREPARES => $emulated]);
    value($pdo, "dlock_release_all('me')");
    value($pdo, "dlock_release_all('other')");
}

// types said by the program
$statement = $pdo->prepare('SELECT dlock_acquire_permit(?, ?, ?, ?, ?)');
foreach (['typed', 'me', 30, 2, '60500 ms'] as $i => $argument) {
    $statement->bindValue($i + 1, $argument, is_int($argument) ? PDO::PARAM_INT : PDO::PARAM_STR);
}
$statement->execute();
ok($statement->fetchColumn() > 0, 'PARAM_INT for a ttl and a limit');

$strings = connect([PDO::ATTR_STRINGIFY_FETCHES => true]);
$token = value($strings, 'dlock_acquire(?, ?, ?)', ['strings', 'me', 30]);
same(get_debug_type($token), 'string', 'a token is a string with ATTR_STRINGIFY_FETCHES');
same(value($strings, 'dlock_renew(?, ?, ?, ?)', ['strings', 'me', 30, $token]), '1', 'which goes back; true is "1"');
same(value($strings, 'dlock_renew(?, ?, ?, ?)', ['strings', 'me', 30, (int) $token + 1]), '0', 'false is "0"');

// without exceptions an error is no null
$silent = connect([PDO::ATTR_ERRMODE => PDO::ERRMODE_SILENT]);
same(value($silent, 'dlock_acquire(?, ?, ?)', ['', 'me', 30]), false, 'ERRMODE_SILENT: false for an error, where null is a name that somebody has');
$silent->beginTransaction();
$guard = $silent->prepare(IS_POSTGRES ? 'SELECT dlock_guard(?, ?, ?)' : 'CALL dlock.guard(?, ?, ?)');
same($guard->execute(['guarded', 'me', 1]), false, 'and for a guard that says that the lease is lost');
$silent->rollBack();

// persistent connections
$kept = connect([PDO::ATTR_PERSISTENT => true]);
$number = value($kept, IS_POSTGRES ? 'pg_backend_pid()' : 'connection_id()');
ok(value($kept, 'dlock_acquire_session(?, ?, ?)', ['persistent', 'me', 30]) > 0, 'a session lease of a persistent connection');
$kept = null;
same(value($pdo, 'dlock_owner(?)', ['persistent']), 'me', 'it does not end with the PDO');
$kept = connect([PDO::ATTR_PERSISTENT => true]);
same(value($kept, IS_POSTGRES ? 'pg_backend_pid()' : 'connection_id()'), $number, 'the next PDO has the same connection');
same(value($kept, 'dlock_release_all(?)', ['me']) > 0, true, 'which can release it');
same(value($pdo, 'dlock_is_free(?)', ['persistent']), IS_POSTGRES ? true : 1, 'and it is free');
done();
