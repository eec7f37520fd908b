// SPDX-License-Identifier: PostgreSQL

package dlock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// bootTime is CLOCK_BOOTTIME, if the kernel lets us have it.
func bootTime() (time.Duration, bool) {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano()), errno == 0
}
