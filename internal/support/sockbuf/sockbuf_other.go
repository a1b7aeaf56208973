//go:build !linux

package sockbuf

func setUnsent(uintptr, int) error { return nil }

func setReceived(uintptr, int) error { return nil }

func queued(uintptr) int { return 0 }
