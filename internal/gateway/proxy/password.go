package proxy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/gateway/htpasswd"
	"portolan.dev/portolan/internal/gateway/limiter"
)

const (
	// maxRemembered is how many passwords are remembered at most that matched, twice.
	maxRemembered = 4096
	// maxWaiting is how many passwords may wait to be compared, of all clients; maxLogins is how many of one client may
	// be compared or wait.
	maxWaiting, maxLogins = 64, 2
	// loginWithin is how long a password may wait.
	loginWithin = 5 * time.Second
)

// passwords compares passwords with their hashes. With bcrypt that takes long by design, so those that matched are
// remembered, as a hash with a key of the process, and others are compared a few at a time.
type passwords struct {
	key     [sha256.Size]byte
	young   atomic.Pointer[generation]
	old     atomic.Pointer[generation]
	turn    sync.Mutex // of generations
	running chan struct{}
	waiting atomic.Int64
	clients *limiter.Counts
}

// generation is passwords that matched, of about the same age.
type generation struct {
	matched sync.Map
	n       atomic.Int64
}

func newPasswords() *passwords {
	p := &passwords{
		running: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), clients: limiter.NewCounts(),
	}
	_, _ = rand.Read(p.key[:]) // it never fails
	p.young.Store(new(generation))
	p.old.Store(new(generation))
	return p
}

// login is how a login went.
type login int

const (
	fails login = iota
	matches
	busy // it was not looked at
)

// check compares the password of a user. That of one that does not exist takes as long.
func (p *passwords) check(
	ctx context.Context, client limiter.Client, users map[string]string, user, password string,
) login {
	hash, exists := users[user]
	if exists && p.remembers(hash, password) {
		return matches
	}
	if !exists {
		for _, hash = range users {
			break
		}
	}
	if hash == "" || len(password) > htpasswd.MaxPassword {
		return fails
	}
	if !p.clients.Enter("", client, maxLogins) {
		return busy
	}
	defer p.clients.Leave("", client)
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > maxWaiting {
		return busy
	}
	patience := time.NewTimer(loginWithin)
	defer patience.Stop()
	select {
	case p.running <- struct{}{}:
	case <-patience.C:
		return busy
	case <-ctx.Done():
		return busy
	}
	defer func() { <-p.running }()
	if !htpasswd.Matches(hash, password) || !exists {
		return fails
	}
	p.remember(p.digest(hash, password))
	return matches
}

// digest is what is remembered of a password.
func (p *passwords) digest(hash, password string) (made [sha256.Size]byte) {
	h := hmac.New(sha256.New, p.key[:])
	h.Write([]byte(hash))
	h.Write([]byte{0})
	h.Write([]byte(password))
	h.Sum(made[:0])
	return made
}

// remembers reports whether a password is known to match. If it is not of the young ones it becomes one.
func (p *passwords) remembers(hash, password string) bool {
	if len(password) > htpasswd.MaxPassword {
		return false
	}
	digest := p.digest(hash, password)
	if _, ok := p.young.Load().matched.Load(digest); ok {
		return true
	}
	if _, ok := p.old.Load().matched.Load(digest); ok {
		p.remember(digest)
		return true
	}
	return false
}

// remember makes a password one of the young ones. If those are too many they become the old ones.
func (p *passwords) remember(digest [sha256.Size]byte) {
	g := p.young.Load()
	if _, known := g.matched.LoadOrStore(digest, struct{}{}); known || g.n.Add(1) < maxRemembered {
		return
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.young.Load() == g {
		p.old.Store(g)
		p.young.Store(new(generation))
	}
}
