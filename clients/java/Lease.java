package dlock;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.regex.Pattern;
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
 * learns in time that it is lost. clients/CONTRACT.md says what all clients of dlock keep.  These
 * files are for Java 11 and later, and need JDBC only: copy them.
 *
 * <p>Each connection belongs to one thread, a Link.  Other threads wait for its answers only for a
 * limited time, so that a driver that blocks cannot delay the news that the lease is lost.
 *
 * <p>Its methods may be called from any thread.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
public final class Lease implements AutoCloseable {
    private static final double RELEASE_LIMIT = 5;      // seconds for which a release is tried at most
    private static final double LONGEST_NAP = 1;        // waiting does not count a suspension: look at the clock

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

    /** Ends a wait that is of no use any more; callers never see it. */
    private static final class Stopped extends Exception {
        private static final long serialVersionUID = 1;
    }

    private static final List<Integer> MISUSE_NUMBERS = List.of(
        1044, 1045, 1046, 1049, 1064, 1122, 1123, 1130, 1138, 1142, 1143, 1227, 1234, 1235, 1292, 1305, 1370, 1410, 1698,
        1820, 1862, 3037, 3118, 3955, 4151);
    private static final List<String> MISUSE_STATES = List.of("0A000", "25P01", "3D000", "3F000", "54000", "55000");

    private static LeaseException told(SQLException error) {
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

    /** Whether the server has sent it, and not only the driver, which tells of connections by 08 and no number. */
    private static boolean isAnswer(Throwable error) {
        LeaseException told = error instanceof LeaseException ? (LeaseException) error : null;
        return told != null && told.sqlState != null && (told.number > 0 || !told.sqlState.startsWith("08"));
    }

    /** Of the errors of two attempts, the one to tell: the later answer, or if there is none, the later one. */
    private static <T extends Throwable> T reason(T error, T before) {
        return isAnswer(before) && !isAnswer(error) ? before : error;
    }

    // --------------------------------------------------------------------------------------- options

    /** Makes a new connection each time, not one of a pool; with the driver's connect time-out. */
    @FunctionalInterface
    public interface Connector {
        Connection connect() throws SQLException;
    }

    /** The options of a lease. */
    public static final class Options {
        private final Connector connector;
        private final List<String> names;
        private double ttl = 30;
        private double wait;
        private boolean isShared;
        private int permits;
        private String owner;
        private double connectTimeout = 10;
        private double keepAtLeast;
        private Consumer<Lease> onLost = lease -> { };

        private Options(Connector connector, String... names) {
            this.connector = connector;
            for (String name : names)
                checked("a name", name);
            this.names = List.copyOf(Arrays.asList(names));
        }

        /** Seconds for which it lasts if it is not renewed; 30 by default. */
        public Options ttl(double seconds) {
            ttl = seconds;
            return this;
        }

        public Options ttl(Duration duration) {
            return ttl(duration.toNanos() / 1e9);
        }

        /** Seconds to wait for it: 0, the default, tries once, less than 0 waits without limit. */
        public Options waiting(double seconds) {
            wait = seconds;
            return this;
        }

        /** Shared with others that share it. */
        public Options shared() {
            isShared = true;
            return this;
        }

        /** One of this many permits. */
        public Options permits(int limit) {
            permits = limit;
            return this;
        }

        /** The owner; by default one that nobody else has. */
        public Options owner(String name) {
            owner = checked("an owner", name);
            return this;
        }

        /** Seconds to go on while no server is reached, or answers; 10 by default. */
        public Options connectTimeout(double seconds) {
            connectTimeout = seconds;
            return this;
        }

        /** Seconds from the grant: a lease released sooner is not given back, but left to end then. */
        public Options keepAtLeast(double seconds) {
            keepAtLeast = seconds;
            return this;
        }

        /** Called once, in a thread of the lease, when it is lost. */
        public Options onLost(Consumer<Lease> listener) {
            onLost = listener;
            return this;
        }

        /** Acquire it.  An interrupt of the thread ends the wait. */
        public Lease acquire() throws InterruptedException {
            return new Lease(this);
        }
    }

    /** Text that is the same for every server, or Misuse. */
    private static String checked(String what, String text) {
        // which also refuses half of a surrogate pair: getBytes() would make it another name
        if (text == null || !StandardCharsets.UTF_8.newEncoder().canEncode(text))
            throw new Misuse(what + " must be text that has UTF-8", null);
        int bytes = text.getBytes(StandardCharsets.UTF_8).length;
        if (bytes == 0 || bytes > 255 || text.indexOf('\0') >= 0)
            throw new Misuse(what + " must have 1 to 255 bytes of UTF-8, and no NUL", null);
        return text;
    }

    /** A lease of one name, or of several that are taken exclusively, all or none. */
    public static Options on(Connector connector, String... names) {
        return new Options(connector, names);
    }

    // ----------------------------------------------------------------------------------- connections

    /** A job for a link; its monitor is the lease. */
    private static final class Job<T> {
        private final Callable<T> work;
        private double sent;
        private boolean isDone;
        private T answer;
        private Throwable error;

        Job(Callable<T> work) {
            this.work = work;
        }
    }

    /** A connection, and the thread that it belongs to.  After an error it is of no use any more. */
    private final class Link implements Runnable {
        private final ArrayDeque<Job<?>> jobs = new ArrayDeque<>();
        private Connection connection;
        private boolean isPostgres;
        private boolean isClosing;
        private boolean isGivenUp;

        Link() {
            Thread thread = new Thread(this, "dlock connection");
            thread.setDaemon(true);
            thread.start();
        }

        @Override
        public void run() {
            while (true) {
                Job<?> job;
                synchronized (Lease.this) {
                    while (jobs.isEmpty() && !isClosing) {
                        try {
                            Lease.this.wait();
                        } catch (InterruptedException error) {
                            isClosing = true;
                        }
                    }
                    if (jobs.isEmpty())
                        break;
                    job = jobs.remove();
                }
                perform(job);
                if (job.error != null)
                    break;
            }
            try {
                if (connection != null)
                    connection.close();
            } catch (SQLException error) {
                // it is gone already
            }
        }

        private <T> void perform(Job<T> job) {
            T answer = null;
            Throwable error = null;
            double sent = now();
            try {
                if (connection == null)
                    open();
                answer = job.work.call();
            } catch (Throwable thrown) {
                error = thrown;
            }
            synchronized (Lease.this) {
                job.sent = sent;
                job.answer = answer;
                job.error = error;
                job.isDone = true;
                Lease.this.notifyAll();
            }
        }

        private void open() throws SQLException {
            Connection opened = options.connector.connect();
            if (opened == null)
                throw new Misuse("there is no connection", null);
            synchronized (Lease.this) {
                connection = opened;
                if (isGivenUp)
                    throw new Unavailable("given up", null);
            }
            connection.setAutoCommit(true);
            isPostgres = isPostgres(connection);
        }

        <T> Job<T> begin(Callable<T> work) {
            Job<T> job = new Job<>(work);
            synchronized (Lease.this) {
                jobs.add(job);
                Lease.this.notifyAll();
            }
            return job;
        }

        /** Close the connection once all jobs are done. */
        void close() {
            synchronized (Lease.this) {
                isClosing = true;
                Lease.this.notifyAll();
            }
        }

        /** End the connection now, whatever the driver is doing. */
        void giveUp() {
            Connection doomed;
            synchronized (Lease.this) {
                isGivenUp = true;
                isClosing = true;
                doomed = connection;
                Lease.this.notifyAll();
            }
            // which may take long
            inThread(() -> {
                try {
                    if (doomed != null)
                        doomed.abort(Runnable::run);
                } catch (SQLException error) {
                    // it is gone already
                }
            });
        }

        /** The statement of a function, and its answer by "read". */
        private <T> T call(Reader<T> read, String before, String function, String after, Object... arguments) throws SQLException {
            List<String> marks = new ArrayList<>();
            for (Object argument : arguments) {
                String kind = argument instanceof long[] ? "bigint" : argument instanceof String[] ? "text" : null;
                String mark = mark(argument, isPostgres);
                marks.add(kind != null && isPostgres ? "ARRAY(SELECT value::" + kind + " FROM json_array_elements_text((" + mark + ")::json))" : mark);
            }
            String sql = "SELECT " + before + function + "(" + String.join(", ", marks) + ")" + after;
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int i = 0; i < arguments.length; i++)
                    bind(statement, i + 1, arguments[i]);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    return read.read(rows);
                }
            }
        }
    }

    @FunctionalInterface
    private interface Reader<T> {
        T read(ResultSet rows) throws SQLException;
    }

    // These characters are the same bytes in all encodings, and need no quoting.
    private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9 ,._:/-]*");

    private static String text(Object argument) {
        return argument instanceof long[] ? Arrays.toString((long[]) argument)
            : argument instanceof String[] ? json((String[]) argument) : (String) argument;
    }

    /**
     * The place of an argument in a statement.  Some drivers write values into the statement, as the
     * session is thought to quote, and in its encoding.  So text that needs quoting, or has more than
     * ASCII, goes as the digits of its UTF-8.
     */
    private static String mark(Object argument, boolean isPostgres) {
        return argument instanceof Number || PLAIN.matcher(text(argument)).matches() ? "?"
            : isPostgres ? "convert_from(decode(?, 'hex'), 'UTF8')" : "CONVERT(UNHEX(?) USING utf8mb4)";
    }

    private static void bind(PreparedStatement statement, int i, Object argument) throws SQLException {
        if (argument instanceof Double)
            statement.setDouble(i, (Double) argument);
        else if (argument instanceof Integer)
            statement.setInt(i, (Integer) argument);
        else if (argument instanceof Long)
            statement.setLong(i, (Long) argument);
        else
            statement.setString(i, PLAIN.matcher(text(argument)).matches() ? text(argument) : hex(text(argument)));
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (byte b : text.getBytes(StandardCharsets.UTF_8))
            digits.append(String.format("%02x", b));
        return digits.toString();
    }

    private static String json(String... names) {
        StringBuilder text = new StringBuilder("[");
        for (String name : names) {
            text.append(text.length() > 1 ? ", \"" : "\"");
            for (char c : name.toCharArray()) {
                if (c == '"' || c == '\\')
                    text.append('\\').append(c);
                else if (c < ' ')
                    text.append(String.format("\\u%04x", (int) c));
                else
                    text.append(c);
            }
            text.append('"');
        }
        return text.append(']').toString();
    }

    private static boolean isPostgres(Connection connection) throws SQLException {
        return connection.getMetaData().getDatabaseProductName().equals("PostgreSQL");
    }

    private static void inThread(Runnable work) {
        Thread thread = new Thread(work, "dlock");
        thread.setDaemon(true);
        thread.start();
    }

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

    private enum State { WAITING, HELD, LOST, RELEASED }

    // released at the end of the process
    private static final Set<Lease> HELD = Collections.newSetFromMap(new ConcurrentHashMap<>());

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> HELD.forEach(Lease::release)));
    }

    private final Options options;
    private final String[] names;
    private final boolean isList;
    private final String owner;
    private final String request = random();
    private final double margin;
    private long[] tokens;
    private double keepUntil;
    // the monitor guards what follows
    private State state = State.WAITING;
    private double deadline;
    private Link link;
    private Throwable cause;            // of the loss

    private Lease(Options options) throws InterruptedException {
        this.options = options;
        names = options.names.toArray(new String[0]);
        isList = names.length != 1;
        if ((isList ? 1 : 0) + (options.isShared ? 1 : 0) + (options.permits != 0 ? 1 : 0) > 1)
            throw new Misuse("several names, shared and permits exclude each other", null);
        owner = options.owner != null ? options.owner : newOwner();
        margin = Math.min(options.ttl / 10, 1);
        try {
            acquire();
        } catch (Throwable error) {
            state = State.RELEASED;
            throw error;
        }
        HELD.add(this);
        Thread keeper = new Thread(this::keep, "dlock lease");
        keeper.setDaemon(true);
        try {
            keeper.start();
        } catch (Throwable error) {
            release();
            throw error;
        }
    }

    private static String random() {
        return Long.toHexString(new SecureRandom().nextLong()) + Long.toHexString(new SecureRandom().nextLong());
    }

    private static String newOwner() {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            host = "";
        }
        return host.substring(0, Math.min(host.length(), 180)) + "/" + ProcessHandle.current().pid() + "/" + random();
    }

    /** The token of its grant; if it has several names, of the first. */
    public long token() {
        return tokens[0];
    }

    /** The tokens, in the order of the names. */
    public long[] tokens() {
        return tokens.clone();
    }

    /** Whether it is held, and safely so: the deadline is further than the margin. */
    public synchronized boolean isHeld() {
        look();
        return state == State.HELD;
    }

    /** Whether it was lost. */
    public synchronized boolean isLost() {
        look();
        return state == State.LOST;
    }

    /** Seconds to the deadline; 0 if it is not held. */
    public synchronized double remaining() {
        return isHeld() ? Math.max(0, deadline - now()) : 0;
    }

    /** Throw Lost if the lease is lost, and Misuse if it is released. */
    public synchronized void check() {
        look();
        if (state == State.LOST)
            throw new Lost(String.join(", ", names) + ": the lease is lost", cause);
        if (state != State.HELD)
            throw new Misuse("the lease is released", null);
    }

    /**
     * Guard the lease in the open transaction of the program's own connection.  Throws Lost if it is not held any
     * more; roll back then.  If the transaction commits, this lease was the only holder when it did.
     */
    public void guard(Connection connection) {
        check();
        try {
            boolean isPostgres = isPostgres(connection);
            for (int i = 0; i < names.length; i++) {
                String marks = "(" + mark(names[i], isPostgres) + ", " + mark(owner, isPostgres) + ", ?)";
                try (PreparedStatement statement = connection.prepareStatement((isPostgres ? "SELECT dlock_guard" : "CALL dlock.guard") + marks)) {
                    bind(statement, 1, names[i]);
                    bind(statement, 2, owner);
                    bind(statement, 3, tokens[i]);
                    statement.execute();
                }
            }
        } catch (SQLException error) {
            LeaseException told = told(error);
            if (told instanceof Lost)
                lose(error);
            throw told;
        }
    }

    /**
     * Give it back; returns whether the server has confirmed that.  If it cannot be released it
     * ends at its deadline, which is no error.
     */
    public boolean release() {
        State was;
        Link current;
        double limit;
        synchronized (this) {
            look();
            was = state;
            if (was == State.RELEASED)
                return false;
            state = State.RELEASED;
            current = link;
            link = null;
            // a lost lease may still be held, but is not worth a new connection
            limit = was == State.LOST ? 1 : Math.min(RELEASE_LIMIT, Math.max(0, deadline - now()));
            notifyAll();
        }
        HELD.remove(this);
        boolean wasInterrupted = Thread.interrupted();
        try {
            return release(current, now() + limit, was == State.HELD);
        } catch (InterruptedException error) {
            wasInterrupted = true;
            return false;
        } finally {
            if (wasInterrupted)
                Thread.currentThread().interrupt();
        }
    }

    /** Release it; throws Lost if it was lost before. */
    @Override
    public void close() {
        Lost lost = null;
        synchronized (this) {
            if (isLost())
                lost = new Lost(String.join(", ", names) + ": the lease is lost", cause);
        }
        release();
        if (lost != null)
            throw lost;
    }

    // ------------------------------------------------------------------------------- what is asked

    private Callable<long[]> acquireBy(Link by, double wait) {
        Reader<long[]> one = rows -> {
            long token = rows.getLong(1);
            return rows.wasNull() ? null : new long[] {token};
        };
        if (isList)
            return () -> by.call(Lease::tokensOf, by.isPostgres ? "array_to_json(" : "", "dlock_acquire_all", by.isPostgres ? ")::text" : "",
                names, owner, options.ttl, wait, request);
        if (options.permits != 0)
            return () -> by.call(one, "", "dlock_acquire_permit", "", names[0], owner, options.ttl, options.permits, wait, request);
        return () -> by.call(one, "", options.isShared ? "dlock_acquire_shared" : "dlock_acquire", "",
            names[0], owner, options.ttl, wait, request);
    }

    private static long[] tokensOf(ResultSet rows) throws SQLException {
        String list = rows.getString(1);
        return list == null ? null
            : Arrays.stream(list.replaceAll("[\\[\\] ]", "").split(",")).mapToLong(Long::parseLong).toArray();
    }

    /** True if a renewal or a release was done, for all names. */
    private Callable<Boolean> done(Link by, String function, Object... arguments) {
        if (!isList)
            return () -> by.call(rows -> rows.getBoolean(1), "", function, "", arguments);
        String before = by.isPostgres ? "count(*) FROM " : "JSON_LENGTH(";
        return () -> by.call(rows -> rows.getInt(1) == names.length, before, function + "_many", by.isPostgres ? "" : ")", arguments);
    }

    private Object name() {
        return isList ? names : names[0];
    }

    private Object token(long... of) {
        return isList ? of : (Object) of[0];
    }

    private Callable<Boolean> renewBy(Link by, long[] of, double ttl) {
        return done(by, "dlock_renew", name(), owner, ttl, token(of));
    }

    private Callable<Boolean> releaseBy(Link by, long... of) {
        return of == null ? done(by, "dlock_release", name(), owner) : done(by, "dlock_release", name(), owner, token(of));
    }

    /**
     * Wait for a job, or with null for the connection to open.  If that is not done in time, or
     * something goes wrong, gives the link up; throws Stopped if the lease changes its state.
     */
    private <T> Job<T> ask(Link by, Callable<T> work, double until, State only) throws Stopped, InterruptedException {
        Job<T> job = by.begin(work != null ? work : () -> null);
        boolean isDone = false;
        try {
            synchronized (this) {
                while (!job.isDone) {
                    if (only != null && state != only)
                        throw new Stopped();
                    double left = until - now();
                    if (left <= 0)
                        throw new Unavailable("the server did not answer in time", null);
                    wait((long) Math.ceil(1000 * Math.min(left, LONGEST_NAP)));
                }
                isDone = true;
            }
        } catch (Stopped stopped) {
            isDone = true;          // a renewal may be answered before the release, on the same connection
            throw stopped;
        } finally {
            if (!isDone)
                by.giveUp();
        }
        if (job.error instanceof SQLException)
            throw told((SQLException) job.error);
        if (job.error instanceof RuntimeException)
            throw (RuntimeException) job.error;
        if (job.error instanceof Error)
            throw (Error) job.error;
        if (job.error != null)
            throw new Unavailable(job.error.toString(), job.error);
        return job;
    }

    /** Wait until then; throws Stopped if the lease changes its state. */
    private synchronized void pause(double until, State only) throws Stopped, InterruptedException {
        for (double left; (left = until - now()) > 0;) {
            if (only != null && state != only)
                throw new Stopped();
            wait((long) Math.ceil(1000 * Math.min(left, LONGEST_NAP)));
        }
    }

    // ---------------------------------------------------------------------------------- the acquire

    private void acquire() throws InterruptedException {
        double start = now();
        // until a server was reached; then without limit, or until the wait is over and the server has had its time
        double last = start + options.connectTimeout;
        double pause = 0.05;
        Link by = null;
        boolean wasAsked = false;
        Unavailable before = null;
        try {
            while (true) {
                try {
                    if (by == null) {
                        by = new Link();
                        ask(by, null, Math.min(last, now() + options.connectTimeout / 3), null);
                        last = options.wait < 0 ? Double.POSITIVE_INFINITY : start + options.wait + options.connectTimeout;
                    }
                    wasAsked = true;
                    double left = options.wait < 0 ? options.wait : Math.max(0, start + options.wait - now());
                    Job<long[]> granted = ask(by, acquireBy(by, left), last, null);
                    if (granted.answer == null) {
                        by.close();
                        throw new Busy(String.join(", ", names) + " not free within " + options.wait + " s", null);
                    }
                    double sent = granted.sent;
                    if (now() - sent > options.ttl / 3) {
                        // when was it granted?
                        Job<Boolean> renewed = ask(by, renewBy(by, granted.answer, options.ttl), now() + options.ttl / 3, null);
                        if (!renewed.answer)
                            continue;           // it is over: go on waiting
                        sent = renewed.sent;
                    }
                    if (now() < sent + options.ttl - margin) {
                        synchronized (this) {
                            link = by;
                            tokens = granted.answer;
                            deadline = sent + options.ttl;
                            keepUntil = now() + options.keepAtLeast;
                            state = State.HELD;
                        }
                        return;
                    }
                    // this took too long: the same request again moves the deadline
                } catch (Unavailable error) {
                    by = null;
                    before = reason(error, before);
                    if (now() + pause >= last)
                        throw before;
                    pause(now() + pause, null);
                    pause = Math.min(2 * pause, 1);
                }
            }
        } catch (Busy | Misuse error) {
            throw error;
        } catch (Stopped stopped) {
            throw new IllegalStateException(stopped);           // nobody can, yet
        } catch (Throwable error) {
            if (by != null)
                by.giveUp();
            // it may have been granted, though no answer came
            if (wasAsked)
                giveBack(now() + (error instanceof Unavailable ? 1 : RELEASE_LIMIT));
            throw error;
        }
    }

    /** Give back what an acquire that was given up may have been granted. */
    private void giveBack(double until) {
        Link by = new Link();
        try {
            ask(by, null, until, null);
            long[] of = null;
            if (options.owner != null) {
                // the owner may have other holds: repeating the request id finds this one's, or
                // takes one more
                of = ask(by, acquireBy(by, 0), until, null).answer;
                if (of == null) {
                    by.close();
                    return;
                }
            }
            ask(by, releaseBy(by, of), until, null);
            by.close();
        } catch (RuntimeException | Error | Stopped error) {
            by.giveUp();            // it ends at its deadline
        } catch (InterruptedException error) {
            by.giveUp();
            Thread.currentThread().interrupt();
        }
    }

    // -------------------------------------------------------------------------------- the heartbeat

    /** Renew until the lease is lost or released, and tell that it is lost: the keeper's thread. */
    private void keep() {
        try {
            while (true) {
                double next;
                synchronized (this) {
                    next = deadline - options.ttl * 2 / 3;
                }
                pause(next, State.HELD);
                renew();
            }
        } catch (Stopped | InterruptedException over) {
            if (isLost())
                options.onLost.accept(this);
        }
    }

    /** Move the deadline; throws Stopped if the lease is not held any more. */
    private void renew() throws Stopped, InterruptedException {
        for (double pause = 0.05;; pause = Math.min(2 * pause, 1)) {
            double lostAt;
            synchronized (this) {
                look();
                if (state != State.HELD)
                    throw new Stopped();
                lostAt = deadline - margin;
            }
            double until = Math.min(now() + options.ttl / 3, lostAt);
            Link by = null;
            Job<Boolean> renewed;
            try {
                synchronized (this) {
                    if (state != State.HELD)
                        throw new Stopped();
                    if (link == null)
                        link = new Link();      // fails if there can be no thread
                    by = link;
                }
                ask(by, null, until, State.HELD);
                renewed = ask(by, renewBy(by, tokens, options.ttl), until, State.HELD);
            } catch (RuntimeException | Error error) {
                synchronized (this) {
                    cause = reason(error, cause);
                    if (link == by)
                        link = null;
                }
                pause(Math.min(now() + pause, lostAt), State.HELD);
                continue;
            }
            synchronized (this) {
                look();
                if (state == State.HELD && !renewed.answer)
                    lose(null);
                if (state != State.HELD)
                    throw new Stopped();
                deadline = renewed.sent + options.ttl;
                cause = null;
            }
            return;
        }
    }

    /** Compare the clock with the deadline. */
    private synchronized void look() {
        if (state == State.HELD && now() >= deadline - margin)
            lose(cause != null ? cause : new Unavailable("it was not renewed in time", null));
    }

    private synchronized void lose(Throwable why) {
        if (state != State.HELD)
            return;
        state = State.LOST;
        cause = why;
        HELD.remove(this);
        notifyAll();
    }

    // ---------------------------------------------------------------------------------- the release

    /** Give the lease back, by this connection or, if "again", by new ones. */
    private boolean release(Link by, double until, boolean again) throws InterruptedException {
        for (double pause = 0.05; by != null || again && now() < until; pause = Math.min(2 * pause, 1)) {
            double limit = Math.min(until, now() + Math.max(0.1, Math.min(options.ttl / 3, RELEASE_LIMIT / 2)));
            boolean wasAsked = false;
            try {
                if (by == null)
                    by = new Link();
                ask(by, null, limit, null);
                double left = again ? keepUntil - now() : 0;
                // an owner that the program named may have other holds, which must not end sooner
                double keep = options.owner == null ? left : Math.max(left, options.ttl);
                wasAsked = true;
                boolean isDone = ask(by, left > 0 ? renewBy(by, tokens, keep) : releaseBy(by, tokens), limit, null).answer;
                by.close();
                return isDone;
            } catch (RuntimeException | Error | Stopped error) {     // a driver may throw anything
                by = null;
                // it may have been done; a second one would take another hold of the owner
                if (wasAsked && options.owner != null)
                    return false;
            }
            try {
                if (again)
                    pause(Math.min(now() + pause, until), null);
            } catch (Stopped error) {
                return false;
            }
        }
        return false;
    }
}
