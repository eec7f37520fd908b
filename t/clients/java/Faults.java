package dlock;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/** A connector whose connections go wrong as a test says, and which tells what was asked. */
final class Faults implements Lease.Connector {
    /** What a statement asks: its function, and what is bound. */
    static final class Asked {
        final String function;
        final List<Object> bound;

        private Asked(String sql, List<Object> bound) {
            function = sql.replaceAll("(?s).*?\\b(dlock[._][a-z_]+).*", "$1");
            this.bound = bound;
        }

        boolean isFor(String function) {
            return this.function.equals(function);
        }

        /** Whether a name is among the names of a call for many. */
        boolean has(String name) {
            return names().contains(name);
        }

        List<String> names() {
            return Text.strings(Text.unhex((String) bound.get(0)));
        }
    }

    interface Fault {
        void of(Asked asked) throws Exception;
    }

    private final Lease.Connector connector;
    /** Before a statement is sent, and after it was answered: it may throw, or wait for "ended" of its connection. */
    volatile Fault before = asked -> { };
    volatile Fault after = asked -> { };
    /** For the thread that asks: its connection was aborted. */
    private final ThreadLocal<CountDownLatch> aborted = new ThreadLocal<>();
    final List<Asked> asked = new CopyOnWriteArrayList<>();
    final AtomicInteger made = new AtomicInteger();
    final Set<Connection> open = ConcurrentHashMap.newKeySet();

    Faults(Lease.Connector connector) {
        this.connector = connector;
    }

    /** As a network that takes everything and answers nothing. */
    void silence() throws Exception {
        aborted.get().await();
        throw new SQLException("it was aborted", "08006");
    }

    @Override
    public Connection connect() throws SQLException {
        Connection connection = connector.connect();
        made.incrementAndGet();
        open.add(connection);
        CountDownLatch isAborted = new CountDownLatch(1);
        return proxy(Connection.class, connection, (name, arguments, real) -> {
            if (name.equals("abort"))
                isAborted.countDown();
            if (name.equals("abort") || name.equals("close"))
                open.remove(connection);
            Object answer = real.call();
            if (!name.equals("prepareStatement"))
                return answer;
            List<Object> bound = new ArrayList<>();
            String sql = (String) arguments[0];
            return proxy(PreparedStatement.class, (PreparedStatement) answer, (method, values, ask) -> {
                if (method.startsWith("set"))
                    bound.add(values[1]);
                if (!method.startsWith("execute"))
                    return ask.call();
                Asked what = new Asked(sql, bound);
                asked.add(what);
                aborted.set(isAborted);
                before.of(what);
                Object rows = ask.call();
                after.of(what);
                return rows;
            });
        });
    }

    private interface Real {
        Object call() throws Exception;
    }

    private interface Handler {
        Object handle(String name, Object[] arguments, Real real) throws Exception;
    }

    private static <T> T proxy(Class<T> type, T of, Handler handler) {
        return type.cast(Proxy.newProxyInstance(Faults.class.getClassLoader(), new Class<?>[] {type},
            (proxy, method, arguments) -> handler.handle(method.getName(), arguments, () -> {
                try {
                    return method.invoke(of, arguments);
                } catch (InvocationTargetException error) {
                    throw (Exception) error.getCause();
                }
            })));
    }
}
