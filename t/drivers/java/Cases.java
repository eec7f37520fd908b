// What the programs for the JDBC drivers share: TAP, the server, and the cases that any of
// them goes through.

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;

public abstract class Cases {
    public static final boolean IS_POSTGRES = System.getenv("DLOCK_SERVER").equals("postgres");

    /** How long something may take on a busy machine. */
    private static final long PATIENCE_NS = Duration.ofSeconds(180).toNanos();

    private final String url;
    private int count;
    private int failed;

    protected Cases(String scheme) {
        url = "jdbc:" + scheme + "://" + System.getenv("DLOCK_HOST") + ":" + System.getenv("DLOCK_PORT") + "/"
            + System.getenv("DLOCK_DATABASE");
    }

    /** What doc/drivers.md says that an error is: lost, blocked, misuse, deadlock or gone. */
    protected abstract String kindOf(SQLException error);

    /** The cases that are the driver's own. */
    protected abstract void more(Connection connection) throws SQLException;

    public interface Call {
        void run() throws SQLException;
    }

    public boolean ok(boolean passed, String what) {
        count++;
        if (!passed)
            failed++;
        System.out.println((passed ? "ok " : "not ok ") + count + " - " + what);
        return passed;
    }

    /** The same value, and of the same class. */
    public void same(Object is, Object wanted, String what) {
        if (!ok(Objects.equals(is, wanted), what))
            System.out.println("#   got " + show(is) + ", wanted " + show(wanted));
    }

    private static String show(Object value) {
        return value == null ? "null" : value.getClass().getName() + " " + value;
    }

    /** The exception that a call ends with; null: it ends well. */
    public SQLException errorOf(Call call) {
        try {
            call.run();
            return null;
        } catch (SQLException error) {
            return error;
        }
    }

    /** What kind of error a call ends with; an unknown one is shown. */
    public String kindOf(Call call) {
        SQLException error = errorOf(call);
        return error == null ? "none" : Objects.requireNonNullElse(kindOf(error),
            error.getClass().getName() + " " + error.getSQLState() + " " + error.getErrorCode() + " " + error.getMessage());
    }

    public Connection connect(String options) throws SQLException {
        return DriverManager.getConnection(url + options, System.getenv("DLOCK_USER"), "");
    }

    public Connection connect() throws SQLException {
        return connect("");
    }

    public static <T> T value(Connection connection, Class<T> type, String expression, Object... arguments)
            throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT " + expression)) {
            for (int i = 0; i < arguments.length; i++)
                statement.setObject(i + 1, arguments[i]);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getObject(1, type);
            }
        }
    }

    public static Long token(Connection connection, String expression, Object... arguments) throws SQLException {
        return value(connection, Long.class, expression, arguments);
    }

    public static Boolean answer(Connection connection, String expression, Object... arguments) throws SQLException {
        return value(connection, Boolean.class, expression, arguments);
    }

    /** A guard in a transaction of the driver's own, and what is done under it. */
    public static void guarded(Connection connection, String name, String owner, long token, Call work)
            throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement guard = connection.prepareStatement(
                IS_POSTGRES ? "SELECT dlock_guard(?, ?, ?)" : "CALL dlock.guard(?, ?, ?)")) {
            guard.setString(1, name);
            guard.setString(2, owner);
            guard.setLong(3, token);
            guard.execute();
            work.run();
            connection.commit();
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    private boolean noneWaits(Connection connection) throws SQLException {
        long start = System.nanoTime();
        while (System.nanoTime() - start < PATIENCE_NS) {
            if (token(connection, "count(*) FROM dlock.waiters") == 0)
                return true;
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                return false;
            }
        }
        return false;
    }

    /**
     * What makes a backslash in a literal what it usually is not in this session, and what it usually is:
     * nothing special and an escape; on PostgreSQL, before 19, the other way round.
     */
    private static final Map<String, String> BACKSLASHES = IS_POSTGRES
        ? Map.of("unusual", "SELECT set_config('standard_conforming_strings', 'off', false)"
                + " WHERE current_setting('server_version_num')::int < 190000",
            "usual", "SELECT set_config('standard_conforming_strings', 'on', false)")
        : Map.of("unusual", "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
            "usual", "SET SESSION sql_mode = DEFAULT");

    /**
     * Names, whatever a backslash is in a literal.
     *
     * @param pastes the driver puts them into the statement, and takes it for granted what it is
     */
    public void names(Connection connection, boolean pastes) throws SQLException {
        for (String kind : new String[] {"unusual", "usual"}) {
            connection.createStatement().execute(BACKSLASHES.get(kind));
            for (String name : new String[] {"it's", "C:\\jobs\\x", "a\\", "x\\' OR '", "caf\u00e9\""}) {
                String what = name + ", with the " + kind + " backslash";
                SQLException error = errorOf(() -> token(connection, "dlock_acquire(?, ?, ?)", name, "names", 30));
                // without the driver's help with its letters
                String literal = String.format("%x", new BigInteger(1, name.getBytes(StandardCharsets.UTF_8)));
                Boolean isFree = answer(connection, "dlock_is_free(" + (IS_POSTGRES ? "convert_from(decode('" + literal + "', 'hex'), 'UTF8')"
                    : "x'" + literal + "'") + ")");
                if (pastes && kind.equals("unusual") && name.contains("\\"))
                    ok(isFree, what + ": another name is held, or none");
                else {
                    same(error, null, what);
                    same(isFree, false, what + ": that name is held");
                }
            }
            token(connection, "dlock_release_all(?)", "names");
        }
    }

    private void numbers(Connection connection) throws SQLException {
        Object[] ttls = {30, 30L, 30.5, new BigDecimal("31.25"), "40", Duration.ofMillis(60500)};
        double[] seconds = {30, 30, 30.5, 31.25, 40, 60.5};
        for (int i = 0; i < ttls.length; i++) {
            // a Duration cannot be bound; its text can
            Object ttl = ttls[i] instanceof Duration ? ttls[i].toString() : ttls[i];
            String what = "ttl " + ttls[i].getClass().getSimpleName() + " " + ttl;
            ok(token(connection, "dlock_acquire(?, ?, ?)", what, "me", ttl) != null, what);
            double left = value(connection, Double.class, "dlock_remaining(?, ?)", what, "me");
            ok(seconds[i] - 20 < left && left <= seconds[i], what + ": as long as that");
        }
        Long token = token(connection, "dlock_acquire(?, ?, ?, ?, ?)", "waits", "me", 600,
            Duration.ofMillis(60500).toString(), "request-1");
        ok(token != null, "a wait that is a Duration's text");
        same(token(connection, "dlock_acquire(?, ?, ?, ?, ?)", "waits", "me", 600, 60.5, "request-1"), token,
            "the same request again: the same token");
        same(kindOf(() -> token(connection, "dlock_acquire(?, ?, ?)", "waits", "me", Duration.ofSeconds(30).toNanos())),
            "misuse", "nanoseconds are refused");
    }

    private void answers(Connection connection) throws SQLException {
        long token = token(connection, "dlock_acquire(?, ?, ?)", "waits", "me", 600);
        same(answer(connection, "dlock_renew(?, ?, ?, ?)", "waits", "me", 600, token), true, "renewed by its token");
        same(answer(connection, "dlock_renew(?, ?, ?, ?)", "waits", "me", 600, token + 1), false, "not by another");
        same(token(connection, "dlock_acquire(?, ?, ?)", "waits", "other", 30), null, "null: somebody has it");
        try (PreparedStatement statement = connection.prepareStatement("SELECT dlock_acquire('waits', 'other', 30)");
                ResultSet rows = statement.executeQuery()) {
            rows.next();
            same(rows.getLong(1), 0L, "getLong() makes 0 of it");
            ok(rows.wasNull(), "and wasNull() tells");
        }
        same(answer(connection, "dlock_release_all(?) > 0", "me"), true, "released");
        same(answer(connection, "dlock_release(?, ?)", "waits", "me"), null, "null: nobody has it");
        ok(token(connection, "dlock_acquire_permit(?, ?, ?, ?)", "permits", "me", 30, 2) > 0, "a limit");
        ok(token(connection, "dlock_acquire(?, ?, ?)", "n\u00e9", "\u00e9", 30) > 0, "a name that is not ASCII");
        same(value(connection, String.class, "dlock_owner(?)", "n\u00e9"), "\u00e9", "and its owner, as a String");
    }

    private void errors(Connection connection) throws SQLException {
        long token = token(connection, "dlock_acquire(?, ?, ?)", "guarded", "me", 600);
        try (Connection second = connect()) {
            String[] blocked = {null};
            same(errorOf(() -> guarded(connection, "guarded", "me", token, () -> {
                if (IS_POSTGRES) {
                    value(second, String.class, "set_config('lock_timeout', '200ms', false)");
                    blocked[0] = kindOf(() -> token(second, "dlock_acquire(?, ?, ?, ?)", "guarded", "other", 30, 600));
                } else
                    blocked[0] = kindOf(() -> answer(second, "dlock_downgrade(?, ?)", "guarded", "me"));
            })), null, "a guard of the driver's own transaction");
            same(blocked[0], "blocked", "an error: blocked");
        }
        same(kindOf(() -> guarded(connection, "guarded", "me", token + 1, () -> { })), "lost", "an error: lost");
        same(kindOf(() -> token(connection, "dlock_acquire(?, ?, ?)", "", "me", 30)), "misuse", "an error: misuse");
        token(connection, "dlock_acquire_permit(?, ?, ?, ?)", "itself", "me", 30, 1);
        same(kindOf(() -> token(connection, "dlock_acquire_permit(?, ?, ?, ?, ?)", "itself", "me", 30, 1, 60)), "deadlock",
            "an error: deadlock");
        ok(connection.isValid(10), "the connection is none the worse for any of them");
    }

    /** A statement that waits, and the driver's time-out. */
    private void timeout(Connection connection) throws SQLException {
        token(connection, "dlock_acquire(?, ?, ?)", "taken", "me", 600);
        try (Connection second = connect();
                PreparedStatement statement = second.prepareStatement("SELECT dlock_acquire('taken', 'late', 600, 600)")) {
            statement.setQueryTimeout(5);
            same(kindOf(statement::executeQuery), "timeout", "an error: setQueryTimeout()");
            ok(noneWaits(connection), "the waiter has left");
            ok(second.isValid(10), "the connection stays");
            same(answer(connection, "dlock_release(?, ?)", "taken", "me"), true, "the name is released");
            same(answer(connection, "dlock_is_free(?)", "taken"), true, "and nobody has got it");
        }
    }

    /** A session lease on a connection of HikariCP's. */
    private void pool(Connection connection) throws SQLException {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(System.getenv("DLOCK_USER"));
        config.setPassword("");
        config.setMaximumPoolSize(1);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            int number;
            try (Connection pooled = pool.getConnection()) {
                number = number(pooled);
                ok(token(pooled, "dlock_acquire_session(?, ?, ?)", "session", "pooled", 30) > 0, "a session lease");
                token(pooled, "dlock_acquire(?, ?, ?)", "guarded-in-pool", "pooled", 30);
                same(kindOf(() -> guarded(pooled, "guarded-in-pool", "pooled", 1, () -> { })), "lost",
                    "a pool's connection: lost");
            }
            same(answer(connection, "dlock_is_free(?)", "session"), false, "it outlives close() of a pool's connection");
            try (Connection pooled = pool.getConnection()) {
                same(number(pooled), number, "the error has not evicted it");
                if (IS_POSTGRES) {
                    pooled.createStatement().execute("DISCARD ALL");
                    same(answer(connection, "dlock_is_free(?)", "session"), true, "DISCARD ALL ends it");
                    token(pooled, "dlock_acquire_session(?, ?, ?)", "session", "pooled", 30);
                }
                same(token(pooled, "dlock_release_all(?)", "pooled") > 0, true, "released before close()");
                same(answer(connection, "dlock_is_free(?)", "session"), true, "it is free");
                token(pooled, "dlock_acquire_session(?, ?, ?)", "session", "pooled", 30);
                pool.evictConnection(pooled);
            }
            ok(token(connection, "dlock_acquire(?, ?, ?, ?)", "session", "me", 30, 60) != null,
                "evictConnection(): it ends with its connection");
        }
    }

    /** The server's number of a connection. */
    private static int number(Connection connection) throws SQLException {
        return value(connection, Integer.class, IS_POSTGRES ? "pg_backend_pid()" : "connection_id()");
    }

    private void gone(Connection connection) throws SQLException {
        Connection second = connect();
        int number = number(second);
        if (IS_POSTGRES)
            answer(connection, "pg_terminate_backend(?, 60000)", number);
        else
            connection.createStatement().execute("KILL CONNECTION " + number);
        same(kindOf(() -> answer(second, "dlock_is_free(?)", "x")), "gone", "an error: the server is gone");
        ok(second.isClosed(), "and the connection is closed");
    }

    public void run() throws SQLException {
        try (Connection connection = connect()) {
            names(connection, false);
            numbers(connection);
            answers(connection);
            errors(connection);
            timeout(connection);
            pool(connection);
            gone(connection);
            more(connection);
        }
        System.out.println("1.." + count);
        System.exit(failed > 0 ? 1 : 0);
    }
}
