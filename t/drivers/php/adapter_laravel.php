<?php
// examples/adapters/DlockLock.php, with Laravel's cache and database components.
// speaks: postgres mariadb mysql
// needs: php-cli php-pgsql php-mysql php-illuminate-cache php-illuminate-database

require __DIR__ . '/cases.php';
// Debian's version is for an older PHP
error_reporting(E_ALL & ~E_DEPRECATED);
require 'Illuminate/Cache/autoload.php';
require 'Illuminate/Database/autoload.php';
require __DIR__ . '/../../../examples/adapters/DlockLock.php';

use Illuminate\Cache\Repository;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Database\Capsule\Manager;

$manager = new Manager();
$manager->addConnection(['driver' => IS_POSTGRES ? 'pgsql' : 'mysql', 'host' => HOST, 'port' => PORT,
    'database' => DATABASE, 'username' => USER, 'password' => '', 'charset' => IS_POSTGRES ? 'utf8' : 'utf8mb4']);
$connection = $manager->getConnection();
$ask = fn(string $call, ...$arguments) => $connection->selectOne("SELECT $call AS answer", $arguments)->answer;
$cache = new Repository(new DlockLockStore($connection));

$lock = $cache->lock('report', 600);
same($lock->get(), true, 'a lock');
ok($lock->token() > 0, 'has a token');
same($lock->token(), $ask(IS_POSTGRES ? "(SELECT token FROM dlock.locks WHERE name = ?)" : "(SELECT token FROM dlock.locks WHERE name = ?)", 'report'), 'the right one');
$other = $cache->lock('report', 600);
same($other->get(), false, 'another one is refused');
same($other->token(), null, 'and has none');
same($other->release(), false, 'and cannot release it');
same(get_class(error_of(fn() => $other->block(0))), LockTimeoutException::class, 'nor wait for it in no time');
same($lock->refresh(), true, 'a lock is refreshed');
same($lock->refresh(1000), true, 'for longer');
ok($ask('dlock_remaining(?, ?)', 'report', $lock->owner()) > 700, 'as the server says');
same($cache->restoreLock('report', $lock->owner())->release(), true, 'it is released in another process');
same($lock->refresh(), false, 'and not refreshed then');

same($other->get(fn() => $ask('dlock_owner(?)', 'report')), $other->owner(), 'a function runs under a lock');
same($ask('dlock_owner(?)', 'report'), null, 'until its end');
$ask('dlock_acquire(?, ?, ?)', 'turn', 'somebody', 1);
same($cache->lock('turn', 600)->block(180, fn() => 'done'), 'done', 'one that waits for its turn');
same($ask('dlock_owner(?)', 'turn'), null, 'releases it, too');
$forever = $cache->lock('forever');
same($forever->get(), true, 'one without a time');
ok($ask('dlock_remaining(?, ?)', 'forever', $forever->owner()) > 80000, 'is for a day');
done();
