<?php
// DlockLock.php: locks for Laravel's Cache::lock().  In a service provider's boot():
//
//   Cache::extend('dlock', fn ($app) => Cache::repository(new DlockLockStore($app['db']->connection())));
//
// and in config/cache.php, 'stores' => ['dlock' => ['driver' => 'dlock'], ...].  Then:
//
//   Cache::store('dlock')->lock('report', 60)->get(function () { ... });
//   $lock->block(10, ...)      waits in line, in the server, for ten seconds
//   $lock->refresh()           renews; false if the lease is lost: call it every third of the time
//   $lock->token()             for dlock_guard(), or for storage that refuses a smaller one

use Illuminate\Cache\Lock;
use Illuminate\Cache\NullStore;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Database\Connection;

/** A cache that keeps nothing but locks. */
class DlockLockStore extends NullStore
{
    public function __construct(private Connection $connection)
    {
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        return new DlockLock($this->connection, $name, $seconds, $owner);
    }

    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }
}

class DlockLock extends Lock
{
    private ?int $token = null;

    /** Without a number of seconds a lock is for a day, the server's max_ttl by default. */
    public function __construct(private Connection $connection, $name, $seconds, $owner = null)
    {
        parent::__construct($name, $seconds ?: 86400, $owner);
    }

    public function acquire()
    {
        return $this->take(0);
    }

    public function block($seconds, $callback = null)
    {
        if (!$this->take($seconds)) {
            throw new LockTimeoutException();
        }
        if (!is_callable($callback)) {
            return true;
        }
        try {
            return $callback();
        } finally {
            $this->release();
        }
    }

    public function refresh($seconds = null): bool
    {
        return (bool) $this->ask('dlock_renew(?, ?, ?)', $this->name, $this->owner, $seconds ?? $this->seconds);
    }

    public function release()
    {
        return (bool) $this->ask('dlock_release(?, ?)', $this->name, $this->owner);
    }

    /** For an account that may call dlock_force_release(). */
    public function forceRelease()
    {
        $this->ask('dlock_force_release(?)', $this->name);
    }

    public function token(): ?int
    {
        return $this->token;
    }

    protected function getCurrentOwner()
    {
        return $this->ask('dlock_owner(?)', $this->name);
    }

    private function take($wait): bool
    {
        // a lock that is acquired twice is held once: the request id is the same one
        $token = $this->ask('dlock_acquire(?, ?, ?, ?, ?)', $this->name, $this->owner, $this->seconds, $wait, 'laravel');
        $this->token = $token === null ? null : (int) $token;
        return $token !== null;
    }

    /** Of the primary, where reads go to replicas. */
    private function ask(string $call, ...$arguments)
    {
        return $this->connection->selectOne("SELECT $call AS answer", $arguments, false)->answer;
    }
}
