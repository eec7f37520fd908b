// The agent for Java; t/clients/Agent.pm says what it does.
// Drivers: postgresql mariadb

import dlock.Connections;
import dlock.Lease;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;

class Agent {
    private static String driver;
    private static String port;
    private static final BlockingQueue<String> ORDERS = new LinkedBlockingQueue<>();

    private static final class Raised extends Exception {
        private static final long serialVersionUID = 1;
    }

    private static Connection connect(String port) throws SQLException {
        return System.getenv("DLOCK_ODD") != null ? Connections.odd(driver, port) : Connections.plain(driver, port);
    }

    private static synchronized void say(Object... words) {
        System.out.println(Arrays.stream(words).map(String::valueOf).collect(Collectors.joining(" ")));
        System.out.flush();
    }

    private static String outcome(Exception error) {
        if (!(error instanceof Lease.LeaseException))
            return error.toString();
        Lease.LeaseException ours = (Lease.LeaseException) error;
        boolean hasState = ours.sqlState != null && !ours.sqlState.equals("HY000");
        return ours.getClass().getSimpleName().toLowerCase(Locale.ROOT) + " "
            + (hasState ? ours.sqlState : ours.number != 0 ? String.valueOf(ours.number) : "-");
    }

    private static void check(Lease lease) {
        try {
            lease.check();
            if (lease.isHeld() && !lease.isLost() && lease.remaining() > 0)
                say("check ok");
        } catch (Lease.LeaseException error) {
            if (!lease.isHeld() && lease.remaining() == 0)
                say("check", outcome(error));
        }
    }

    private static void guard(Lease lease, String order) throws SQLException {
        try (Connection connection = connect(System.getenv("DLOCK_PORT"))) {
            connection.setAutoCommit(order.equals("guard-outside"));
            try {
                lease.guard(connection);
                connection.commit();
                say(order, "ok");
            } catch (Lease.LeaseException error) {
                if (!connection.getAutoCommit())
                    connection.rollback();
                say(order, outcome(error));
            }
        }
    }

    private static void block(String... words) {
        boolean isList = Arrays.asList(words).contains("list=1");
        Lease.Options options = Lease.on(() -> connect(port), isList ? words[1].split(",") : new String[] {words[1]})
            .ttl(Double.parseDouble(words[2])).waiting(Double.parseDouble(words[3]))
            .onLost(lease -> say("lost", Lease.now()));
        for (String word : Arrays.asList(words).subList(4, words.length)) {
            String value = word.substring(word.indexOf('=') + 1);
            if (word.startsWith("shared="))
                options.shared();
            else if (word.startsWith("permits="))
                options.permits(Integer.parseInt(value));
            else if (word.startsWith("owner="))
                options.owner(value);
            else if (word.startsWith("connect_timeout="))
                options.connectTimeout(Double.parseDouble(value));
        }
        boolean isHeld = false;
        try {
            try (Lease lease = options.acquire()) {
                isHeld = true;
                say("held", Arrays.toString(lease.tokens()).replaceAll("[\\[\\] ]", ""), Lease.now());
                for (String order; !(order = ORDERS.take()).equals("end");) {
                    if (order.equals("check"))
                        check(lease);
                    else if (order.startsWith("guard"))
                        guard(lease, order);
                    else if (order.equals("raise"))
                        throw new Raised();
                }
            }
            say("ended");
        } catch (Raised error) {
            say("raised");
        } catch (InterruptedException error) {
            say("failed canceled -");
        } catch (Exception error) {
            say(isHeld ? "ended" : "failed", outcome(error));
        }
    }

    public static void main(String[] arguments) throws IOException {
        driver = arguments[0];
        port = arguments[1];
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Thread thread = null;
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "lease":
                    thread = new Thread(() -> block(words));
                    thread.setDaemon(true);
                    thread.start();
                    break;
                case "cancel":
                    thread.interrupt();
                    break;
                case "exit":
                    System.exit(0);
                    break;
                default:
                    ORDERS.add(words[0]);
            }
        }
    }
}
