package dlock;

import java.io.IOException;
import java.lang.ref.Reference;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.function.Supplier;
import javax.net.SocketFactory;
import jdk.net.ExtendedSocketOptions;

/**
 * A lease of dlock that is kept alive: a named lock with a deadline in PostgreSQL, MySQL or MariaDB.
 *
 * <pre>{@code
 * try (Lease lease = Lease.on(() -> DriverManager.getConnection(url), "nightly-report").ttl(30).acquire()) {
 *     for (Part part : parts) {
 *         lease.check();                      // throws Lost if it is not ours any more
 *         work(part, lease.token());
 *     }
 * }
 * }</pre>
 *
 * <p>It is acquired, and renewed by a thread until it is closed; if that does not work, the program
 * learns in time that it is lost.  A program with many leases keeps them by one connection, with a Client. clients/CONTRACT.md says what all clients of dlock keep.  These
 * files are for Java 11 and later, and need JDBC only: copy them.
 *
 * <p>Its methods may be called from any thread.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
public final class Lease implements AutoCloseable {
    // ------------------------------------------------------------------------------------------ time

    /** Seconds of the clock of all deadlines, which nobody sets, and which counts the time that the machine was suspended. */
    public static double now() {
        return Clock.now();
    }

    // ---------------------------------------------------------------------------------------- errors

    /** The class of all errors here; the driver's own is the cause. */
    public static class LeaseException extends RuntimeException {
        private static final long serialVersionUID = 1;
        /** The SQLSTATE, or null. */
        public final String sqlState;
        /** The number of MySQL and MariaDB, or 0. */
        public final int number;

        LeaseException(String message, Throwable cause) {
            super(message, cause);
            SQLException told = cause instanceof SQLException ? (SQLException) cause : null;
            LeaseException ours = cause instanceof LeaseException ? (LeaseException) cause : null;
            sqlState = told != null ? told.getSQLState() : ours != null ? ours.sqlState : null;
            number = told != null ? told.getErrorCode() : ours != null ? ours.number : 0;
        }
    }

    /** Not free within the wait, or a deadlock: try later. */
    public static final class Busy extends LeaseException {
        private static final long serialVersionUID = 1;

        Busy(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** The lease ended before it was released: stop, roll back, and acquire again. */
    public static final class Lost extends LeaseException {
        private static final long serialVersionUID = 1;

        Lost(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** An argument, a privilege or the order of calls is wrong: change the program, the account or the server. */
    public static final class Misuse extends LeaseException {
        private static final long serialVersionUID = 1;

        Misuse(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** No server answered, or none that can do it now: try again. */
    public static final class Unavailable extends LeaseException {
        private static final long serialVersionUID = 1;

        Unavailable(String message, Throwable cause) {
            super(message, cause);
        }
    }

    private static final List<Integer> MISUSE_NUMBERS = List.of(
        1044, 1045, 1046, 1049, 1064, 1122, 1123, 1130, 1138, 1142, 1143, 1227, 1234, 1235, 1292, 1305, 1370, 1410, 1698,
        1820, 1862, 3037, 3118, 3955, 4151);
    private static final List<String> MISUSE_STATES = List.of("0A000", "25P01", "3D000", "3F000", "54000", "55000");

    /** The error of a class that the driver's belongs to. */
    static LeaseException told(SQLException error) {
        String state = String.valueOf(error.getSQLState());
        String message = String.valueOf(error.getMessage());
        int number = error.getErrorCode();
        // the state first: the number of a lost lease in MySQL is that of any SIGNAL
        if (state.equals("55L01"))
            return new Lost(message, error);
        if (state.equals("40P01") || number == 3058)
            return new Busy(message, error);
        boolean isMisuse = MISUSE_STATES.contains(state) || (number > 0
            // MariaDB has one number for a guard outside a transaction and for errors that may pass
            ? MISUSE_NUMBERS.contains(number) || number == 1105 && message.contains("can only be used in transactions")
            : state.startsWith("22") || state.startsWith("28") || state.startsWith("42"));
        return isMisuse ? new Misuse(message, error) : new Unavailable(message, error);
    }

    /**
     * Whether PostgreSQL has no such function, or none of the tables or schemas that one uses, or the
     * schema is another's already, as a call learns that waited for so long.
     */
    static boolean isGone(LeaseException error) {
        return List.of("42883", "42P01", "3F000").contains(String.valueOf(error.sqlState))
            || "42501".equals(error.sqlState) && error.getMessage().contains("dlock_private");
    }

    /** Whether the server has sent it, and not only the driver, which tells of connections by 08 and no number. */
    static boolean isAnswer(Throwable error) {
        LeaseException told = error instanceof LeaseException ? (LeaseException) error : null;
        return told != null && told.sqlState != null && (told.number > 0 || !told.sqlState.startsWith("08"));
    }

    /** Of the errors of two attempts, the one to tell: the later answer, or if there is none, the later one. */
    static <T extends Throwable> T reason(T error, T before) {
        return isAnswer(before) && !isAnswer(error) ? before : error;
    }

    // --------------------------------------------------------------------------------------- options

    /** Makes a new connection each time, not one of a pool; with the driver's connect time-out. */
    @FunctionalInterface
    public interface Connector {
        Connection connect() throws SQLException;
    }

    /** What happens to a lease. */
    public enum Event {
        /** It is held; the seconds since the acquire began. */
        ACQUIRED,
        /** The acquire ended without it; the seconds since it began. */
        REFUSED,
        /** A renewal was answered; the seconds since it was sent. */
        RENEWED,
        /** A renewal failed or was given up; the seconds until the lease is lost. */
        LATE,
        /** It is lost; the seconds since it was acquired. */
        LOST,
        /** The program gave it back, answered or not; the seconds since it was acquired. */
        RELEASED,
        /** The program has dropped it without releasing it; the seconds since it was acquired. */
        UNREFERENCED;

        /** In lower case, as in clients/CONTRACT.md. */
        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /**
     * Is called for each event and each name, in their order, in a thread that does nothing else.  What it
     * throws goes to that thread's handler of uncaught exceptions.
     */
    @FunctionalInterface
    public interface EventListener {
        void on(Event kind, String name, double seconds);
    }

    /**
     * The options of a lease.  A time is a number of seconds, a Duration, or text: a number of seconds, or
     * numbers with units, added up, such as "30s", "500 ms" or "1 day 2 hours".
     */
    public static final class Options {
        private final Client client;            // null: a client of its own
        private final Connector connector;
        final String[] names;
        double ttl = 30;
        double wait;
        boolean isShared;
        int permits;
        private String owner;
        double connectTimeout = 10;
        double keepAtLeast;
        Consumer<Lease> onLost;
        EventListener onEvent;

        Options(Client client, Connector connector, String... names) {
            if (connector == null)
                throw new Misuse("there must be a connector", null);
            this.client = client;
            this.connector = connector;
            this.names = Text.checkedNames(names);
        }

        /** For how long it lasts if it is not renewed; 30 s by default. */
        public Options ttl(double seconds) {
            ttl = positive("a ttl", Text.seconds("a ttl", seconds));
            return this;
        }

        public Options ttl(Duration duration) {
            return ttl(Text.seconds("a ttl", duration));
        }

        public Options ttl(CharSequence text) {
            return ttl(Text.seconds("a ttl", text));
        }

        /** For how long to wait for it: 0, the default, tries once, less than 0 waits without limit. */
        public Options waiting(double seconds) {
            wait = Text.seconds("a wait", seconds);
            return this;
        }

        public Options waiting(Duration duration) {
            return waiting(Text.seconds("a wait", duration));
        }

        public Options waiting(CharSequence text) {
            return waiting(Text.seconds("a wait", text));
        }

        /** Shared with others that share it. */
        public Options shared() {
            isShared = true;
            return this;
        }

        /** One of this many permits. */
        public Options permits(int limit) {
            permits = (int) positive("a number of permits", limit);
            return this;
        }

        /** The owner; by default one that nobody else has.  The leases of a client have the client's. */
        public Options owner(String name) {
            if (client != null)
                throw new Misuse("all leases of a client have its owner", null);
            owner = Text.checked("an owner", name);
            return this;
        }

        /** For how long to go on while no server is reached, or answers; 10 s by default. */
        public Options connectTimeout(double seconds) {
            connectTimeout = positive("a connect time-out", Text.seconds("a connect time-out", seconds));
            return this;
        }

        public Options connectTimeout(Duration duration) {
            return connectTimeout(Text.seconds("a connect time-out", duration));
        }

        public Options connectTimeout(CharSequence text) {
            return connectTimeout(Text.seconds("a connect time-out", text));
        }

        /** A time from the grant: a lease released sooner is given back with effect then; on MySQL and MariaDB it is renewed until then. */
        public Options keepAtLeast(double seconds) {
            if (Text.seconds("a time to keep", seconds) < 0)
                throw new Misuse("a time to keep must not be below 0", null);
            keepAtLeast = seconds;
            return this;
        }

        public Options keepAtLeast(Duration duration) {
            return keepAtLeast(Text.seconds("a time to keep", duration));
        }

        public Options keepAtLeast(CharSequence text) {
            return keepAtLeast(Text.seconds("a time to keep", text));
        }

        /** Called once, in a thread of its own, when it is lost. */
        public Options onLost(Consumer<Lease> listener) {
            onLost = listener;
            return this;
        }

        /** Called for what happens to it, after the client's listener if that has one. */
        public Options onEvent(EventListener listener) {
            onEvent = listener;
            return this;
        }

        /** Acquire it.  An interrupt of the thread ends the wait. */
        public Lease acquire() throws InterruptedException {
            Client by = client != null ? client : new Client(connector, owner, true);
            return by.acquire(new Client.Hold(by, this));
        }

        private static double positive(String what, double number) {
            if (number <= 0)
                throw new Misuse(what + " must be above 0", null);
            return number;
        }
    }

    /** A lease of one name, or of several that are taken exclusively, all or none. */
    public static Options on(Connector connector, String... names) {
        return new Options(null, connector, names);
    }

    // ----------------------------------------------------------------------------------- connections

    /**
     * For the option socketFactory of PostgreSQL's and MariaDB's drivers, as "dlock.Lease$Sockets":
     * with TCP keep-alive, so that a waiter whose network is gone notices within a minute.
     */
    public static final class Sockets extends SocketFactory {
        @Override
        public Socket createSocket() throws IOException {
            return prepared(new Socket());
        }

        @Override
        public Socket createSocket(String host, int port) throws IOException {
            return prepared(new Socket(host, port));
        }

        @Override
        public Socket createSocket(InetAddress host, int port) throws IOException {
            return prepared(new Socket(host, port));
        }

        @Override
        public Socket createSocket(String host, int port, InetAddress local, int localPort) throws IOException {
            return prepared(new Socket(host, port, local, localPort));
        }

        @Override
        public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) throws IOException {
            return prepared(new Socket(host, port, local, localPort));
        }

        private static Socket prepared(Socket socket) throws IOException {
            try {
                socket.setKeepAlive(true);
                // not all systems have these
                if (socket.supportedOptions().contains(ExtendedSocketOptions.TCP_KEEPIDLE)) {
                    socket.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, 15);
                    socket.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, 10);
                    socket.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, 3);
                }
            } catch (SocketException error) {
                socket.close();
                throw error;
            }
            return socket;
        }
    }

    // ---------------------------------------------------------------------------------------- leases

    private final Client.Hold hold;
    private final Client client;

    Lease(Client.Hold hold) {
        this.hold = hold;
        client = hold.client;
    }

    /** Do it with the lock of the client, after a look at the clock. */
    private <T> T locked(Supplier<T> work) {
        client.lock.lock();
        try {
            client.look(hold);
            return work.get();
        } finally {
            client.lock.unlock();
        }
    }

    /** The token of its grant; if it has several names, of the first. */
    public long token() {
        return hold.tokens[0];
    }

    /** The tokens, in the order of the names. */
    public long[] tokens() {
        return hold.tokens.clone();
    }

    /** Whether it is held, and safely so: the deadline is further than the margin. */
    public boolean isHeld() {
        return locked(() -> hold.state == Client.State.HELD);
    }

    /** Whether it was lost. */
    public boolean isLost() {
        return locked(() -> hold.state == Client.State.LOST);
    }

    /** Seconds to the deadline; 0 if it is not held. */
    public double remaining() {
        return locked(() -> hold.state == Client.State.HELD ? Math.max(0, hold.deadline - now()) : 0);
    }

    /** The error of a lost lease; null if it is not lost. */
    private Lost lost() {
        return locked(() -> hold.state == Client.State.LOST ? new Lost(hold.shown() + ": the lease is lost", hold.cause) : null);
    }

    /** Throw Lost if the lease is lost, and Misuse if it is released. */
    public void check() {
        LeaseException error = locked(() -> hold.state == Client.State.RELEASED ? new Misuse("the lease is released", null) : lost());
        if (error != null)
            throw error;
    }

    /**
     * Guard the lease in the open transaction of the program's own connection.  Throws Lost if it is not held any
     * more; roll back then.  If the transaction commits, this lease was the only holder when it did.
     */
    public void guard(Connection connection) {
        check();
        try {
            for (int i = 0; i < hold.names.length; i++)
                Link.guard(connection, hold.names[i], client.owner(), hold.tokens[i]);
        } catch (SQLException error) {
            LeaseException told = told(error);
            if (told instanceof Lost)
                client.lose(hold, error);
            throw told;
        }
    }

    /**
     * Give it back; returns whether the server has confirmed that.  If it cannot be released it
     * ends at its deadline, which is no error.
     */
    public boolean release() {
        try {
            return client.release(hold);
        } finally {
            // or it could pass for dropped before its release has begun
            Reference.reachabilityFence(this);
        }
    }

    /** Release it; throws Lost if it was lost before. */
    @Override
    public void close() {
        Lost lost = lost();
        release();
        if (lost != null)
            throw lost;
    }
}
