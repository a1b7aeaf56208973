package app

import (
	"context"
	"log/slog"
	"sync"

	"portolan.dev/portolan/internal/network/wireguard"
	"portolan.dev/portolan/internal/support/retry"
)

// publisher has the own Node have the public key of this node.
type publisher struct {
	publish func(ctx context.Context, key string) error // nil if nothing can be written
	log     *slog.Logger
	due     chan struct{} // has a token while the Node may not have the key

	mu        sync.Mutex
	key       wireguard.Key
	published bool
}

func newPublisher(publish func(context.Context, string) error, log *slog.Logger) *publisher {
	return &publisher{publish: publish, log: log, due: make(chan struct{}, 1)}
}

// compare notes the key of this node, if there is one, and that of its Node.
func (p *publisher) compare(own, published wireguard.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	none := own == wireguard.Key{}
	p.key, p.published = own, own == published && !none
	if p.published || none {
		return
	}
	select {
	case p.due <- struct{}{}:
	default:
	}
}

func (p *publisher) isPublished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published
}

// run publishes keys until ctx is done, and returns nil.
func (p *publisher) run(ctx context.Context) error {
	var told wireguard.Key // that it cannot be published
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.due:
		}
		if p.publish == nil {
			if key := p.current(); key != told {
				told = key
				p.log.Warn("the key of this node is not published: there is no API", "key", key)
			}
			continue
		}
		err := retry.Until(ctx, func() error { return p.publish(ctx, p.current().String()) }, func(err error) {
			p.log.Warn("the key of this node is not published, will retry", "err", err)
		})
		if err == nil {
			p.log.Info("the key of this node is published", "key", p.current())
		}
	}
}

func (p *publisher) current() wireguard.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}
