// Package programmer schedules the transactions of a table of nftables: it says when changes are programmed and
// when the whole table is compared with what a part of the node wants, and records the transactions.
//
//	feed ──► worker ◄──Due── Programmer ◄──Notice── Watcher ◄── kernel
//	           │ Begin: None, Partial, Full   ▲
//	           └──► transaction ──► Done ─────┘
package programmer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/support/nfnetlink"
	"portolan.dev/portolan/internal/support/retry"
)

// CompareInterval is the interval between comparisons of the whole table when nothing else asks for one;
// kube-proxy's, too.
const CompareInterval = time.Hour

// Scope is how much of the table a transaction compares.
type Scope string

// The scopes.
const (
	None    Scope = "none"    // nothing changed, or nothing can be programmed now
	Partial Scope = "partial" // what changed
	Full    Scope = "full"    // everything, since the kernel may differ from what was programmed
)

// Config configures a Programmer.
type Config struct {
	// Part is the name of the part, for metrics.
	Part string
	// Table is the name of the table.
	Table string
	// Title, State and the following are what the log says: "the nftables table of policies", "the present
	// policies".
	Title, State string
	// Standby is said while another process programs the table.
	Standby string
	// Repair and Repeated are said of the first change by another program, and of more.
	Repair, Repeated string
	// NotSynced is the error until the first transaction.
	NotSynced error
	// LongestRepair is the longest pause before a repair, and before the next attempt after a failed one.
	LongestRepair time.Duration
	Log           *slog.Logger
}

// Watcher reports changes of a table by other programs until ctx is done; see nfnetlink.Listener.
type Watcher interface {
	Watch(ctx context.Context, notices chan<- nfnetlink.Notice) error
}

// Programmer has a table be current. Begin, Done, Watch, StopWatching and Close are for one goroutine,
// all others for any.
type Programmer struct {
	cfg     Config
	metrics transactions
	due     chan struct{}

	watching sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	need     need
	timer    *time.Timer        // until the table is stale; nil before the first Begin
	stop     context.CancelFunc // of watching; nil if nothing watches
	failures retry.Backoff
	repairs  retry.Repairs
	problem  error // of the last transaction
	synced   bool
	standby  bool
}

// need is when the whole table is to be compared.
type need uint8

const (
	now            need = iota
	soonAfterError      // and nothing is programmed until then
	soon                // another program changed it
	hourly
)

// New returns a Programmer of a table that was never programmed. It starts nothing.
func New(cfg Config) *Programmer {
	return &Programmer{cfg: cfg, metrics: newTransactions(cfg.Part), due: make(chan struct{}, 1)}
}

// Due is ready when Begin returns Full.
func (p *Programmer) Due() <-chan struct{} { return p.due }

// Begin returns how much is to be programmed now: None while a transaction that failed waits for the next
// attempt, which brings everything. The caller calls Done then, unless nothing changed.
func (p *Programmer) Begin() Scope {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.need {
	case now:
		p.after(CompareInterval, hourly)
		return Full
	case soonAfterError:
		return None
	}
	return Partial
}

// after has the table be compared after a pause, instead of the time before. The caller must hold mu.
func (p *Programmer) after(pause time.Duration, n need) {
	p.need = n
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.atOnce()
	})
}

// atOnce has the table be compared without a pause. The caller must hold mu.
func (p *Programmer) atOnce() {
	p.need = now
	select {
	case p.due <- struct{}{}:
	default:
	}
}

// Retry schedules everything to be programmed again after the shortest pause.
func (p *Programmer) Retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = retry.Backoff{}
	p.after(p.failures.Next(), soonAfterError)
}

// Result is that of a transaction.
type Result struct {
	Scope Scope
	Took  time.Duration
	Err   error
}

// Done records a transaction, and reports whether it is the first that succeeded. After an error
// everything is programmed again: at once if only what changed was, since the table may be gone, and otherwise
// after a pause.
func (p *Programmer) Done(r Result) (first bool) {
	p.metrics.observe(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Err != nil:
		if r.Scope == Partial {
			p.atOnce()
		} else {
			p.after(min(p.failures.Next(), p.cfg.LongestRepair), soonAfterError)
		}
		if p.problem == nil || p.problem.Error() != r.Err.Error() {
			p.log(slog.LevelError, "the kernel does not have "+p.cfg.State, "err", WithCure(r.Err))
		}
	case p.problem != nil:
		p.log(slog.LevelInfo, "the kernel has "+p.cfg.State+" again")
	}
	p.problem = r.Err
	if r.Err != nil {
		return false
	}
	p.failures = retry.Backoff{}
	first, p.synced = !p.synced, true
	return first
}

// log logs a message that has the part's words in it.
func (p *Programmer) log(level slog.Level, message string, args ...any) {
	p.cfg.Log.Log(context.Background(), level, message, args...) //nolint:sloglint // each part's is the same each time
}

// WithCure adds what the user can do to an error of a transaction, where that is known.
func WithCure(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (it needs the capability NET_ADMIN, in the node's network)", err)
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w (it needs Linux 5.13 or newer, with all modules of nftables)", err)
	}
	return err
}

// Err returns why the kernel does not have the present state, or nil.
func (p *Programmer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == nil && !p.synced {
		return p.cfg.NotSynced
	}
	return p.problem
}

// Synced reports whether any transaction succeeded.
func (p *Programmer) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// SetStandby notes whether another process programs the table.
func (p *Programmer) SetStandby(standby bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if standby && !p.standby {
		p.log(slog.LevelInfo, p.cfg.Standby, "table", p.cfg.Table)
	}
	p.standby = standby
}

// Ready describes what is missing until the kernel has what the cluster wants, from this process or from the
// one that it replaces, which is told to stop only if nothing is missing. source returns why the cluster is
// not known, or nil; it is nil if that is not known.
func (p *Programmer) Ready(source func() error) (missing, remarks []string) {
	err := p.Err()
	p.mu.Lock()
	standby := p.standby
	p.mu.Unlock()
	switch {
	case err == nil:
		return nil, nil
	case standby:
		return nil, []string{p.cfg.Standby}
	}
	missing = []string{err.Error()}
	if source != nil {
		if err := source(); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return missing, nil
}

// Close ends what Begin and Watch began.
func (p *Programmer) Close() {
	p.StopWatching()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Describe sends the descriptions of the metrics of transactions.
func (p *Programmer) Describe(ch chan<- *prometheus.Desc) { p.metrics.Describe(ch) }

// Collect sends the metrics of transactions.
func (p *Programmer) Collect(ch chan<- prometheus.Metric) { p.metrics.Collect(ch) }
