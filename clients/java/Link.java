package dlock;

import dlock.Lease.LeaseException;
import dlock.Lease.Misuse;
import dlock.Lease.Unavailable;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A connection, and the thread that it belongs to: no other thread calls the driver, which may block.
 * Others wait for a job as long as they like, and give the link up if it takes longer.
 *
 * <p>What threads share is guarded by the client's lock, which nobody holds while a driver is called.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
final class Link implements Runnable {
    /** The servers' error of a function that there is not; MySQL's, where no database is selected. */
    private static final Set<Integer> NO_FUNCTION = Set.of(1305, 1046);

    /** What a link does for a job. */
    @FunctionalInterface
    interface Work<T> {
        T by(Link link) throws SQLException;
    }

    /** The lock guards what is not final. */
    static final class Job<T> {
        private final Work<T> work;
        private final Condition waiter;
        /** The connection was there, and the server may have been asked. */
        boolean wasAsked;
        /** When, at the latest. */
        double sent;
        boolean isDone;
        T answer;
        Throwable error;

        private Job(Work<T> work, Condition waiter) {
            this.work = work;
            this.waiter = waiter;
        }
    }

    // the connections that links have: no two have the same
    private static final Map<Connection, Link> TAKEN = Collections.synchronizedMap(new IdentityHashMap<>());

    private final Client client;
    private final ReentrantLock lock;
    private final Condition hasWork;
    // the lock guards these
    private final ArrayDeque<Job<?>> jobs = new ArrayDeque<>();
    private Connection connection;
    private boolean isClosing;
    private boolean isGivenUp;
    private double idleSince;
    // of the link's thread only
    private boolean isOpen;
    private boolean isPostgres;
    private volatile boolean isCalled;

    /** Begins to connect with its first job. */
    Link(Client client) {
        this.client = client;
        lock = client.lock;
        hasWork = lock.newCondition();
        Client.thread(this, "dlock connection").start();
    }

    /** Begin a job; the waiter is told when it is done. */
    <T> Job<T> begin(Work<T> work, Condition waiter) {
        Job<T> job = new Job<>(work, waiter);
        lock.lock();
        try {
            jobs.add(job);
            hasWork.signal();
        } finally {
            lock.unlock();
        }
        return job;
    }

    /** Whether it does no more jobs. */
    boolean isClosing() {
        lock.lock();
        try {
            return isClosing;
        } finally {
            lock.unlock();
        }
    }

    /** For how long it has been idle; the last job is done. */
    double idle() {
        lock.lock();
        try {
            return Clock.now() - idleSince;
        } finally {
            lock.unlock();
        }
    }

    /** Whether the last answer is a procedure's, which does not wait. */
    boolean isCalled() {
        return isCalled;
    }

    /** Close the connection once all jobs are done. */
    void close() {
        lock.lock();
        try {
            isClosing = true;
            hasWork.signal();
        } finally {
            lock.unlock();
        }
    }

    /** End the connection now, whatever the driver is doing. */
    void giveUp() {
        Connection doomed;
        lock.lock();
        try {
            isGivenUp = true;
            isClosing = true;
            doomed = connection;
            hasWork.signal();
        } finally {
            lock.unlock();
        }
        if (doomed == null)
            return;
        try {
            Client.inBackground(() -> {
                try {
                    doomed.abort(Runnable::run);
                } catch (SQLException | RuntimeException error) {
                    // it is gone already
                }
            });
        } catch (OutOfMemoryError error) {
            // there is no room for a thread now: the driver lets go of it by itself
        }
    }

    @Override
    public void run() {
        for (Job<?> job; (job = next()) != null;)
            perform(job);
        try {
            if (connection != null)
                connection.close();
        } catch (SQLException | RuntimeException error) {
            // it is gone already
        }
        TAKEN.remove(connection);
    }

    private Job<?> next() {
        lock.lock();
        try {
            while (jobs.isEmpty() && !isClosing)
                hasWork.awaitUninterruptibly();
            return isGivenUp ? null : jobs.poll();
        } finally {
            lock.unlock();
        }
    }

    private <T> void perform(Job<T> job) {
        T answer = null;
        Throwable error = null;
        try {
            if (!isOpen)
                open();
            lock.lock();
            try {
                job.wasAsked = true;
                job.sent = Clock.now();
            } finally {
                lock.unlock();
            }
            answer = job.work.by(this);
        } catch (SQLException thrown) {
            error = Lease.told(thrown);
        } catch (Throwable thrown) {
            error = thrown;
        }
        boolean isBroken = error != null && !(isOpen && Lease.isAnswer(error) && !isClosed());
        lock.lock();
        try {
            isClosing |= isBroken;
            idleSince = Clock.now();
            job.answer = answer;
            job.error = error;
            job.isDone = true;
            job.waiter.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private boolean isClosed() {
        try {
            return connection.isClosed();
        } catch (SQLException | RuntimeException error) {
            return true;
        }
    }

    private void open() throws SQLException {
        Connection opened;
        try {
            opened = client.connector.connect();
        } catch (SQLException error) {
            LeaseException told = Lease.told(error);
            // passwords and directories are sometimes wrong for a while
            throw told instanceof Misuse && client.wasLoggedIn ? new Unavailable(told.getMessage(), error) : told;
        }
        if (opened == null)
            throw new Misuse("there is no connection", null);
        // an acquire that waits would keep the heartbeat waiting
        if (TAKEN.putIfAbsent(opened, this) != null)
            throw new Misuse("the connector must make a new connection each time", null);
        lock.lock();
        try {
            connection = opened;
            if (isGivenUp)
                throw new Unavailable("given up", null);
        } finally {
            lock.unlock();
        }
        connection.setAutoCommit(true);
        isPostgres = isPostgres(connection);
        isOpen = true;
        client.wasLoggedIn = true;
    }

    private static boolean isPostgres(Connection connection) throws SQLException {
        String product = connection.getMetaData().getDatabaseProductName();
        if (!List.of("PostgreSQL", "MariaDB", "MySQL").contains(product))
            throw new Misuse("there is no dlock for " + product, null);
        return product.equals("PostgreSQL");
    }

    // --------------------------------------------------------------------------------- what is asked

    /** Acquire once; answers the tokens, or null if it is not free. */
    long[] acquire(Client.Hold hold, double wait) throws SQLException {
        String tokens;
        if (hold.isList)
            tokens = call("dlock_acquire_all", isPostgres ? "@::text" : "@",
                hold.names, client.owner(), hold.ttl, wait, hold.request);
        else if (hold.permits != 0)
            tokens = call("dlock_acquire_permit", "@", hold.names[0], client.owner(), hold.ttl, hold.permits, wait, hold.request);
        else
            tokens = call(hold.isShared ? "dlock_acquire_shared" : "dlock_acquire", "@",
                hold.names[0], client.owner(), hold.ttl, wait, hold.request);
        return tokens == null ? null : Arrays.stream(tokens.replaceAll("[\\[\\]{} ]", "").split(",")).mapToLong(Long::parseLong).toArray();
    }

    /** Renew all of these; answers the names for which it was done. */
    Set<String> renew(String[] names, long[] tokens, double ttl) throws SQLException {
        return byCall(() -> many("dlock_renew_many", names, client.owner(), ttl, tokens), () -> {
            // behind the names that were renewed are their places in what was asked
            String places = ask("CALL dlock_renew_many(" + marks(true, names, client.owner(), ttl, tokens) + ")", 2,
                names, client.owner(), ttl, tokens);
            Set<String> renewed = new HashSet<>();
            for (String place : places.replaceAll("[{}]", "").split(","))
                if (!place.isEmpty())
                    renewed.add(names[Integer.parseInt(place) - 1]);
            return renewed;
        });
    }

    /** Give back one hold of each, or without tokens, any one; answers the names for which it was done. */
    Set<String> release(String[] names, long... tokens) throws SQLException {
        return tokens == null ? many("dlock_release_many", names, client.owner()) : many("dlock_release_many", names, client.owner(), tokens);
    }

    /** Give all holds of each back, with effect so many seconds later; a MySQL or MariaDB without that renews for that time. */
    Set<String> leave(String[] names, long[] tokens, double after) throws SQLException {
        if (!isPostgres)
            return leaveInMySQL(names, tokens, after);
        return byCall(() -> found("name FROM ROWS FROM (unnest(" + marks(true, (Object) names) + "), unnest(" + marks(true, tokens)
            + ")) AS lease(name, token) WHERE dlock_release_after(name, " + marks(true, client.owner(), after) + ", token)",
            names, tokens, client.owner(), after), () -> {
                Set<String> left = new HashSet<>();
                for (int i = 0; i < names.length; i++) {
                    Object[] arguments = {names[i], client.owner(), after, tokens[i]};
                    if ("t".equals(ask("CALL dlock_release_after(" + marks(true, arguments) + ")", 1, arguments)))
                        left.add(names[i]);
                }
                return left;
            });
    }

    private Set<String> leaveInMySQL(String[] names, long[] tokens, double after) throws SQLException {
        try {
            if (!client.cannotLeave)
                return names("COALESCE(CONVERT(JSON_ARRAYAGG(l.name) USING utf8mb4), '[]')",
                    " FROM JSON_TABLE(CONVERT(" + marks(false, (Object) names) + " USING utf8mb4), '$[*]' COLUMNS"
                    + " (place FOR ORDINALITY, name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS l"
                    + " WHERE dlock_release_after(l.name, " + marks(false, client.owner(), after) + ", JSON_EXTRACT(CONVERT("
                    + marks(false, (Object) tokens) + " USING utf8mb4), CONCAT('$[', l.place - 1, ']'))) = 1",
                    names, client.owner(), after, tokens);
        } catch (SQLException error) {
            if (!NO_FUNCTION.contains(error.getErrorCode()))
                throw error;
            client.cannotLeave = true;
        }
        return renew(names, tokens, after);
    }

    private Set<String> many(String function, Object... arguments) throws SQLException {
        return found(function + "(" + marks(isPostgres, arguments) + ")", arguments);
    }

    private Set<String> found(String what, Object... arguments) throws SQLException {
        return names(what, "", arguments);
    }

    private Set<String> names(String what, String from, Object... arguments) throws SQLException {
        // in digits, since the session may have another encoding for answers
        String names = ask("SELECT " + (isPostgres ? "encode(convert_to(array_to_json(ARRAY(SELECT " + what + "))::text, 'UTF8'), 'hex')"
            : "HEX(" + what + ")") + from, 1, arguments);
        // a server may have no room for an answer, which says nothing about the leases
        if (names == null)
            throw new Unavailable("there is no answer", null);
        return new HashSet<>(Text.strings(Text.unhex(names)));
    }

    /** Find out whether the connection still works. */
    Void probe() throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT 1"); ResultSet rows = statement.executeQuery()) {
            rows.next();
        }
        return null;
    }

    /** Guard a name in the open transaction of a connection of the program's. */
    static void guard(Connection connection, String name, String owner, long token) throws SQLException {
        boolean isPostgres = isPostgres(connection);
        String sql = (isPostgres ? "SELECT dlock_guard(" : "CALL dlock.guard(") + marks(isPostgres, name, owner, token) + ")";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            bind(isPostgres, statement, name, owner, token);
            statement.execute();
        }
    }

    /**
     * Acquire; "whole" is what the statement makes of the call, "@".  All answers are read as text.
     * On PostgreSQL an acquire is all that its statement does, but for a cast to text: so it waits
     * without a snapshot.  The last argument but one is the wait, which with a procedure is the
     * client's.
     */
    private String call(String function, String whole, Object... arguments) throws SQLException {
        String what = function + "(" + marks(isPostgres, arguments) + ")";
        Object[] atOnce = arguments.clone();
        atOnce[arguments.length - 2] = 0.0;
        return byCall(() -> ask("SELECT " + whole.replace("@", what), 1, arguments), () -> ask("CALL " + what, 1, atOnce));
    }

    /** What asks the server, in one of two ways. */
    @FunctionalInterface
    private interface Asking<T> {
        T ask() throws SQLException;
    }

    /**
     * Where the server has plain/dlock.sql and no library, what takes or extends a lease is a
     * procedure.  The client learns it from the server's refusal, which has begun nothing, and also
     * that it is so no more.
     */
    private <T> T byCall(Asking<T> select, Asking<T> call) throws SQLException {
        isCalled = client.calls;
        try {
            return (isCalled ? call : select).ask();
        } catch (SQLException error) {
            if (!"42809".equals(error.getSQLState()))
                throw error;
            client.calls = isCalled = !isCalled;
            return (isCalled ? call : select).ask();
        }
    }

    private String ask(String sql, int column, Object... arguments) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            bind(isPostgres, statement, arguments);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(column);
            }
        }
    }

    /** An argument as text: a list is an array of PostgreSQL's, or JSON. */
    private static String text(boolean isPostgres, Object argument) {
        if (argument instanceof String[])
            return isPostgres ? Text.array((String[]) argument) : Text.json((String[]) argument);
        if (!(argument instanceof long[]))
            return (String) argument;
        String list = Arrays.toString((long[]) argument);
        return isPostgres ? "{" + list.substring(1, list.length() - 1) + "}" : list;
    }

    /**
     * The places of the arguments in a statement.  Some drivers write values into the statement, as
     * the session is thought to quote, and in its encoding.  So text that needs quoting, or has more
     * than ASCII, goes as the digits of its UTF-8.
     */
    private static String marks(boolean isPostgres, Object... arguments) {
        List<String> marks = new ArrayList<>();
        for (Object argument : arguments) {
            String mark = argument instanceof Number || Text.isPlain(text(isPostgres, argument)) ? "?"
                : isPostgres ? "convert_from(decode(?, 'hex'), 'UTF8')" : "CONVERT(UNHEX(?) USING utf8mb4)";
            if (isPostgres && (argument instanceof String[] || argument instanceof long[]))
                mark += argument instanceof long[] ? "::bigint[]" : "::text[]";
            marks.add(mark);
        }
        return String.join(", ", marks);
    }

    private static void bind(boolean isPostgres, PreparedStatement statement, Object... arguments) throws SQLException {
        for (int i = 0; i < arguments.length; i++) {
            Object argument = arguments[i];
            if (argument instanceof Double)
                statement.setDouble(i + 1, (Double) argument);
            else if (argument instanceof Integer)
                statement.setInt(i + 1, (Integer) argument);
            else if (argument instanceof Long)
                statement.setLong(i + 1, (Long) argument);
            else {
                String text = text(isPostgres, argument);
                statement.setString(i + 1, Text.isPlain(text) ? text : Text.hex(text));
            }
        }
    }
}
