// MariaDB Connector/J.
// speaks: mariadb mysql
// needs: default-jdk-headless libmariadb-java libhikaricp-java

import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLInvalidAuthorizationSpecException;
import java.sql.SQLSyntaxErrorException;
import java.sql.SQLTransactionRollbackException;
import java.sql.SQLTransientConnectionException;
import java.sql.Statement;
import java.time.Duration;

class MariaDb extends Cases {
    private static final boolean IS_MYSQL = System.getenv("DLOCK_SERVER").equals("mysql");

    MariaDb() {
        super("mariadb");
    }

    @Override
    protected String kindOf(SQLException error) {
        String state = String.valueOf(error.getSQLState());
        if (state.startsWith("08"))
            return "gone";
        if (state.equals("55L01"))
            return "lost";
        switch (error.getErrorCode()) {
            case 3572: return "blocked";
            case 3058: return "deadlock";
            case 1317: return "timeout";
            case 1138: case 1234: case 1292: case 3037: return "misuse";
            default: return null;
        }
    }

    private void sameClass(Call call, Class<? extends SQLException> wanted, String what) {
        SQLException error = errorOf(call);
        same(error == null ? null : error.getClass(), wanted, what);
    }

    @Override
    protected void more(Connection connection) throws SQLException {
        // what the driver cannot bind: it sends the serialized object
        same(kindOf(() -> token(connection, "dlock_acquire(?, ?, ?)", "d", "me", Duration.ofSeconds(30))), "misuse",
            "a Duration is refused");
        ok(token(connection, "dlock_acquire_permit(?, ?, ?, ?)", "p", "me", 30, 2L) > 0, "a Long is a limit");
        try (Connection prepared = connect("?useServerPrepStmts=true")) {
            names(prepared, false);
            ok(token(prepared, "dlock_acquire(?, ?, ?)", "prepared", "me", 30.5) > 0, "prepared by the server");
        }

        // lists
        String tokens = value(connection, String.class, "dlock_acquire_all(?, ?, ?)", "[\"l1\", \"l2\"]", "me", 30);
        ok(tokens.matches("\\[\\d+, \\d+\\]"), "a JSON list goes in, tokens come out");
        same(value(connection, String.class, "dlock_release_many(?, ?, ?)", "[\"l1\", \"l2\"]", "me", tokens),
            "[\"l1\", \"l2\"]", "names and tokens go in");
        token(connection, "dlock_acquire(?, ?, ?)", "o", "me", 30);
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT dlock_owner('o')")) {
            rows.next();
            same(rows.getObject(1).getClass(), IS_MYSQL ? String.class : byte[].class, "getObject() of text");
            same(rows.getString(1), "me", "getString() of text");
        }

        // a call, in the driver's own words
        long token = token(connection, "dlock_acquire(?, ?, ?)", "g", "me", 30);
        connection.setAutoCommit(false);
        try (CallableStatement guard = connection.prepareCall("{call dlock.guard(?, ?, ?)}")) {
            guard.setString(1, "g");
            guard.setString(2, "me");
            guard.setLong(3, token);
            same(errorOf(guard::execute), null, "{call dlock.guard(...)}");
        }
        connection.commit();
        connection.setAutoCommit(true);

        // the class of an error follows from its SQLSTATE, and says little
        sameClass(() -> guarded(connection, "g", "me", 1, () -> { }), SQLTransientConnectionException.class, "class: lost");
        sameClass(() -> token(connection, "dlock_acquire(?, ?, ?)", "", "me", 30), SQLSyntaxErrorException.class,
            "class: misuse");
        token(connection, "dlock_acquire_shared(?, ?, ?)", "mixed", "me", 30);
        sameClass(() -> token(connection, "dlock_acquire(?, ?, ?)", "mixed", "me", 30),
            IS_MYSQL ? SQLTransientConnectionException.class : SQLSyntaxErrorException.class, "class: modes mixed");
        token(connection, "dlock_acquire_permit(?, ?, ?, ?)", "itself-2", "me", 30, 1);
        sameClass(() -> token(connection, "dlock_acquire_permit(?, ?, ?, ?, ?)", "itself-2", "me", 30, 1, 10),
            IS_MYSQL ? SQLTransactionRollbackException.class : SQLTransientConnectionException.class, "class: deadlock");
        try (PreparedStatement guard = connection.prepareStatement("CALL dlock.guard('g', 'me', 1)")) {
            sameClass(guard::execute,
                IS_MYSQL ? SQLInvalidAuthorizationSpecException.class : SQLTransientConnectionException.class,
                "class: a guard in autocommit mode");
        }
    }

    public static void main(String[] arguments) throws SQLException {
        new MariaDb().run();
    }
}
