// PostgreSQL's JDBC driver.
// speaks: postgres
// needs: default-jdk-headless libpostgresql-jdbc-java libhikaricp-java

import java.sql.Array;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.postgresql.util.PGInterval;

class PgJdbc extends Cases {
    PgJdbc() {
        super("postgresql");
    }

    @Override
    protected String kindOf(SQLException error) {
        String state = String.valueOf(error.getSQLState());
        if (state.startsWith("08") || state.startsWith("57P"))
            return "gone";
        switch (state) {
            case "55L01": return "lost";
            case "55P03": return "blocked";
            case "40P01": return "deadlock";
            case "57014": return "timeout";
            case "22004": case "22007": case "22023": case "55000": return "misuse";
            default: return null;
        }
    }

    private String stateOf(Call call) {
        SQLException error = errorOf(call);
        return error == null ? "none" : error.getSQLState();
    }

    private static Long[] tokens(Connection connection, Array names) throws SQLException {
        return (Long[]) value(connection, Array.class, "dlock_acquire_all(?, ?, ?)", names, "me", 30).getArray();
    }

    private static Long called(Connection connection) throws SQLException {
        try (CallableStatement call = connection.prepareCall("{? = call dlock_acquire(?, ?, ?)}")) {
            call.registerOutParameter(1, Types.BIGINT);
            call.setString(2, "called");
            call.setString(3, "me");
            call.setInt(4, 30);
            call.execute();
            return call.getLong(1);
        }
    }

    private static List<String> names(Connection connection, String call, Object... arguments) throws SQLException {
        List<String> names = new ArrayList<>();
        try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM " + call)) {
            for (int i = 0; i < arguments.length; i++)
                statement.setObject(i + 1, arguments[i]);
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next())
                    names.add(rows.getString(1));
            }
        }
        return names;
    }

    @Override
    protected void more(Connection connection) throws SQLException {
        // what the driver cannot bind
        same(stateOf(() -> token(connection, "dlock_acquire(?, ?, ?)", "d", "me", Duration.ofSeconds(30))), "07006",
            "a Duration is refused by the driver");
        ok(token(connection, "dlock_acquire(?, ?, ?)", "d", "me", new PGInterval(0, 0, 0, 0, 0, 30.5)) > 0,
            "a PGInterval is not");
        same(stateOf(() -> token(connection, "dlock_acquire_permit(?, ?, ?, ?)", "p", "me", 30, 2L)), "42883",
            "a Long is no limit");
        ok(token(connection, "dlock_acquire_permit(?, ?, ?, ?::integer)", "p", "me", 30, 2L) > 0, "unless it is cast");

        // lists
        Array names = connection.createArrayOf("text", new String[] {"l1", "l2"});
        Long[] tokens = tokens(connection, names);
        same(tokens.length, 2, "a list goes in, tokens come out");
        same(names(connection, "dlock_acquire_any(?, ?, ?, ?)",
            connection.createArrayOf("text", new String[] {"l1", "l3"}), "me", 30, 2), List.of("l3"),
            "rows: the names that were free");
        same(names(connection, "dlock_release_many(?, ?, ?)", names, "me", connection.createArrayOf("bigint", tokens)),
            Arrays.asList("l1", "l2"), "names and tokens go in");

        // ways to call
        ok(called(connection) > 0, "{? = call ...}");
        try (Connection simple = connect("?preferQueryMode=simple")) {
            names(simple, true);
            ok(token(simple, "dlock_acquire(?, ?, ?)", "simple", "me", 30.5) > 0, "a SELECT with preferQueryMode=simple");
            same(stateOf(() -> called(simple)), "22007", "there {? = call ...} sends an argument too many");
        }
        long token = token(connection, "dlock_acquire(?, ?, ?)", "g", "me", 30);
        connection.setAutoCommit(false);
        try (PreparedStatement guard = connection.prepareStatement("SELECT dlock_guard('g', 'me', ?)")) {
            guard.setLong(1, token);
            same(stateOf(guard::executeUpdate), "0100E", "executeUpdate() wants no answer, even void");
        }
        connection.rollback();
        connection.setAutoCommit(true);
    }

    public static void main(String[] arguments) throws SQLException {
        new PgJdbc().run();
    }
}
