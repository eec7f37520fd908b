// The same: see LockProvider.java.
package net.javacrumbs.shedlock.core;

import java.time.Duration;
import java.util.Optional;

public interface SimpleLock {
    void unlock();

    default Optional<SimpleLock> extend(Duration lockAtMostFor, Duration lockAtLeastFor) {
        throw new UnsupportedOperationException();
    }
}
