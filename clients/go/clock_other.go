// SPDX-License-Identifier: PostgreSQL

//go:build !linux

package dlock

import "time"

// bootTime: Go has no such clock here.
func bootTime() (time.Duration, bool) { return 0, false }
