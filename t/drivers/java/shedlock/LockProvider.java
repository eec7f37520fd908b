// ShedLock's interface, as far as a lock provider needs it: ShedLock itself is no package of
// Debian's.
package net.javacrumbs.shedlock.core;

import java.util.Optional;

public interface LockProvider {
    Optional<SimpleLock> lock(LockConfiguration lockConfiguration);
}
