// The agent for Java; t/clients/Agent.pm says what it does.
// Drivers: postgresql mariadb

import dlock.Client;
import dlock.Connections;
import dlock.Lease;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

class Agent {
    private static final String NUMBER = "-?[0-9.]+(e-?[0-9]+)?";
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

    // a number, or text
    private static Lease.Options times(Lease.Options options, String ttl, String wait) {
        if (ttl.matches(NUMBER))
            options.ttl(Double.parseDouble(ttl));
        else
            options.ttl(ttl);
        if (wait.matches(NUMBER))
            options.waiting(Double.parseDouble(wait));
        else
            options.waiting(wait);
        return options;
    }

    private static void sayEvent(Lease.Event kind, String name, double seconds) {
        say("event", kind, name, seconds);
    }

    private static void block(String... words) {
        boolean isHeld = false;
        try {
            boolean isList = Arrays.asList(words).contains("list=1");
            Lease.Options options = times(Lease.on(() -> connect(port), isList ? words[1].split(",") : new String[] {words[1]}), words[2], words[3])
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
                else if (word.startsWith("keep_at_least="))
                    options.keepAtLeast(Double.parseDouble(value));
                else if (word.startsWith("events="))
                    options.onEvent(Agent::sayEvent);
                else if (word.startsWith("unknown=")) {
                    // the compiler has said so
                    say("failed misuse -");
                    return;
                }
            }
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

    // ------------------------------------------------------------------------------- many leases

    private static Client client;
    private static final Map<String, Lease> MANY = new ConcurrentHashMap<>();

    private static void many(String... words) {
        List<String> options = Arrays.asList(words).subList(5, words.length);
        Function<String, Optional<String>> option = name -> options.stream().filter(word -> word.startsWith(name + "="))
            .map(word -> word.substring(name.length() + 1)).findFirst();
        try {
            if (client == null) {
                client = new Client(() -> connect(port));
                option.apply("owner").ifPresent(client::owner);
                if (option.apply("events").isPresent())
                    client.onEvent(Agent::sayEvent);
            }
            int count = Integer.parseInt(words[2]);
            ExecutorService tasks = Executors.newFixedThreadPool(10);
            List<Callable<Lease>> acquires = IntStream.rangeClosed(1, count).<Callable<Lease>>mapToObj(i -> () -> {
                String name = words[1] + i;
                Lease.Options lease = times(client.lease(name), words[3], words[4]).onLost(lost -> say("lost-one", name, Lease.now()));
                if (option.apply("shared").isPresent())
                    lease.shared();
                option.apply("connect_timeout").map(Double::valueOf).ifPresent(lease::connectTimeout);
                option.apply("keep_at_least").map(Double::valueOf).ifPresent(lease::keepAtLeast);
                Lease acquired = lease.acquire();
                MANY.put(name, acquired);
                return acquired;
            }).collect(Collectors.toList());
            List<Future<Lease>> done = tasks.invokeAll(acquires);
            tasks.shutdown();
            for (Future<Lease> one : done)
                one.get();
            say("many", count);
        } catch (ExecutionException error) {
            say("many", outcome((Exception) error.getCause()));
        } catch (Exception error) {
            say("many", outcome(error));
        }
    }

    private static void ofMany(String... words) {
        if (words[0].equals("many-held")) {
            say("many-held", MANY.values().stream().filter(Lease::isHeld).count());
        } else if (words[0].equals("many-release")) {
            say("many-release", MANY.remove(words[1]).release() ? 1 : 0);
        } else {
            client.close();
            client = null;
            MANY.clear();
            say("many-close");
        }
    }

    private static void inThread(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws IOException {
        driver = arguments[0];
        port = arguments[1];
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
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
                case "many":
                    inThread(() -> many(words));
                    break;
                case "many-held":
                case "many-release":
                case "many-close":
                    inThread(() -> ofMany(words));
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
