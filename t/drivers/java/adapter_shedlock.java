// examples/adapters/DlockLockProvider.java, with ShedLock's interfaces.
// speaks: postgres mariadb
// needs: default-jdk-headless libpostgresql-jdbc-java libmariadb-java libhikaricp-java

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

class ShedLock {
    private static int count;
    private static int failed;

    private static void ok(boolean passed, String what) {
        count++;
        failed += passed ? 0 : 1;
        System.out.println((passed ? "ok " : "not ok ") + count + " - " + what);
    }

    private static LockConfiguration task(String name, Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), name, atMost, atLeast);
    }

    private static double remaining(HikariDataSource pool, String name) throws SQLException {
        try (Connection connection = pool.getConnection();
            PreparedStatement statement = connection.prepareStatement("SELECT max(remaining) FROM dlock.locks WHERE name = ?")) {
            statement.setString(1, name);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                Object value = rows.getObject(1);
                if (value == null)
                    return 0;
                return value instanceof Number ? ((Number) value).doubleValue()
                    : ((org.postgresql.util.PGInterval) value).getHours() * 3600
                        + ((org.postgresql.util.PGInterval) value).getMinutes() * 60
                        + ((org.postgresql.util.PGInterval) value).getSeconds();
            }
        }
    }

    public static void main(String[] arguments) throws SQLException {
        HikariConfig config = new HikariConfig();
        boolean isPostgres = System.getenv("DLOCK_SERVER").equals("postgres");
        config.setJdbcUrl("jdbc:" + (isPostgres ? "postgresql" : "mariadb") + "://" + System.getenv("DLOCK_HOST") + ":"
            + System.getenv("DLOCK_PORT") + "/" + System.getenv("DLOCK_DATABASE"));
        config.setUsername(System.getenv("DLOCK_USER"));
        config.setConnectionTimeout(180000);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            LockProvider provider = new DlockLockProvider(pool);
            Duration most = Duration.ofMinutes(10);
            Optional<SimpleLock> lock = provider.lock(task("report", most, Duration.ZERO));
            ok(lock.isPresent(), "a task gets its lock");
            ok(provider.lock(task("report", most, Duration.ZERO)).isEmpty(), "another one does not");
            Optional<SimpleLock> extended = lock.get().extend(Duration.ofMinutes(20), Duration.ZERO);
            ok(extended.isPresent() && remaining(pool, "report") > 700, "it is extended");
            extended.get().unlock();
            ok(remaining(pool, "report") == 0, "and unlocked");
            ok(extended.get().extend(most, Duration.ZERO).isEmpty(), "one that is lost is not extended");
            SimpleLock kept = provider.lock(task("kept", Duration.ofMinutes(20), most)).get();
            kept.unlock();
            double left = remaining(pool, "kept");
            ok(left > 300 && left <= 600, "lockAtLeastFor keeps it, and no longer: " + left);
            ok(provider.lock(task("kept", most, Duration.ZERO)).isEmpty(), "so that it is not run again too soon");
        }
        System.out.println("1.." + count);
        System.exit(failed > 0 ? 1 : 0);
    }
}
