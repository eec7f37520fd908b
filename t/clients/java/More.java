package dlock;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Objects;

/** Cases that only the client for Java has.  Prints TAP; its argument is the driver. */
public final class More {
    private static String driver;
    private static final String PORT = System.getenv("DLOCK_PORT");
    private static final boolean IS_POSTGRES = System.getenv("DLOCK_SERVER").equals("postgres");
    private static int count;
    private static int failed;

    private More() {
    }

    private static void ok(boolean passed, String what) {
        count++;
        if (!passed)
            failed++;
        System.out.println((passed ? "ok " : "not ok ") + count + " - " + what);
    }

    private static void is(Object is, Object wanted, String what) {
        ok(Objects.equals(is, wanted), what);
        if (!Objects.equals(is, wanted))
            System.out.println("#   got " + is + ", wanted " + wanted);
    }

    private interface Call {
        void run() throws Exception;
    }

    /** The class of the exception that a call ends with; null: it ends well. */
    private static Class<?> errorOf(Call call) {
        try {
            call.run();
            return null;
        } catch (Exception error) {
            return error.getClass();
        }
    }

    /** How many live leases have a name, or a name and an owner. */
    private static int holds(Connection control, String... nameAndOwner) throws SQLException {
        String sql = "SELECT count(*) FROM dlock.locks WHERE remaining > 0 AND name = ?" + (nameAndOwner.length > 1 ? " AND owner = ?" : "");
        if (!IS_POSTGRES)
            // the answers of a view are compared by bytes
            sql = sql.replace("?", "CONVERT(UNHEX(?) USING utf8mb4)");
        try (PreparedStatement statement = control.prepareStatement(sql)) {
            for (int i = 0; i < nameAndOwner.length; i++)
                statement.setString(i + 1, IS_POSTGRES ? nameAndOwner[i] : hex(nameAndOwner[i]));
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getInt(1);
            }
        }
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (byte b : text.getBytes(StandardCharsets.UTF_8))
            digits.append(String.format("%02x", b));
        return digits.toString();
    }

    // ----------------------------------------------------------------------------------------- clock

    /** By a steady clock and a time of day, in ms, that are made up. */
    private static void clock() {
        long[] steady = {5_000};
        long[] day = {1_000_000};
        Clock clock = new Clock(() -> steady[0] * 1_000_000, () -> day[0]);
        double start = clock.seconds();
        // what the two have gone on, and what the clock must have
        long[][] steps = {{10_000, 10_000, 10_000}, {10, 60_010, 60_010}, {1_000, -3_600_000, 1_000}, {1_000, 1_000, 1_000},
            {1_000, 1_019, 1_000}, {1_000, 1_021, 1_021}, {0, 5_000, 5_000}, {5_000, 0, 5_000}, {1_000, 999, 1_000}};
        double wanted = 0;
        for (long[] step : steps) {
            steady[0] += step[0];
            day[0] += step[1];
            wanted += step[2] / 1e3;
            ok(Math.abs(clock.seconds() - start - wanted) < 1e-6, "clock: " + step[0] + " ms pass, and the time of day goes on by " + step[1]);
        }
        // adjusted by 500 millionths, and looked at each second: never counted
        for (int i = 0; i < 1_000; i++) {
            steady[0] += 1_000;
            day[0] += i % 2 == 0 ? 1_001 : 1_000;
            clock.seconds();
        }
        ok(Math.abs(clock.seconds() - start - wanted - 1_000) < 1e-6, "clock: an adjusted time of day");
    }

    // ----------------------------------------------------------------------------------------- names

    /** What a driver writes into a statement, and what it makes of text that its encoding lacks. */
    private static void names(Connection control) throws Exception {
        String[] names = {"it's", "C:\\jobs\\x", "x', 'me', 60), dlock_acquire('y", "\\', 'me', 60) -- ", "caf\u00e9", "\u65e5\u672c", "\u65e5', 'me', 60) -- ", "\ud83d\ude00", "a\"b\nc"};
        for (String wrong : new String[] {"a\ud800", "\udc00", "a\0b", "", null, "\u00e9".repeat(128)}) {
            is(errorOf(() -> Lease.on(() -> null, wrong)), Lease.Misuse.class, "no name: " + String.valueOf(wrong).length() + " characters");
            is(errorOf(() -> Lease.on(() -> null, "x").owner(wrong)), Lease.Misuse.class, "no owner");
        }
        names("odd", () -> Connections.odd(driver, PORT), control, names);
        names("chinese", () -> Connections.chinese(driver, PORT), control, names);
    }

    private static void names(String session, Lease.Connector connector, Connection control, String... names) throws Exception {
        for (String name : names) {
            String what = session + ", " + name.replace("\n", "\\n");
            try (Lease lease = Lease.on(connector, name).ttl(60).owner(name).acquire(); Connection mine = connector.connect()) {
                is(holds(control, name, name), 1, what + ": held by its owner");
                mine.setAutoCommit(false);
                lease.guard(mine);
                mine.commit();
                ok(lease.release(), what + ": released");
            } catch (Lease.LeaseException error) {
                is(error, null, what);
            }
        }
        try (Lease lease = Lease.on(connector, names).ttl(60).acquire()) {
            int held = 0;
            for (String name : names)
                held += holds(control, name);
            is(held, names.length, session + ", all of them at once");
            ok(lease.release(), session + ", all of them released");
        } catch (Lease.LeaseException error) {
            is(error, null, session + ", all of them");
        }
    }

    public static void main(String[] arguments) throws Exception {
        driver = arguments[0];
        clock();
        try (Connection control = Connections.plain(driver, PORT)) {
            names(control);
        }
        System.out.println("1.." + count);
        System.exit(failed > 0 ? 1 : 0);
    }
}
