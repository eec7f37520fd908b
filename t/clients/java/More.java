// needs: libhikaricp-java libdropwizard-metrics-java
package dlock;

import com.codahale.metrics.MetricRegistry;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;

/** Cases that only the client for Java has.  Prints TAP; its argument is the driver. */
public final class More {
    private static String driver;
    static final String PORT = System.getenv("DLOCK_PORT");
    private static final boolean IS_POSTGRES = System.getenv("DLOCK_SERVER").equals("postgres");
    private static int count;
    private static int failed;

    private More() {
    }

    static synchronized void ok(boolean passed, String what) {
        count++;
        if (!passed)
            failed++;
        System.out.println((passed ? "ok " : "not ok ") + count + " - " + what);
    }

    static synchronized void is(Object is, Object wanted, String what) {
        ok(Objects.equals(is, wanted), what);
        if (!Objects.equals(is, wanted))
            System.out.println("#   got " + is + ", wanted " + wanted);
    }

    /** A busy machine has more time than any client has by itself. */
    static final double PATIENCE = 180;

    /** Poll until it is so. */
    static boolean until(BooleanSupplier isSo) {
        long end = System.nanoTime() + (long) (1e9 * PATIENCE);
        while (!isSo.getAsBoolean() && System.nanoTime() < end)
            LockSupport.parkNanos(10_000_000);
        return isSo.getAsBoolean();
    }

    interface Call {
        void run() throws Exception;
    }

    /** The class of the exception that a call ends with; null: it ends well. */
    static Class<?> errorOf(Call call) {
        try {
            call.run();
            return null;
        } catch (Exception error) {
            return error.getClass();
        }
    }

    /** Who has a lease of a name, by a function that speaks of digits only. */
    static String ownerOf(Connection control, String name) throws SQLException {
        String sql = IS_POSTGRES ? "SELECT encode(convert_to(dlock_owner(convert_from(decode(?, 'hex'), 'UTF8')), 'UTF8'), 'hex')"
            : "SELECT HEX(dlock_owner(UNHEX(?)))";
        try (PreparedStatement statement = control.prepareStatement(sql)) {
            statement.setString(1, Text.hex(name));
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1) == null ? null : Text.unhex(rows.getString(1));
            }
        }
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
                is(ownerOf(control, name), name, what + ": held by its owner");
                mine.setAutoCommit(false);
                lease.guard(mine);
                mine.commit();
                ok(lease.release(), what + ": released");
            } catch (Lease.LeaseException error) {
                is(error, null, what);
            }
        }
        try (Lease lease = Lease.on(connector, names).ttl(60).owner("me").acquire()) {
            int held = 0;
            for (String name : names)
                held += Objects.equals(ownerOf(control, name), "me") ? 1 : 0;
            is(held, names.length, session + ", all of them at once");
            ok(lease.release(), session + ", all of them released");
        } catch (Lease.LeaseException error) {
            is(error, null, session + ", all of them");
        }
    }

    // ------------------------------------------------------------------------------------- arguments

    private static double seconds(String text) {
        return Text.seconds("a time", text);
    }

    private static void arguments() {
        String[][] times = {{"30", "30"}, {" 0.25 ", "0.25"}, {"1e3", "1000"}, {"-1", "-1"}, {"30s", "30"}, {"500 ms", "0.5"}, {"5 minutes", "300"},
            {"1 day 2 hours", "93600"}, {"1H30M", "5400"}, {".5s", "0.5"}, {"1h -30m", "1800"}, {"1 year 1 mon 1 w", "34300800"}};
        for (String[] time : times)
            ok(Math.abs(seconds(time[0]) - Double.parseDouble(time[1])) < 1e-6, "time: " + time[0]);
        for (String wrong : new String[] {"", " ", "soon", "30q", "01:30:00", "PT1M", "1h 30", "1s 2s", "s", "1e3s", "NaN", "Infinity", "1,5", "1 day ago", "2e9", "0x10", "30f", "30\0", "\u0663\u0660"})
            is(errorOf(() -> seconds(wrong)), Lease.Misuse.class, "no time: " + wrong.replace("\0", "NUL"));
        Lease.Options options = Lease.on(() -> null, "x");
        Object[][] calls = {
            {"a ttl of 0", (Call) () -> options.ttl(0)}, {"a ttl below 0", (Call) () -> options.ttl("-1s")}, {"a ttl that is no number", (Call) () -> options.ttl(Double.NaN)},
            {"a ttl of 2^63 s", (Call) () -> options.ttl(Duration.ofSeconds(Long.MAX_VALUE))}, {"an endless wait", (Call) () -> options.waiting(Double.POSITIVE_INFINITY)},
            {"a wait as a word", (Call) () -> options.waiting("soon")}, {"a time-out of 0", (Call) () -> options.connectTimeout(0)},
            {"no permits", (Call) () -> options.permits(0)}, {"-1 permits", (Call) () -> options.permits(-1)}, {"a time to keep below 0", (Call) () -> options.keepAtLeast(-1)},
            {"no names", (Call) () -> Lease.on(() -> null)}, {"101 names", (Call) () -> Lease.on(() -> null, IntStream.range(0, 101).mapToObj(String::valueOf).toArray(String[]::new))},
            {"a name twice", (Call) () -> Lease.on(() -> null, "x", "x")}, {"no connector", (Call) () -> Lease.on(null, "x")}, {"no connection", (Call) options::acquire},
            {"no client", (Call) () -> new Client(null)}, {"two modes", (Call) () -> Lease.on(() -> null, "x").shared().permits(1).acquire()},
            {"a null duration", (Call) () -> options.ttl((Duration) null)}, {"a null text", (Call) () -> options.ttl((CharSequence) null)}};
        for (Object[] call : calls)
            is(errorOf((Call) call[1]), Lease.Misuse.class, "misuse: " + call[0]);
        is(errorOf(() -> options.ttl(Duration.ofMillis(1500)).waiting(new StringBuilder("2 s")).keepAtLeast(Duration.ZERO)), null, "durations and any text");
        // what one end writes, the other one reads
        String name = "a\"\\/\b\f\n\r\t\u0001\u00e9\u20ac\ud83d\ude00";
        is(Text.strings(Text.unhex(Text.hex(Text.json(name, "", "x")))), List.of(name, "", "x"), "names as JSON");
        is(Text.strings("[\"\\u00e9\\/\\b\\f\\n\\r\\t\"]"), List.of("\u00e9/\b\f\n\r\t"), "as a server may write them");
    }

    // --------------------------------------------------------------------------------------- drivers

    /** Settings of the driver, wrappers, and a pool change no answer. */
    private static void drivers() throws Exception {
        String[] options = IS_POSTGRES
            ? new String[] {"&prepareThreshold=1", "&prepareThreshold=-1", "&preferQueryMode=simple", "&stringtype=unspecified", "&autosave=always",
                "&binaryTransfer=true&prepareThreshold=-1", "&defaultRowFetchSize=1", "&options=-c%20standard_conforming_strings=off", "&disableColumnSanitiser=true"}
            : new String[] {"&useServerPrepStmts=true", "&tinyInt1isBit=true", "&tinyInt1isBit=false&yearIsDateType=false", "&allowMultiQueries=true",
                "&rewriteBatchedStatements=true", "&autocommit=false", "&jdbcCompliantTruncation=false", "&sessionVariables=sql_mode='ANSI,NO_BACKSLASH_ESCAPES'"};
        for (String option : options)
            answers(option, () -> Connections.with(option, driver, PORT));
        answers("a wrapper", () -> Connections.wrapped(Connections.plain(driver, PORT)));
        answers("no autocommit", () -> {
            Connection connection = Connections.plain(driver, PORT);
            connection.setAutoCommit(false);
            return connection;
        });
        HikariConfig config = new HikariConfig();
        config.setDataSource(Connections.source(driver, PORT));
        config.setMaximumPoolSize(6);
        config.setAutoCommit(false);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            answers("a pool", pool::getConnection);
            ok(until(() -> pool.getHikariPoolMXBean().getActiveConnections() == 0), "a pool has its connections back");
        }
        is(errorOf(() -> Lease.on(() -> Connections.of("Oracle"), "x").acquire()), Lease.Misuse.class, "a server of another kind");
    }

    private static void answers(String what, Lease.Connector connector) throws Exception {
        String name = "caf\u00e9 \\ " + what;
        CountDownLatch renewed = new CountDownLatch(2);
        Lease.EventListener count = (kind, of, seconds) -> {
            if (kind == Lease.Event.RENEWED)
                renewed.countDown();
        };
        try (Client client = new Client(connector).onEvent(count); Connection mine = connector.connect()) {
            Lease one = client.lease(name).ttl(3).acquire();
            Lease two = client.lease(name + "2", name + "3").ttl(3).acquire();
            Lease three = client.lease(name + "4").permits(2).ttl(60).acquire();
            is(errorOf(() -> Lease.on(connector, name).acquire()), Lease.Busy.class, what + ": busy");
            renewed.await();
            mine.setAutoCommit(false);
            for (Lease lease : List.of(one, two, three))
                lease.guard(mine);
            mine.commit();
            ok(one.isHeld() && two.isHeld() && three.isHeld(), what + ": renewed");
            ok(one.release() && two.release() && three.release(), what + ": released");
        } catch (Lease.LeaseException error) {
            is(error, null, what);
        }
    }

    // ---------------------------------------------------------------------------------------- threads

    /** Many tasks on few threads: java.pl gives virtual threads two carriers. */
    private static void tasks() throws Exception {
        ExecutorService tasks;
        try {
            tasks = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (NoSuchMethodException error) {
            tasks = Executors.newCachedThreadPool();        // before Java 21
        }
        Client client = new Client(() -> Connections.plain(driver, PORT));
        List<Future<Boolean>> done = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            String name = "task" + i;
            done.add(tasks.submit(() -> {
                // those that wait must leave a thread to the one that has it
                try (Lease own = client.lease(name).ttl(60).connectTimeout(PATIENCE).acquire();
                    Lease lease = Lease.on(() -> Connections.plain(driver, PORT), "tasks").ttl(60).waiting(-1).connectTimeout(PATIENCE).acquire()) {
                    Thread.sleep(10);
                    return own.isHeld() && lease.isHeld();
                }
            }));
        }
        int held = 0;
        for (Future<Boolean> task : done)
            held += task.get(600, TimeUnit.SECONDS) ? 1 : 0;
        is(held, 20, "20 tasks have one lease, one after the other");
        client.close();
        tasks.shutdown();
    }

    // ----------------------------------------------------------------------------------------- events

    private static void events() throws Exception {
        // the example of the readme
        MetricRegistry metrics = new MetricRegistry();
        Client client = new Client(() -> Connections.plain(driver, PORT)).onEvent((kind, name, seconds) ->
            metrics.timer("dlock." + kind + "." + name).update((long) (1e9 * seconds), TimeUnit.NANOSECONDS));
        client.lease("measured").ttl(60).acquire().release();
        ok(until(() -> metrics.timer("dlock.released.measured").getCount() == 1), "events: counted by a library of metrics");
        is(metrics.timer("dlock.acquired.measured").getCount(), 1L, "events: in their order");

        // a listener that has fallen behind
        CountDownLatch goOn = new CountDownLatch(1);
        CountDownLatch isThere = new CountDownLatch(1);
        AtomicInteger count = new AtomicInteger();
        Lease.EventListener slow = (kind, name, seconds) -> {
            isThere.countDown();
            try {
                goOn.await();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            count.incrementAndGet();
        };
        Client behind = new Client(() -> Connections.plain(driver, PORT)).onEvent(slow);
        Lease lease = behind.lease("behind").ttl(60).acquire();
        isThere.await();
        for (int i = 0; i < 10_010; i++)
            errorOf(() -> behind.lease("behind").acquire());
        goOn.countDown();
        until(() -> count.get() >= 10_001);
        ok(lease.release(), "events: nothing waits for them");
        ok(until(() -> count.get() == 10_002), "events: those more than 10,000 behind are dropped");
        behind.close();

        // dropped by the program: renewed on, and told
        AtomicInteger dropped = new AtomicInteger();
        AtomicInteger renewedOn = new AtomicInteger();
        client.lease("dropped").ttl(3).onEvent((kind, name, seconds) -> {
            if (kind == Lease.Event.UNREFERENCED)
                dropped.incrementAndGet();
            if (kind == Lease.Event.RENEWED && dropped.get() > 0)
                renewedOn.incrementAndGet();
        }).acquire();
        ok(until(() -> {
            System.gc();
            return dropped.get() > 0;
        }), "a lease that is dropped is told");
        ok(until(() -> renewedOn.get() > 0), "and renewed on");
        is(dropped.get(), 1, "it is told once");
        client.close();
    }

    public static void main(String[] arguments) throws Exception {
        driver = arguments[0];
        clock();
        arguments();
        try (Connection control = Connections.plain(driver, PORT)) {
            names(control);
        }
        drivers();
        tasks();
        events();
        Attacks.all(driver);
        System.out.println("1.." + count);
        System.exit(failed > 0 ? 1 : 0);
    }
}
