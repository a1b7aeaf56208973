package forwarding

import (
	"fmt"
	"strings"
	"time"

	"portolan.dev/portolan/bench/allnames"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// hitRates are the hit rates of one store for the trace.
type hitRates struct {
	store string
	ledger
}

// store is a cache of names.
type store interface {
	// use reports whether the store has a name, and adds it.
	use(name uint32) (hit bool, err error)
}

// heldNames is the approximate number of names that fit into the stores.
const heldNames = 10_000

// compareHitRates replays the trace with Portolan's cache and with an LRU of the same
// size, in which each name has the weight that the cache gives it.
func compareHitRates() (all []hitRates, err error) {
	weight, err := weightOfName()
	if err != nil {
		return nil, err
	}
	kept, err := newAnswerStore(heldNames * weight)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name string
		store
	}{{"Portolan's cache", kept}, {"LRU", newLRU(heldNames*weight, weight)}} {
		l, err := replay(newTrace(), s.store)
		if err != nil {
			return nil, err
		}
		all = append(all, hitRates{s.name, l})
	}
	return all, nil
}

// writeHitRates writes a table unless it is empty.
func writeHitRates(s *strings.Builder, all []hitRates) {
	if len(all) == 0 {
		return
	}
	s.WriteString("\n| hit rate with room for 10,000 names | before the scan | in it | after it | together " +
		"|\n|---|---|---|---|---|\n")
	for _, h := range all {
		fmt.Fprintf(s, "| %s | %.3f | %.3f | %.3f | %.3f |\n", h.store, h.before.rate(), h.during.rate(), h.after.rate(),
			h.all().rate())
	}
}

// answerStore is Portolan's cache, filled with upstreams' answers.
type answerStore struct {
	*cache.Cache
	now    time.Time
	buffer []byte
}

func newAnswerStore(size int64) (*answerStore, error) {
	c, err := cache.New(cache.Config{Size: size, MaxTTL: answerTTL, MaxNegativeTTL: answerTTL})
	return &answerStore{Cache: c, now: time.Unix(0, 0)}, err
}

// answerTTL is longer than any trace. The clock does not advance during a trace.
const answerTTL = 3600

func (s *answerStore) use(name uint32) (hit bool, err error) {
	query, err := queryFor(fmt.Sprintf("name-%08x.example.org.", name))
	if err != nil {
		return false, err
	}
	s.buffer, _ = allnames.AppendAnswer(s.buffer[:0], query, answerTTL)
	const afterName = 5 // the root's octet, type and class
	q := cache.Key{Name: query[dnswire.HeaderLen : len(query)-afterName], Type: dnswire.TypeA}
	if s.Get(q, s.now) != nil {
		return true, nil
	}
	reply, err := dnswire.ParseReply(s.buffer)
	if err != nil {
		return false, err
	}
	s.Put(q, reply, cache.Terms{}, s.now)
	return false, nil
}

// weightOfName returns the weight of one name in the cache, in octets. All names have
// the same length.
func weightOfName() (int64, error) {
	const plenty = 1 << 20
	s, err := newAnswerStore(plenty)
	if err != nil {
		return 0, err
	}
	if _, err := s.use(0); err != nil {
		return 0, err
	}
	return int64(s.Stats().Octets), nil
}
