<?php
// DlockStore.php: a store for Symfony's Lock component, over PDO.
//
//   $factory = new LockFactory(new DlockStore($pdo));
//   $lock = $factory->createLock('report', 60);
//   if ($lock->acquire()) { ... $lock->refresh(); ... $lock->release(); }
//
// acquire(true) waits in line, in the server.  $lock->refresh() renews, and throws if the lease
// is lost: call it every third of the ttl.  A Key can be serialized, and the lock released by
// another process of the same account.

use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;

final class DlockStore implements BlockingStoreInterface
{
    /** The ttl is what an acquire asks for; a Lock with another one renews at once. */
    public function __construct(private PDO $pdo, private float $ttl = 300.0)
    {
    }

    public function save(Key $key): void
    {
        $this->acquire($key, 0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->acquire($key, -1);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        $key->reduceLifetime($ttl);
        if (!$this->ask('dlock_renew(?, ?, ?, ?)', (string) $key, $this->owner($key), $ttl, $this->token($key))) {
            throw new LockConflictedException();
        }
    }

    public function delete(Key $key): void
    {
        $this->ask('dlock_release(?, ?, ?)', (string) $key, $this->owner($key), $this->token($key));
    }

    public function exists(Key $key): bool
    {
        $remaining = $this->ask('dlock_remaining(?, ?, ?)', (string) $key, $this->owner($key), $this->token($key));
        return $remaining !== null;
    }

    /** The token: for dlock_guard(), or for storage that refuses a smaller one. */
    public function token(Key $key): int
    {
        return $key->hasState(self::class . '.token') ? $key->getState(self::class . '.token') : 0;
    }

    private function acquire(Key $key, int $wait): void
    {
        // a Lock that is acquired twice is held once: the request id is the same one
        $arguments = [(string) $key, $this->owner($key), $this->ttl, $wait, 'symfony'];
        if ($wait === 0) {
            $key->reduceLifetime($this->ttl);
        }
        $token = $this->ask('dlock_acquire(?, ?, ?, ?, ?)', ...$arguments);
        if ($token === null) {
            throw new LockConflictedException();
        }
        $key->setState(self::class . '.token', (int) $token);
    }

    private function owner(Key $key): string
    {
        if (!$key->hasState(self::class)) {
            $key->setState(self::class, gethostname() . '/' . getmypid() . '/' . bin2hex(random_bytes(8)));
        }
        return $key->getState(self::class);
    }

    private function ask(string $call, mixed ...$arguments): mixed
    {
        $statement = $this->pdo->prepare("SELECT $call");
        $statement->execute($arguments);
        return $statement->fetchColumn();
    }
}
