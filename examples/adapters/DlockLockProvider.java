// DlockLockProvider.java: a lock provider for ShedLock, over JDBC.
//
//   @Bean LockProvider lockProvider(DataSource dataSource) { return new DlockLockProvider(dataSource); }
//
// lockAtMostFor is the ttl, at most the server's max_ttl (a day).  lockAtLeastFor keeps the name
// taken after the task has ended: on PostgreSQL the lease is released with effect then, on MySQL
// and MariaDB it ends by itself then.  extend() renews, for a task that takes longer.
//
// It is written against ShedLock's interfaces LockProvider and SimpleLock, as of ShedLock 4 to
// 6, and tested with these alone.

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

public class DlockLockProvider implements LockProvider {
    private final DataSource dataSource;

    public DlockLockProvider(DataSource dataSource) {
        this.dataSource = dataSource;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Lease lease = new Lease(configuration.getName());
        lease.since = System.nanoTime();
        lease.atLeast = configuration.getLockAtLeastFor();
        lease.token = ask("dlock_acquire(?, ?, ?)", lease.name, lease.owner, seconds(configuration.getLockAtMostFor()));
        return lease.token == null ? Optional.empty() : Optional.of(lease);
    }

    private class Lease implements SimpleLock {
        private final String name;
        private final String owner;
        private Object token;
        private long since;
        private Duration atLeast;

        Lease(String name) {
            this.name = name;
            owner = host() + "/" + ProcessHandle.current().pid() + "/" + UUID.randomUUID();
        }

        @Override
        public void unlock() {
            Duration left = atLeast.minusNanos(System.nanoTime() - since);
            if (left.isNegative() || left.isZero())
                ask("dlock_release(?, ?, ?)", name, owner, token);
            else
                ask((isPostgres() ? "dlock_release_after" : "dlock_renew") + "(?, ?, ?, ?)", name, owner, seconds(left), token);
        }

        @Override
        public Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
            long now = System.nanoTime();
            Object renewed = ask("dlock_renew(?, ?, ?, ?)", name, owner, seconds(lockAtMostFor), token);
            if (!Boolean.TRUE.equals(renewed) && !(renewed instanceof Number && ((Number) renewed).intValue() == 1))
                return Optional.empty();
            since = now;
            atLeast = lockAtLeastFor;
            return Optional.of(this);
        }
    }

    private static double seconds(Duration duration) {
        return duration.toNanos() / 1e9;
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            return "java";
        }
    }

    private boolean isPostgres() {
        try (Connection connection = dataSource.getConnection()) {
            return connection.getMetaData().getDatabaseProductName().equals("PostgreSQL");
        } catch (SQLException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The answer of a call, of a connection of its own in autocommit mode. */
    private Object ask(String call, Object... arguments) {
        try (Connection connection = dataSource.getConnection();
            PreparedStatement statement = connection.prepareStatement("SELECT " + call)) {
            for (int i = 0; i < arguments.length; i++)
                statement.setObject(i + 1, arguments[i]);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getObject(1);
            }
        } catch (SQLException error) {
            throw new IllegalStateException(error);
        }
    }
}
