//go:build !linux

package droplog

import "context"

// Run waits until ctx is done: only Linux has a log of packets.
func (l *Log) Run(ctx context.Context) error {
	l.flushUntil(ctx)
	return nil
}
