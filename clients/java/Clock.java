package dlock;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The clock of all deadlines.
 *
 * <p>System.nanoTime() is set by nobody, but on Linux it stands still while the machine is suspended.
 * The time of day goes on then, but may be set.  So the clock goes by the first, and adds how much the
 * second has run ahead of it between two looks.  A time of day that is wrong can only make the
 * clock run ahead, and so shorten a lease.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
final class Clock {
    /** The steps of a time of day that is being adjusted, and of its clock, do not count. */
    private static final double LEAST = 0.02;

    private static final Clock SYSTEM = new Clock(System::nanoTime, System::currentTimeMillis);

    private final ReentrantLock lock = new ReentrantLock();
    private final LongSupplier steady;      // ns
    private final LongSupplier timeOfDay;   // ms
    private double lastSteady;
    private double lastTimeOfDay;
    private double added;

    Clock(LongSupplier steady, LongSupplier timeOfDay) {
        this.steady = steady;
        this.timeOfDay = timeOfDay;
        lastSteady = steady.getAsLong() / 1e9;
        lastTimeOfDay = timeOfDay.getAsLong() / 1e3;
    }

    /** Seconds, of which only differences mean something. */
    double seconds() {
        lock.lock();
        try {
            double now = steady.getAsLong() / 1e9;
            double day = timeOfDay.getAsLong() / 1e3;
            double ahead = day - lastTimeOfDay - (now - lastSteady);
            if (ahead >= LEAST)
                added += ahead;
            lastSteady = now;
            lastTimeOfDay = day;
            return now + added;
        } finally {
            lock.unlock();
        }
    }

    static double now() {
        return SYSTEM.seconds();
    }

    /** Nanoseconds to wait until then: a second at most, since waiting does not count a suspension. */
    static long nap(double until) {
        return (long) (1e9 * Math.max(0, Math.min(until - now(), 1))) + TimeUnit.MILLISECONDS.toNanos(1);
    }
}
