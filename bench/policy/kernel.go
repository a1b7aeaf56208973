package policy

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/test/namespace"
)

// kernel is a table in a network namespace of its own.
type kernel struct {
	network  *namespace.Network
	table    *nft.Table
	stop     context.CancelFunc
	watching sync.WaitGroup
	watched  error
	loaded   spent // of sync: the time of Sync, and the processor time with the begin of Watch
}

// newKernel has the kernel hold rs, and watches the table from then on, as the agent does. Close it.
func newKernel(rs ruleset.Ruleset) (*kernel, error) {
	k := new(kernel)
	var err error
	if k.network, err = namespace.New(); err != nil {
		return nil, err
	}
	if err := k.sync(rs); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// sync has the kernel hold rs, with a new Table as after a start of the agent.
func (k *kernel) sync(rs ruleset.Ruleset) error {
	const pause = 100 * time.Millisecond // in which Watch may begin
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	return k.network.Do(func() (err error) { // sockets stay in the namespace
		if k.table, err = nft.New(nft.Config{LogGroup: 1}); err != nil {
			return err
		}
		table, began := k.table, time.Now()
		var took time.Duration
		k.loaded, err = measured(func() error {
			if err := table.Sync(rs); err != nil {
				return err
			}
			took = time.Since(began)
			k.watching.Go(func() {
				k.watched = k.network.Do(func() error { return table.Watch(ctx, make(chan nft.Notice, 1)) })
			})
			time.Sleep(pause)
			return nil
		})
		k.loaded.took = took
		return err
	})
}

// end closes the Table. The kernel keeps what it has.
func (k *kernel) end() (err error) {
	if k.stop != nil {
		k.stop()
		k.watching.Wait()
		err = k.watched
	}
	if k.table != nil {
		err = errors.Join(err, k.table.Close())
	}
	k.stop, k.table = nil, nil
	return err
}

func (k *kernel) close() error { return errors.Join(k.end(), k.network.Close()) }

// spent is the time that something took, and the processor time of this process for it, that of the
// kernel in its system calls included.
type spent struct{ took, processor time.Duration }

// measured measures a call.
func measured(do func() error) (s spent, err error) {
	self := []int{os.Getpid()}
	began := time.Now()
	before, err := rig.ProcessorTime(self)
	if err != nil {
		return s, err
	}
	if err := do(); err != nil {
		return s, err
	}
	after, err := rig.ProcessorTime(self)
	return spent{time.Since(began), after - before}, err
}
