package h1

import (
	"context"
	"sync"
)

// requestContext is the context of a request. That something waits for its end costs little (see
// context.AfterFunc), as every request that is passed on does.
type requestContext struct {
	context.Context // that of the connection, which does not end

	mu     sync.Mutex
	err    error
	done   chan struct{} // nil before Done is called
	calls  int           // of AfterFunc
	first  func()        // of those that are left, the one that came when there was none
	number int           // of the call that it is of
	others map[int]func()
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc has f be called in a goroutine of its own when the context ends. If stop is called before that, f is not
// called, and stop returns true the first time. Package context calls it, too.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.calls++
	number := c.calls
	switch {
	case c.first == nil:
		c.first, c.number = f, number
	case c.others == nil:
		c.others = map[int]func(){number: f}
	default:
		c.others[number] = f
	}
	return func() bool { return c.forget(number) }
}

// forget forgets a call of AfterFunc, and reports whether that was left.
func (c *requestContext) forget(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil && c.number == number {
		c.first = nil
		return true
	}
	_, left := c.others[number]
	delete(c.others, number)
	return left
}

// cancel ends the context.
func (c *requestContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = context.Canceled
	if c.done != nil {
		close(c.done)
	}
	if c.first != nil {
		go c.first()
	}
	for _, f := range c.others {
		go f()
	}
	c.first, c.others = nil, nil
}
