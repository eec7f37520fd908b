package dlock;

import static dlock.More.errorOf;
import static dlock.More.is;
import static dlock.More.ok;
import static dlock.More.until;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/** A client with many leases, when something goes wrong. */
final class Attacks {
    private final String driver;
    private final Faults faults;
    private final Map<String, AtomicInteger> events = new ConcurrentHashMap<>();
    private Client client;

    private Attacks(String driver) {
        this.driver = driver;
        faults = new Faults(() -> Connections.plain(driver, More.PORT));
        client = new Client(faults).onEvent((kind, name, seconds) -> of(kind, name).incrementAndGet());
    }

    private AtomicInteger of(Lease.Event kind, String name) {
        return events.computeIfAbsent(kind + " " + name, key -> new AtomicInteger());
    }

    private List<Lease> leases(String prefix, int count, double ttl) throws InterruptedException {
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < count; i++)
            leases.add(client.lease(prefix + i).ttl(ttl).connectTimeout(More.PATIENCE).acquire());
        return leases;
    }

    private static long held(List<Lease> leases) {
        return leases.stream().filter(Lease::isHeld).count();
    }

    /** Wait until each of them was renewed so many times, or is lost. */
    private void untilRenewed(String prefix, int count, int times) {
        int[] wanted = new int[count];
        for (int i = 0; i < count; i++)
            wanted[i] = of(Lease.Event.RENEWED, prefix + i).get() + times;
        until(() -> {
            for (int i = 0; i < count; i++)
                if (of(Lease.Event.RENEWED, prefix + i).get() < wanted[i] && of(Lease.Event.LOST, prefix + i).get() == 0)
                    return false;
            return true;
        });
    }

    private interface Case {
        void of(Attacks attacks) throws Exception;
    }

    private static void attack(String driver, Case attack) throws Exception {
        Attacks attacks = new Attacks(driver);
        attack.of(attacks);
        attacks.faults.before = asked -> { };
        attacks.faults.after = asked -> { };
        attacks.client.close();
        ok(until(() -> attacks.faults.open.isEmpty()), "  no connection is left");
    }

    static void all(String driver) throws Exception {
        attack(driver, Attacks::aNameTwice);
        attack(driver, Attacks::twoTtls);
        for (String state : new String[] {"XX000", "08006"})
            attack(driver, attacks -> attacks.poison(state));
        attack(driver, Attacks::manyPoisons);
        attack(driver, Attacks::oneConnection);
        attack(driver, Attacks::readOnly);
        attack(driver, Attacks::silence);
        attack(driver, Attacks::lostReply);
        attack(driver, Attacks::lostReplyNamedOwner);
        attack(driver, Attacks::race);
        attack(driver, Attacks::kept);
        attack(driver, Attacks::callbacks);
        attack(driver, Attacks::eviction);
        attack(driver, Attacks::closing);
    }

    private void aNameTwice() throws Exception {
        Lease first = client.lease("twice").ttl(60).acquire();
        int asked = faults.asked.size();
        is(errorOf(() -> client.lease("twice").acquire()), Lease.Misuse.class, "a name twice is misuse");
        is(errorOf(() -> client.lease("twice").shared().waiting(-1).acquire()), Lease.Misuse.class, "in any mode");
        is(errorOf(() -> client.lease("once", "twice").acquire()), Lease.Misuse.class, "in a list");
        is(faults.asked.size(), asked, "no server was asked");
        is(errorOf(() -> client.lease("x").owner("me")), Lease.Misuse.class, "an owner of one lease");
        is(errorOf(() -> client.owner("me")), Lease.Misuse.class, "an owner too late");
        ok(client.lease("once").acquire().release(), "the other name of the list is free");
        ok(first.release(), "released");
        is(errorOf(() -> client.lease("twice").acquire()), null, "and free again");
        ok(faults.made.get() <= 2, "by two connections");
    }

    private void twoTtls() throws Exception {
        List<Lease> slow = leases("slow", 20, 6);
        List<Lease> fast = leases("fast", 20, 3);
        untilRenewed("slow", 20, 2);
        untilRenewed("fast", 20, 2);
        is(held(slow) + held(fast), 40L, "two ttls: all are held");
        boolean isMixed = false;
        int renewals = 0;
        for (Faults.Asked asked : faults.asked)
            if (asked.isFor("dlock_renew_many")) {
                renewals++;
                for (String name : asked.names())
                    isMixed |= name.startsWith("slow") != asked.bound.get(2).equals(6.0);
            }
        ok(!isMixed, "each goes with its ttl");
        ok(renewals > 0 && renewals < of(Lease.Event.RENEWED, "slow0").get() * 20, "and with others of it");
        ok(faults.made.get() <= 2, "by two connections");
    }

    /** One lease that cannot be renewed takes no other with it. */
    private void poison(String state) throws Exception {
        String what = "a lease whose renewal ends in " + state;
        List<Lease> leases = leases("p", 20, 3);
        faults.before = asked -> {
            if (asked.isFor("dlock_renew_many") && asked.has("p7"))
                throw new SQLException("poison", state);
        };
        ok(until(() -> leases.get(7).isLost()), what + " is lost");
        untilRenewed("p", 20, 1);
        is(held(leases), 19L, what + " is lost alone");
        try {
            leases.get(7).check();
            ok(false, "it is told why");
        } catch (Lease.Lost error) {
            is(error.sqlState, state, "it is told why");
        }
        faults.before = asked -> { };
        leases.get(7).release();
        is(errorOf(() -> client.lease("p7").acquire()), null, "its name is free once it is given back");
    }

    /** Those that fail alone come after the others that are due, however many they are. */
    private void manyPoisons() throws Exception {
        List<Lease> bad = leases("bad", 10, 15);
        List<Lease> good = leases("good", 10, 5);
        faults.before = asked -> {
            if (asked.isFor("dlock_renew_many") && asked.names().stream().anyMatch(name -> name.startsWith("bad")))
                throw new SQLException("poison", "XX000");
        };
        ok(until(() -> bad.stream().allMatch(Lease::isLost)), "ten leases that cannot be renewed are lost");
        untilRenewed("good", 10, 1);
        is(held(good), 10L, "and take no other with them");
    }

    /** A connector that makes no more than one. */
    private void oneConnection() throws Exception {
        Connection one = Connections.plain(driver, More.PORT);
        try (Client client = new Client(() -> one)) {
            Lease lease = client.lease("one").ttl(60).connectTimeout(More.PATIENCE).acquire();
            is(errorOf(() -> client.lease("more").waiting(-1).acquire()), Lease.Misuse.class, "the same connection twice is misuse");
            ok(lease.isHeld() && lease.release(), "and does not end the lease that has it");
        }
        ok(until(() -> isClosed(one)), "it is closed with the client");
    }

    private static boolean isClosed(Connection connection) {
        try {
            return connection.isClosed();
        } catch (SQLException error) {
            return false;
        }
    }

    /** A server that refuses all until another one, by a new connection, is the primary. */
    private void readOnly() throws Exception {
        List<Lease> leases = leases("r", 50, 10);
        AtomicInteger refused = new AtomicInteger();
        int old = faults.made.get();
        faults.before = asked -> {
            if (faults.made.get() == old) {
                refused.incrementAndGet();
                throw new SQLException("cannot execute in a read-only transaction", "25006");
            }
        };
        untilRenewed("r", 50, 1);
        is(held(leases), 50L, "read-only until there is a new connection: all are held");
        ok(refused.get() > 0 && refused.get() < 50, "after a few attempts");
    }

    private void silence() throws Exception {
        List<Lease> leases = leases("s", 20, 4);
        AtomicBoolean isSilent = new AtomicBoolean(true);
        AtomicInteger silent = new AtomicInteger();
        faults.after = asked -> {
            if (asked.isFor("dlock_renew_many") && isSilent.get()) {
                isSilent.set(false);
                silent.incrementAndGet();
                faults.silence();
            }
        };
        for (int i = 0; i < 3; i++) {
            isSilent.set(true);
            int before = silent.get();
            until(() -> silent.get() > before);
            untilRenewed("s", 20, 1);
        }
        is(held(leases), 20L, "a connection that falls silent three times: all are held");
        // in the middle of a release
        faults.before = asked -> {
            if (asked.isFor("dlock_release_many") && silent.getAndIncrement() < 5)
                faults.silence();
        };
        silent.set(4);
        ok(leases.get(0).release(), "and silent in a release: it is given back by another");
        is(held(leases), 19L, "the others are held");
    }

    private void lostReply() throws Exception {
        Lease lease = client.lease("reply").ttl(60).acquire();
        AtomicInteger releases = new AtomicInteger();
        faults.after = asked -> {
            if (asked.isFor("dlock_release_many") && releases.getAndIncrement() == 0)
                throw new SQLException("cut", "08006");
        };
        ok(!lease.release(), "a lost reply to a release, which is repeated: it was given back before");
        is(releases.get(), 2, "it was repeated once");
        is(errorOf(() -> client.lease("reply").acquire().release()), null, "and the name is free");

        AtomicInteger acquires = new AtomicInteger();
        faults.after = asked -> {
            if (asked.isFor("dlock_acquire") && acquires.getAndIncrement() == 0)
                throw new SQLException("cut", "08006");
        };
        Lease again = client.lease("reply2").ttl(60).acquire();
        is(acquires.get(), 2, "a lost reply to an acquire, which is repeated");
        ok(again.release(), "it has one hold");
        try (Connection control = Connections.plain(driver, More.PORT)) {
            is(More.ownerOf(control, "reply2"), null, "and only that");
        }
    }

    private void lostReplyNamedOwner() throws Exception {
        client.owner("named");
        Lease lease = client.lease("reply3").ttl(3).acquire();
        AtomicInteger releases = new AtomicInteger();
        faults.before = asked -> {
            if (asked.isFor("dlock_release_many")) {
                releases.incrementAndGet();
                throw new SQLException("cut", "08006");
            }
        };
        ok(!lease.release(), "of an owner that the program named: not confirmed");
        is(releases.get(), 1, "nor repeated");
        int asked = faults.asked.size();
        is(errorOf(() -> client.lease("reply3").acquire()), Lease.Busy.class, "the name is busy");
        is(faults.asked.size(), asked, "without a question");
        is(errorOf(() -> client.lease("reply3").waiting(More.PATIENCE).acquire()), null, "for one ttl more, as a wait shows");
    }

    /** A release while a renewal is under way. */
    private void race() throws Exception {
        List<Lease> leases = leases("x", 10, 4);
        for (int i = 0; i < 5; i++) {
            CountDownLatch isAsked = new CountDownLatch(1);
            CountDownLatch goOn = new CountDownLatch(1);
            faults.after = asked -> {
                if (asked.isFor("dlock_renew_many")) {
                    isAsked.countDown();
                    goOn.await();
                }
            };
            isAsked.await();
            Lease lease = leases.remove(0);
            AtomicReference<Boolean> answer = new AtomicReference<>();
            Thread releasing = new Thread(() -> answer.set(lease.release()));
            releasing.start();
            until(() -> !lease.isHeld());
            goOn.countDown();
            releasing.join();
            is(answer.get(), true, "a release while a renewal is under way: confirmed");
        }
        faults.after = asked -> { };
        is(held(leases), 5L, "the others are held");
        is(events.keySet().stream().filter(key -> key.startsWith("lost ")).collect(Collectors.toList()), List.of(), "none was lost");
    }

    /** The connection that is kept for acquires may be gone. */
    private void kept() throws Exception {
        leases("k", 3, 60);
        is(faults.made.get(), 2, "a connection for the heartbeat, and one for acquires");
        AtomicInteger cut = new AtomicInteger();
        faults.before = asked -> {
            if (asked.isFor("dlock_acquire") && cut.getAndIncrement() == 0)
                throw new SQLException("closed long ago", "08006");
        };
        leases("kk", 1, 60);
        is(cut.get(), 2, "that one was closed: another, at once");
        is(faults.made.get(), 3, "just one");
        is(errorOf(() -> client.lease("k0", "k9").acquire()), Lease.Misuse.class, "a list with a name of the client's");
    }

    /** Functions of the program that block, and that throw. */
    private void callbacks() throws Exception {
        CountDownLatch goOn = new CountDownLatch(1);
        AtomicInteger told = new AtomicInteger();
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            int number = i;
            leases.add(client.lease("c" + i).ttl(6).onEvent((kind, name, seconds) -> {
                if (number == 0)
                    throw new IllegalStateException("a listener that throws, as it should");
            }).onLost(lease -> {
                ok(lease == leases.get(number) && lease.isLost(), "callbacks: a lease is told that it is lost");
                told.incrementAndGet();
                if (number == 1)
                    throw new IllegalStateException("a listener that throws, as it should");
                try {
                    goOn.await();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }).acquire());
        }
        evict("c0", "c1", "c2", "c3");
        ok(until(() -> told.get() == 4), "callbacks that block delay no other");
        untilRenewed("c", 6, 1);
        is(held(leases), 2L, "nor a renewal");
        goOn.countDown();
        is(told.get(), 4, "each is told once");
    }

    /** As an operator does, but without his rights: by the account that has them. */
    private void evict(String... names) throws SQLException {
        try (Connection control = Connections.plain(driver, More.PORT);
            PreparedStatement statement = control.prepareStatement("SELECT dlock_release(?, ?)")) {
            for (String name : names) {
                statement.setString(1, name);
                statement.setString(2, client.owner());
                statement.executeQuery().close();
            }
        }
    }

    /** In the middle of a batch. */
    private void eviction() throws Exception {
        List<Lease> leases = leases("e", 30, 4);
        List<Lease> list = List.of(client.lease("l1", "l2", "l3").ttl(4).acquire());
        evict("e3", "e17", "l2");
        ok(until(() -> leases.get(3).isLost() && leases.get(17).isLost() && list.get(0).isLost()), "evicted: lost, and a list with one of its names");
        untilRenewed("e", 30, 1);
        is(held(leases), 28L, "the others are held");
        is(errorOf(() -> client.lease("e3").acquire()), Lease.Misuse.class, "a lost lease has its name");
        ok(!leases.get(3).release(), "until it is given back, which is not confirmed");
        is(errorOf(() -> leases.set(3, client.lease("e3").acquire())), null, "then the name is free");
        is(of(Lease.Event.RELEASED, "e3").get(), 0, "a lost lease is not told as released");
        untilRenewed("e", 30, 1);
        is(held(leases), 29L, "the new one is held too");
    }

    private static boolean isFree(Connection control, String name) {
        try {
            return More.ownerOf(control, name) == null;
        } catch (SQLException error) {
            throw new IllegalStateException(error);
        }
    }

    private void closing() throws Exception {
        leases("z", 5, 60);
        try (Client other = new Client(faults)) {
            Lease theirs = other.lease("taken").ttl(60).acquire();
            AtomicReference<Class<?>> error = new AtomicReference<>();
            Thread waiting = new Thread(() -> error.set(errorOf(() -> client.lease("taken").waiting(-1).acquire())));
            waiting.start();
            until(() -> faults.asked.stream().filter(asked -> asked.isFor("dlock_acquire") && asked.bound.get(0).equals("taken")).count() == 2);
            client.close();
            waiting.join();
            is(error.get(), Lease.Misuse.class, "an acquire under way when the client is closed");
            ok(theirs.release(), "of what somebody else has");
        }
        is(errorOf(() -> client.lease("z9").acquire()), Lease.Misuse.class, "and one after that");
        try (Connection control = Connections.plain(driver, More.PORT)) {
            // a server that has not noticed yet that nobody waits has granted it, and takes it back
            ok(until(() -> isFree(control, "taken")), "nothing is left of it");
            for (int i = 0; i < 5; i++)
                is(More.ownerOf(control, "z" + i), null, "nor of the others");
        }
        is(of(Lease.Event.RELEASED, "z0").get() + of(Lease.Event.REFUSED, "taken").get(), 2, "events tell so");
    }
}
