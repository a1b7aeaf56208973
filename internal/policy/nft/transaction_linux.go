package nft

import (
	"net/netip"

	"github.com/mdlayher/netlink"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// bufferSize is the size of the socket's buffers, which a transaction must fit in: that of 700,000
// elements.
const bufferSize = 32 << 20

// maxBatch is how large a transaction of what can be divided is in octets, about. If any program listens for changes,
// as the agent does, the kernel keeps a message of 4 KiB about each element until the end of the transaction: 64 MiB
// for the 16,000 elements of this one.
const maxBatch = 256 << 10

// transaction is a change of the table. What is new but not yet used comes first, then all that has an
// effect, undivided, and then what is not used any more. If it is large, the first and the last part
// are transactions of their own, so that at no time there is anything but the old and the new ruleset.
type transaction struct {
	batch
	socket *netlink.Conn
	// divideAt is how large it may become in octets before it is divided, about; 0 never divides it.
	divideAt int
	// committed is called after each transaction of one that was divided, unless it is nil.
	committed func()
	changed   counts
}

// counts is how much of each kind a transaction changes.
type counts struct{ elements, chains, sets int }

// divide commits what there is, if that is large.
func (x *transaction) divide() error {
	if x.divideAt == 0 || len(x.Buf) < x.divideAt {
		return nil
	}
	err := x.commit()
	if x.committed != nil && err == nil {
		x.committed()
	}
	return err
}

func (x *transaction) commit() error {
	err := x.Commit(x.socket)
	x.Reset()
	return err
}

// declare adds the creation of a set.
func (x *transaction) declare(name string, s shape, comment string) error {
	x.newSet(name, s, comment)
	x.changed.sets++
	return x.divide()
}

// fill adds elements to a set that nothing uses yet.
func (x *transaction) fill(set string, elements []element) error {
	for len(elements) > 0 {
		n := min(len(elements), maxBatch/100)
		x.edit(addition, set, elements[:n])
		if err := x.divide(); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// edit adds or deletes elements of a set.
func (x *transaction) edit(op operation, set string, elements []element) {
	x.batch.edit(op, set, elements)
	x.changed.elements += len(elements)
}

// create adds the creation of chains that nothing uses yet, with their rules. A rule may name any of
// them.
func (x *transaction) create(all []chain) error {
	for i := range all {
		x.newChain(&all[i])
		x.changed.chains++
	}
	for i := range all {
		if err := x.newRules(&all[i]); err != nil {
			return err
		}
		if err := x.divide(); err != nil {
			return err
		}
	}
	return nil
}

// remove adds the removal of chains and sets that nothing else uses. Their rules come first, since
// they may name one another, then sets, which may be maps to the chains.
func (x *transaction) remove(sets, chains []string) error {
	for _, name := range chains {
		x.flushChain(name)
	}
	for _, name := range sets {
		x.deleteSet(name)
		x.changed.sets++
		if err := x.divide(); err != nil {
			return err
		}
	}
	for _, name := range chains {
		x.deleteChain(name)
		x.changed.chains++
		if err := x.divide(); err != nil {
			return err
		}
	}
	return nil
}

// record is what the table has, as far as a Delta needs it.
type record struct {
	families []*family
	sets     map[string]ruleset.Kind
	// chains are those of the Ruleset with all that they are in the kernel.
	chains  map[string][]string
	pods    map[netip.Addr]ruleset.Pod
	devices map[uint32]ruleset.Device
	ranges  []netip.Prefix
}
