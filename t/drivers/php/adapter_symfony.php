<?php
// examples/adapters/DlockStore.php, with Symfony's Lock component.
// speaks: postgres mariadb mysql
// needs: php-cli php-pgsql php-mysql php-symfony-lock

require __DIR__ . '/cases.php';
require 'Symfony/Component/Lock/autoload.php';
require __DIR__ . '/../../../examples/adapters/DlockStore.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\LockFactory;

$pdo = new PDO((IS_POSTGRES ? 'pgsql' : 'mysql') . ':host=' . HOST . ';port=' . PORT . ';dbname=' . DATABASE, USER, '');
$ask = function (string $call, ...$arguments) use ($pdo) {
    $statement = $pdo->prepare("SELECT $call");
    $statement->execute($arguments);
    return $statement->fetchColumn();
};
$store = new DlockStore($pdo);
$factory = new LockFactory($store);

$lock = $factory->createLock('report', 600);
same($lock->acquire(), true, 'a lock');
same($lock->isAcquired(), true, 'is acquired');
$other = $factory->createLock('report', 600);
same($other->acquire(), false, 'another one is not');
same($other->isAcquired(), false, 'and says so');
ok($lock->getRemainingLifetime() > 60, 'the lifetime is known');
same($lock->acquire(), true, 'once more');
$lock->release();
same($lock->isAcquired(), false, 'and released at once');
same($other->acquire(true), true, 'then the other one is');
$owner = $ask('dlock_owner(?)', 'report');
$before = $ask('dlock_remaining(?, ?)', 'report', $owner);
$other->refresh(1000);
ok($ask('dlock_remaining(?, ?)', 'report', $owner) > $before + 300, 'a lock is refreshed');
same($ask('dlock_release(?, ?)', 'report', $owner) == true, true, 'one that is lost');
same(get_class(error_of(fn() => $other->refresh())), LockConflictedException::class, 'is not refreshed');
same($other->isAcquired(), false, 'nor acquired');

// of a key that is handed to another process
$key = new Key('handed');
$first = new Lock($key, $store, 600, false);
same($first->acquire(), true, 'a key');
ok($store->token($key) > 0, 'has a token');
$second = new Lock(unserialize(serialize($key)), $store, 600, false);
same($second->isAcquired(), true, 'is the same in another process');
$second->release();
same($first->isAcquired(), false, 'which can release it');

// a wait, until the deadline of who holds it
$ask('dlock_acquire(?, ?, ?)', 'turn', 'somebody', 1);
$waits = $factory->createLock('turn', 600);
same($waits->acquire(true), true, 'a wait ends with the holder');
done();
