package dlock;

import dlock.Lease.Busy;
import dlock.Lease.Connector;
import dlock.Lease.Event;
import dlock.Lease.LeaseException;
import dlock.Lease.Misuse;
import dlock.Lease.Unavailable;
import java.io.IOException;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Many leases by one connection.
 *
 * <pre>{@code
 * try (Client client = new Client(() -> DriverManager.getConnection(url))) {
 *     Lease one = client.lease("job/1").ttl(30).acquire();
 *     Lease two = client.lease("job/2").ttl(30).acquire();
 *     ...
 * }                                           // releases what is left
 * }</pre>
 *
 * <p>All leases of a client have one owner.  So it refuses a second lease of a name, as Misuse.
 *
 * <p>How it is made.  The keeper, one thread, only waits and looks at the clock: it says what the
 * heartbeat's link is to ask next, and which leases are lost.  An acquire runs in the thread of its
 * caller, by a link of its own.  One lock guards all that they share, and is never held while a
 * driver or a function of the program runs; it is no monitor, so that virtual threads that wait
 * for it give their carrier free.  A lease that is made without a client is the only one of a
 * client of its own, which ends with it.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
public final class Client implements AutoCloseable {
    private static final int MOST_NAMES = 1000;         // of a call
    private static final double RELEASE_LIMIT = 5;      // seconds for which a release is tried at most
    private static final double FIRST_PAUSE = 0.05;
    private static final double LONGEST_PAUSE = 1;
    private static final double FIRST_TRY_AGAIN = 0.02; // where the server does not wait: half as much more each time
    private static final double PROBED_AFTER = 1;       // seconds that a connection was idle
    private static final int MOST_EVENTS = 10_000;      // that a program may be behind
    private static final double NEVER = Double.POSITIVE_INFINITY;

    // -------------------------------------------------------------------------------------- threads

    static Thread thread(Runnable work, String name) {
        Thread thread = new Thread(null, work, name, 0, false);
        thread.setDaemon(true);
        return thread;
    }

    // what may block: a function of the program, a driver that is told to give up
    private static final Executor BACKGROUND = Executors.newCachedThreadPool(work -> thread(work, "dlock"));

    static void inBackground(Runnable work) {
        BACKGROUND.execute(work);
    }

    // those with a keeper, whose leases are released at the end of the process
    private static final Set<Client> OPEN = ConcurrentHashMap.newKeySet();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            List<Hold> released = new ArrayList<>();
            // first all are begun: they share the time that there is
            for (Client client : OPEN)
                released.addAll(client.beginReleases());
            for (Hold hold : released)
                hold.client.await(hold);
        }));
    }

    // ---------------------------------------------------------------------------------------- leases

    enum State { WAITING, HELD, LOST, RELEASED }

    /** The lease itself, of which the program has the Lease: the keeper goes on without that. */
    static final class Hold {
        final Client client;
        final String[] names;
        final boolean isList;
        final boolean isShared;
        final int permits;
        final double ttl;
        final double wait;
        final double connectTimeout;
        final double keepAtLeast;
        final String request = random();
        private final Consumer<Lease> onLost;
        private final Lease.EventListener onEvent;
        private final double began = Clock.now();
        private final double margin;
        /** Its state has changed, or what it waits for is done. */
        private final Condition changed;
        // the lock guards what follows
        State state = State.WAITING;
        Throwable cause;                            // of the loss
        long[] tokens;                              // set once, when it is granted
        double deadline;
        private Handle handle;
        private double acquired;
        private double keepUntil;
        private double due = NEVER;                 // when the heartbeat is to do something about it
        private int most = MOST_NAMES;              // leases of the next call that it is in
        private boolean isAlone;                    // a call for it alone has failed
        private double busyUntil = NEVER;           // when its names are free again
        private double leftFor;                     // how long it was asked to last on, in place of a release
        // of the release
        private boolean wasHeld;
        private double releaseUntil = NEVER;
        private boolean isOver;
        private boolean isConfirmed;

        Hold(Client client, Lease.Options options) {
            this.client = client;
            names = options.names;
            isList = names.length > 1;
            isShared = options.isShared;
            permits = options.permits;
            if ((isList ? 1 : 0) + (isShared ? 1 : 0) + (permits != 0 ? 1 : 0) > 1)
                throw new Misuse("several names, shared and permits exclude each other", null);
            ttl = options.ttl;
            wait = options.wait;
            connectTimeout = options.connectTimeout;
            keepAtLeast = options.keepAtLeast;
            onLost = options.onLost;
            onEvent = options.onEvent;
            margin = Math.min(ttl / 10, 1);
            changed = client.lock.newCondition();
        }

        String shown() {
            return String.join(", ", names);
        }

        /** The object that the program has, or if it has dropped that, another. */
        private Lease lease() {
            Lease lease = handle.get();
            return lease != null ? lease : new Lease(this);
        }
    }

    /** Tells when the program has dropped a lease. */
    private static final class Handle extends WeakReference<Lease> {
        private final Hold hold;

        Handle(Lease lease, Hold hold) {
            super(lease, hold.client.dropped);
            this.hold = hold;
        }
    }

    final ReentrantLock lock = new ReentrantLock();
    final Connector connector;
    /** Whether any connection was made. */
    volatile boolean wasLoggedIn;
    /** Whether dlock was there, as one of its functions has shown. */
    volatile boolean wasThere;
    /** The server has procedures, and no library. */
    volatile boolean calls;

    /** The server is a MySQL or MariaDB without dlock_release_after. */
    volatile boolean cannotLeave;
    private final boolean isLone;                   // of a lease that was made without a client
    private final ReferenceQueue<Lease> dropped = new ReferenceQueue<>();
    private final Condition wake = lock.newCondition();         // of the keeper
    // the lock guards what follows
    private String owner;
    private boolean isOwnerNamed;
    private Lease.EventListener onEvent;
    private ThreadPoolExecutor events;
    private Thread keeper;
    private boolean isClosing;
    private final Map<String, Hold> names = new HashMap<>();    // who has a name, or had it and is not known to be without
    private final Set<Hold> holds = new LinkedHashSet<>();      // those that are held or lost, until they are released
    private final ArrayDeque<Hold> lost = new ArrayDeque<>();   // to be told
    private Link link;                              // the heartbeat's
    private Link spare;                             // for the next acquire
    private Call call;                              // under way by the heartbeat's link
    private double pause = FIRST_PAUSE;
    private double pausedUntil;
    private double aloneUntil;                      // of those for which a call alone has failed

    /** The connector makes a new connection each time; it is called for a second one, too. */
    public Client(Connector connector) {
        this(connector, null, false);
    }

    Client(Connector connector, String owner, boolean isLone) {
        if (connector == null)
            throw new Misuse("there must be a connector", null);
        this.connector = connector;
        this.isLone = isLone;
        isOwnerNamed = owner != null;
        this.owner = isOwnerNamed ? owner : newOwner();
    }

    /** The owner of all leases, by default one that nobody else has.  Only before the first lease. */
    public Client owner(String name) {
        Text.checked("an owner", name);
        lock.lock();
        try {
            refuseLate();
            owner = name;
            isOwnerNamed = true;
        } finally {
            lock.unlock();
        }
        return this;
    }

    /** Called for what happens to any of the leases.  Only before the first lease. */
    public Client onEvent(Lease.EventListener listener) {
        lock.lock();
        try {
            refuseLate();
            onEvent = listener;
        } finally {
            lock.unlock();
        }
        return this;
    }

    private void refuseLate() {
        if (keeper != null || isClosing)
            throw new Misuse("a client is set up before its first lease", null);
    }

    /** A lease of one name, or of several that are taken exclusively, all or none. */
    public Lease.Options lease(String... names) {
        return new Lease.Options(this, connector, names);
    }

    String owner() {
        lock.lock();
        try {
            return owner;
        } finally {
            lock.unlock();
        }
    }

    private static final SecureRandom RANDOM = new SecureRandom();

    private static String random() {
        return Long.toHexString(RANDOM.nextLong()) + Long.toHexString(RANDOM.nextLong());
    }

    // asked for once, and no name service: that may be silent
    private static final String PROCESS = host() + "/" + ProcessHandle.current().pid() + "/";

    private static String host() {
        String host = System.getenv("HOSTNAME");
        if (host == null)
            host = System.getenv("COMPUTERNAME");
        try {
            if (host == null)
                host = Files.readString(Path.of("/etc/hostname"));
        } catch (IOException | RuntimeException error) {
            host = "java";
        }
        host = host.replaceAll("[^A-Za-z0-9._-]", "");
        return host.substring(0, Math.min(host.length(), 180));
    }

    private static String newOwner() {
        return PROCESS + random();
    }

    // ---------------------------------------------------------------------------------------- events

    /** Called with the lock, so that they are in order. */
    private void emit(Hold hold, Event kind, double seconds) {
        for (Lease.EventListener listener : Arrays.asList(onEvent, hold.onEvent)) {
            if (listener == null)
                continue;
            if (events == null) {
                events = new ThreadPoolExecutor(1, 1, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(MOST_EVENTS),
                    work -> thread(work, "dlock events"), new ThreadPoolExecutor.DiscardPolicy());
                events.allowCoreThreadTimeOut(true);
            }
            for (String name : hold.names) {
                try {
                    events.execute(() -> listener.on(kind, name, seconds));
                } catch (OutOfMemoryError error) {
                    // there can be no thread now, so it is dropped
                }
            }
        }
    }

    // --------------------------------------------------------------------------------------- acquire

    Lease acquire(Hold hold) throws InterruptedException {
        Lease lease = new Lease(hold);
        hold.handle = new Handle(lease, hold);
        Link by = null;
        boolean isUnsure = false;           // whether the server has granted it
        Unavailable before = null;
        double pauseNow = FIRST_PAUSE;
        double again = FIRST_TRY_AGAIN;
        // until a server was reached; then without limit, or until the wait is over and the server has had its time
        double last = hold.began + hold.connectTimeout;
        try {
            takeNames(hold);
            while (true) {
                boolean isKept = false;
                try {
                    if (by == null) {
                        by = takeSpare();
                        isKept = by != null;
                        if (!isKept)
                            by = new Link(this);
                        Link.Work<Void> first = isKept && by.idle() > PROBED_AFTER ? Link::probe : opened -> null;
                        ask(hold, by, first, Math.min(last, Clock.now() + hold.connectTimeout / 3));
                        last = hold.wait < 0 ? NEVER : hold.began + hold.wait + hold.connectTimeout;
                    }
                    double left = hold.wait < 0 ? hold.wait : Math.max(0, hold.began + hold.wait - Clock.now());
                    boolean wasUnsure = isUnsure;
                    isUnsure = true;
                    Link.Job<long[]> granted;
                    try {
                        granted = ask(hold, by, asked -> asked.acquire(hold, left), last);
                    } catch (LeaseException error) {
                        isUnsure = wasUnsure || !Lease.isAnswer(error);
                        wasThere |= error.sqlState != null && error.sqlState.startsWith("55");
                        // somebody replaces plain/dlock.sql by the extension
                        throw wasThere && Lease.isGone(error) ? new Unavailable(error.getMessage(), error.getCause()) : error;
                    }
                    wasThere = true;
                    if (granted.answer == null) {
                        isUnsure = false;
                        double end = hold.wait < 0 ? NEVER : hold.began + hold.wait;
                        if (by.isCalled() && Clock.now() < end) {
                            pause(hold, Math.min(end, Clock.now() + again * ThreadLocalRandom.current().nextDouble(0.5, 1.5)));
                            again = Math.min(1.5 * again, LONGEST_PAUSE);
                            continue;
                        }
                        keepLink(by);
                        throw new Busy(hold.shown() + ": not free within " + hold.wait + " s", null);
                    }
                    double sent = granted.sent;
                    if (Clock.now() - sent > hold.ttl / 3) {
                        // when was it granted?
                        Link.Job<Set<String>> renewed = ask(hold, by, asked -> asked.renew(hold.names, granted.answer, hold.ttl),
                            Clock.now() + hold.ttl / 3);
                        if (!renewed.answer.containsAll(Arrays.asList(hold.names))) {
                            isUnsure = false;
                            continue;           // it is over: go on waiting
                        }
                        sent = renewed.sent;
                    }
                    if (grant(hold, by, granted.answer, sent))
                        return lease;
                    // this took too long: the same request again moves the deadline
                } catch (Unavailable error) {
                    if (by != null)
                        by.close();
                    by = null;
                    before = Lease.reason(error, before);
                    if (isKept)
                        continue;               // it may have been closed long ago: a new one, at once
                    if (Clock.now() + pauseNow >= last)
                        throw before;
                    pause(hold, Clock.now() + pauseNow);
                    pauseNow = Math.min(2 * pauseNow, LONGEST_PAUSE);
                }
            }
        } catch (Throwable error) {
            if (by != null)
                by.close();
            end(hold);
            // it may have been granted, though no answer came
            boolean isGone = !isUnsure || giveBack(hold, Clock.now() + (error instanceof Unavailable ? 1 : RELEASE_LIMIT));
            refuse(hold, isGone);
            throw error;
        }
    }

    /** Wait until the names are known to be free of this client's leases, and take them. */
    private void takeNames(Hold hold) throws InterruptedException {
        lock.lock();
        try {
            for (double until; Clock.now() < (until = busyUntil(hold));) {
                if (hold.wait >= 0 && until > hold.began + hold.wait)
                    throw new Busy(hold.shown() + ": a lease of this client's may not be over", null);
                refuseClosed();
                hold.changed.awaitNanos(Clock.nap(until));
            }
            refuseClosed();
            if (keeper == null) {
                Thread starting = thread(this::keep, "dlock lease");
                starting.start();
                keeper = starting;
                OPEN.add(this);
            }
            for (String name : hold.names)
                names.put(name, hold);
        } finally {
            lock.unlock();
        }
    }

    private double busyUntil(Hold hold) {
        double until = 0;
        for (String name : hold.names) {
            Hold other = names.get(name);
            if (other != null && other.busyUntil == NEVER)
                throw new Misuse("this client has a lease of \"" + name + "\" already", null);
            if (other != null)
                until = Math.max(until, other.busyUntil);
        }
        return until;
    }

    private void refuseClosed() {
        if (isClosing)
            throw new Misuse("the client is closed", null);
    }

    private Link takeSpare() {
        lock.lock();
        try {
            Link taken = spare;
            spare = null;
            return taken;
        } finally {
            lock.unlock();
        }
    }

    /** The link of an acquire that is over is for the next one, or of no use any more. */
    private void keepLink(Link by) {
        lock.lock();
        try {
            if (spare == null && !isLone && !isClosing)
                spare = by;
            else
                by.close();
        } finally {
            lock.unlock();
        }
    }

    /** It is held from now on, unless its deadline has come. */
    private boolean grant(Hold hold, Link by, long[] tokens, double sent) {
        lock.lock();
        try {
            refuseClosed();
            double now = Clock.now();
            if (now >= sent + hold.ttl - hold.margin)
                return false;
            hold.tokens = tokens;
            hold.deadline = sent + hold.ttl;
            hold.due = sent + hold.ttl / 3;
            hold.acquired = now;
            hold.keepUntil = now + hold.keepAtLeast;
            hold.state = State.HELD;
            holds.add(hold);
            if (link == null)
                link = by;
            else
                keepLink(by);
            emit(hold, Event.ACQUIRED, now - hold.began);
            wake.signal();
            return true;
        } finally {
            lock.unlock();
        }
    }

    /** Let nothing end what is asked now but its time. */
    private void end(Hold hold) {
        lock.lock();
        try {
            hold.state = State.RELEASED;
        } finally {
            lock.unlock();
        }
    }

    /** The acquire is over, and the lease is gone for certain or not. */
    private void refuse(Hold hold, boolean isGone) {
        lock.lock();
        try {
            leaveNames(hold, isGone);
            if (isLone)
                isClosing = true;
            wake.signal();
            emit(hold, Event.REFUSED, Clock.now() - hold.began);
        } finally {
            lock.unlock();
        }
    }

    /** A lease that is still held, or may be, keeps its names for as long as that may be. */
    private void leaveNames(Hold hold, boolean isGone) {
        hold.busyUntil = Clock.now() + Math.max(hold.leftFor, isGone ? 0 : hold.ttl);
        if (isGone && hold.leftFor == 0)
            for (String name : hold.names)
                names.remove(name, hold);
    }

    /** Give back what an acquire that was given up may have been granted; answers whether that is done. */
    private boolean giveBack(Hold hold, double until) {
        Link by = new Link(this);
        try {
            long[] tokens = null;
            // an owner that has other holds: repeating the request id finds this one's, or takes one more
            if (!isLone || isOwnerNamed) {
                tokens = ask(hold, by, asked -> asked.acquire(hold, 0), until).answer;
                if (tokens == null)
                    return true;
            }
            long[] of = tokens;
            ask(hold, by, asked -> asked.release(hold.names, of), until);
            return true;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        } catch (RuntimeException | Error error) {
            return false;           // it ends at its deadline
        } finally {
            by.close();
        }
    }

    /** Wait for a job.  If that is not done in time, or the wait is interrupted, gives the link up. */
    private <T> Link.Job<T> ask(Hold hold, Link by, Link.Work<T> work, double until) throws InterruptedException {
        Link.Job<T> job = by.begin(work, hold.changed);
        boolean isDone = false;
        lock.lock();
        try {
            while (!job.isDone) {
                if (hold.state == State.WAITING)
                    refuseClosed();
                if (Clock.now() >= until)
                    throw new Unavailable("the server did not answer in time", null);
                hold.changed.awaitNanos(Clock.nap(until));
            }
            isDone = true;
        } finally {
            lock.unlock();
            if (!isDone)
                by.giveUp();
        }
        if (job.error instanceof RuntimeException)
            throw (RuntimeException) job.error;
        if (job.error instanceof Error)
            throw (Error) job.error;
        if (job.error != null)
            throw new Unavailable(job.error.toString(), job.error);
        return job;
    }

    private void pause(Hold hold, double until) throws InterruptedException {
        lock.lock();
        try {
            while (Clock.now() < until) {
                refuseClosed();
                hold.changed.awaitNanos(Clock.nap(until));
            }
        } finally {
            lock.unlock();
        }
    }

    // ----------------------------------------------------------------------------------- the heartbeat

    /** What the heartbeat's link was asked: to renew some leases of one TTL, or to give some back. */
    private static final class Call {
        private final List<Hold> of;
        private final boolean isRelease;
        private final double began = Clock.now();
        private double lostAt = NEVER;              // the first of those that it renews
        private Link.Job<Set<String>> job;

        Call(List<Hold> of, boolean isRelease) {
            this.of = of;
            this.isRelease = isRelease;
        }
    }

    /** The keeper's thread. */
    private void keep() {
        lock.lock();
        try {
            while (!isClosing || !holds.isEmpty() || !lost.isEmpty()) {
                double next = NEVER;
                // there may be no room for a thread now: then again, after a nap
                try {
                    next = look();
                    tellLost();
                } catch (Throwable error) {
                    next = Clock.now() + FIRST_PAUSE;
                }
                try {
                    next = Math.min(next, beat());
                } catch (Throwable error) {
                    failed(error, false);
                    next = Math.min(next, pausedUntil);
                }
                try {
                    wake.awaitNanos(Clock.nap(next));
                } catch (InterruptedException error) {
                    // nobody does that
                }
            }
        } finally {
            OPEN.remove(this);
            if (link != null && call != null)
                link.giveUp();
            else if (link != null)
                link.close();
            if (spare != null)
                spare.close();
            link = null;
            spare = null;
            lock.unlock();
        }
    }

    /** Compare the clock with all that has an end; answers when the next one comes. */
    private double look() {
        double next = NEVER;
        double now = Clock.now();
        for (Hold hold : new ArrayList<>(holds)) {
            look(hold);
            if (hold.state == State.HELD)
                next = Math.min(next, hold.deadline - hold.margin);
            else if (hold.state == State.RELEASED && now >= hold.releaseUntil)
                over(hold, false, false);
            else
                next = Math.min(next, hold.releaseUntil);
        }
        names.values().removeIf(holder -> holder.busyUntil <= now);
        for (Reference<? extends Lease> reference; (reference = dropped.poll()) != null;) {
            Hold hold = ((Handle) reference).hold;
            if (hold.state != State.HELD)
                continue;
            emit(hold, Event.UNREFERENCED, now - hold.acquired);
            inBackground(() -> System.getLogger("dlock").log(System.Logger.Level.WARNING,
                "the lease \"{0}\" was dropped without being released, and is still renewed", hold.shown()));
        }
        return next;
    }

    private void tellLost() {
        for (Hold hold; (hold = lost.peek()) != null; lost.remove()) {
            Hold told = hold;
            if (hold.onLost != null)
                inBackground(() -> told.onLost.accept(told.lease()));
        }
    }

    /** End the call that is under way, if it is done or is given up, and begin the next; answers when to look again. */
    private double beat() {
        double now = Clock.now();
        if (call != null) {
            if (call.job.isDone)
                finish();
            else if (now < limit())
                return limit();
            else
                failed(new Unavailable("the server did not answer in time", null), call.job.wasAsked);
        }
        if (now < pausedUntil)
            return pausedUntil;
        Hold first = null;
        for (Hold hold : holds)
            if (first == null || isBefore(hold, first, now))
                first = hold;
        if (first == null || now < due(first))
            return first == null ? NEVER : due(first);
        if (link == null)
            link = new Link(this);
        begin(first, now);
        return limit();
    }

    private double due(Hold hold) {
        return hold.isAlone ? Math.max(hold.due, aloneUntil) : hold.due;
    }

    /** Of those that are due, the ones that fail alone come after all others: so they take none with them. */
    private boolean isBefore(Hold one, Hold other, double now) {
        if (one.isAlone != other.isAlone && due(one) <= now && due(other) <= now)
            return other.isAlone;
        return due(one) < due(other);
    }

    /** When the connection has been silent for too long. */
    private double limit() {
        double silence = NEVER;
        for (Hold hold : holds)
            if (hold.state != State.LOST) {
                silence = Math.min(silence, hold.ttl / (isLone ? 3 : 4));
                // time for two attempts
                if (hold.state == State.RELEASED)
                    silence = Math.min(silence, RELEASE_LIMIT / 2);
            }
        return Math.min(call.lostAt, call.began + silence);
    }

    /** Ask for what is due first, together with what goes in the same call. */
    private void begin(Hold first, double now) {
        boolean isRelease = first.state == State.RELEASED;
        double kept = isRelease ? kept(first, now) : 0;
        first.leftFor = kept;
        List<Hold> others = new ArrayList<>();
        if (kept == 0)
            for (Hold hold : holds)
                if (hold != first && hold.state == first.state && (isRelease ? kept(hold, now) == 0
                    : hold.ttl == first.ttl && hold.due <= now + hold.ttl / 6))
                    others.add(hold);
        others.sort(Comparator.comparingDouble(hold -> hold.deadline));
        Call next = new Call(new ArrayList<>(List.of(first)), isRelease);
        int most = first.most;
        int count = first.names.length;
        for (Hold hold : others)
            if (next.of.size() < Math.min(most, hold.most) && count + hold.names.length <= MOST_NAMES) {
                next.of.add(hold);
                hold.leftFor = kept;
                most = Math.min(most, hold.most);
                count += hold.names.length;
            }
        if (!isRelease)
            for (Hold hold : next.of)
                next.lostAt = Math.min(next.lostAt, hold.deadline - hold.margin);
        String[] all = next.of.stream().flatMap(hold -> Arrays.stream(hold.names)).toArray(String[]::new);
        long[] tokens = next.of.stream().flatMapToLong(hold -> Arrays.stream(hold.tokens)).toArray();
        next.job = link.begin(!isRelease ? by -> by.renew(all, tokens, first.ttl) : kept == 0 ? by -> by.release(all, tokens)
            : by -> by.leave(all, tokens, kept), wake);
        call = next;
    }

    /** How much later a lease that is released is to be given back; 0: at once. */
    private double kept(Hold hold, double now) {
        double left = hold.wasHeld ? hold.keepUntil - now : 0;
        // others that use an owner that the program named may believe for a ttl that they hold it
        return left <= 0 ? 0 : isOwnerNamed ? Math.max(left, hold.ttl) : left;
    }

    /** The link has done what was asked. */
    private void finish() {
        Link.Job<Set<String>> job = call.job;
        if (job.error != null) {
            failed(job.error, job.wasAsked);
            return;
        }
        Call done = call;
        call = null;
        pause = FIRST_PAUSE;
        double now = Clock.now();
        for (Hold hold : done.of) {
            boolean isDone = job.answer.containsAll(Arrays.asList(hold.names));
            hold.most = MOST_NAMES;
            hold.isAlone = false;
            look(hold);
            if (done.isRelease) {
                over(hold, true, isDone);
            } else if (hold.state == State.HELD && !isDone) {
                lose(hold, null);
            } else if (hold.state == State.HELD) {
                hold.deadline = job.sent + hold.ttl;
                hold.due = job.sent + hold.ttl / 3;
                hold.cause = null;
                emit(hold, Event.RENEWED, now - job.sent);
            }
        }
    }

    /** The call, or the attempt to make one, has failed: it is made again, in halves, until one lease is alone. */
    private void failed(Throwable error, boolean wasAsked) {
        List<Hold> of = call != null ? call.of : List.of();
        boolean isAnswer = Lease.isAnswer(error);
        boolean isHalved = wasAsked && of.size() > 1;
        boolean isAlone = wasAsked && of.size() == 1;
        boolean goesOn = isHalved && isAnswer && link != null && !link.isClosing();
        double now = Clock.now();
        if (!goesOn) {
            // by another connection: this one may lead to a server that is not the primary any more
            if (link != null && call != null && !call.job.isDone)
                link.giveUp();
            else if (link != null)
                link.close();
            link = null;
            aloneUntil = now + pause;
            // an error of one lease is nothing that others have to wait for
            if (!isAlone || !isAnswer)
                pausedUntil = aloneUntil;
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
        call = null;
        for (Hold hold : of) {
            if (isHalved)
                hold.most = (of.size() + 1) / 2;
            hold.isAlone |= isAlone;
            if (hold.state == State.HELD) {
                hold.due = now;             // behind those that wait already
                hold.cause = Lease.reason(error, hold.cause);
                emit(hold, Event.LATE, Math.max(0, hold.deadline - hold.margin - now));
            } else if (hold.state == State.RELEASED) {
                hold.due = now;
                // it may have been done, and a second one would take another hold of the owner; and a lost lease is not worth a new connection
                if (!goesOn && (!hold.wasHeld || wasAsked && !isAnswer && isOwnerNamed && hold.leftFor == 0))
                    over(hold, false, false);
            }
        }
    }

    /** Compare the clock with the deadline. */
    void look(Hold hold) {
        lock.lock();
        try {
            if (hold.state == State.HELD && Clock.now() >= hold.deadline - hold.margin)
                lose(hold, hold.cause != null ? hold.cause : new Unavailable("it was not renewed in time", null));
        } finally {
            lock.unlock();
        }
    }

    void lose(Hold hold, Throwable why) {
        lock.lock();
        try {
            if (hold.state != State.HELD)
                return;
            hold.state = State.LOST;
            hold.cause = why;
            hold.due = NEVER;
            emit(hold, Event.LOST, Clock.now() - hold.acquired);
            lost.add(hold);
            wake.signal();
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------------------------------ the release

    /** Give it back; answers whether the server has confirmed that. */
    boolean release(Hold hold) {
        return begin(hold) && await(hold);
    }

    /** Let the heartbeat give it back; false: that was begun before. */
    private boolean begin(Hold hold) {
        lock.lock();
        try {
            look(hold);
            if (hold.state == State.RELEASED)
                return false;
            double now = Clock.now();
            hold.wasHeld = hold.state == State.HELD;
            hold.state = State.RELEASED;
            hold.due = now;
            hold.most = MOST_NAMES;
            hold.isAlone = false;
            // a lost lease may still be held, but is not worth a new connection
            hold.releaseUntil = now + (hold.wasHeld ? Math.min(RELEASE_LIMIT, Math.max(0, hold.deadline - now)) : 1);
            if (!hold.wasHeld && link == null)
                over(hold, hold.cause == null, false);      // of which the server has said that it is gone
            if (isLone)
                isClosing = true;
            wake.signal();
            return true;
        } finally {
            lock.unlock();
        }
    }

    private boolean await(Hold hold) {
        boolean wasInterrupted = Thread.interrupted();
        lock.lock();
        try {
            while (!hold.isOver && Clock.now() < hold.releaseUntil)
                hold.changed.awaitNanos(Clock.nap(hold.releaseUntil));
            over(hold, false, false);
            return hold.isConfirmed;
        } catch (InterruptedException error) {
            wasInterrupted = true;              // the heartbeat goes on with it
            return false;
        } finally {
            lock.unlock();
            if (wasInterrupted)
                Thread.currentThread().interrupt();
        }
    }

    /** A release is over, answered or not, if it was not before. */
    private void over(Hold hold, boolean isAnswered, boolean isConfirmed) {
        if (hold.isOver)
            return;
        hold.isOver = true;
        hold.isConfirmed = isConfirmed;
        hold.due = NEVER;
        holds.remove(hold);
        if (isAnswered && !isConfirmed)
            hold.leftFor = 0;
        leaveNames(hold, isAnswered);
        if (hold.wasHeld)
            emit(hold, Event.RELEASED, Clock.now() - hold.acquired);
        hold.changed.signalAll();
        wake.signal();
    }

    private List<Hold> beginReleases() {
        lock.lock();
        try {
            List<Hold> begun = new ArrayList<>(holds);
            begun.forEach(this::begin);
            return begun;
        } finally {
            lock.unlock();
        }
    }

    /** Release all leases, and end the connections.  An acquire that is under way ends in Misuse. */
    @Override
    public void close() {
        List<Hold> released;
        lock.lock();
        try {
            isClosing = true;
            released = beginReleases();
            names.values().forEach(hold -> hold.changed.signalAll());
            wake.signal();
        } finally {
            lock.unlock();
        }
        released.forEach(this::await);
    }
}
