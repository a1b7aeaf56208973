package nft

import (
	"errors"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Cut has the kernel drop packets of flows in both directions for CutTime, unless connection tracking
// takes them for an established flow's, whose entries are to be deleted after that. Otherwise an end
// that may begin flows would revive such a flow with its next packet. Its error wraps ErrCutFull if there
// is no room for all: then none is cut.
func (t *Table) Cut(flows []ruleset.Flow) error { return t.editCut(addition, flows) }

// Uncut takes back what Cut did.
func (t *Table) Uncut(flows []ruleset.Flow) error {
	if err := t.editCut(deletion, flows); !errors.Is(err, unix.ENOENT) {
		return err
	}
	for _, f := range flows { // one that has expired fails a transaction of all
		if err := t.editCut(deletion, []ruleset.Flow{f}); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (t *Table) editCut(op operation, flows []ruleset.Flow) error {
	all := make(map[*family][]element)
	for _, f := range flows {
		family, elements := cutElements(f)
		all[family] = append(all[family], elements...)
	}
	t.resolved.mu.Lock()
	defer t.resolved.mu.Unlock()
	b := &batch{table: t.cfg.Name}
	for _, f := range t.resolved.families { // no Pod has flows of others
		b.edit(op, setCut+f.suffix, all[f])
	}
	switch err := t.commitBeside(b); {
	case errors.Is(err, unix.ENFILE):
		return tableError(t.cfg.Name, ErrCutFull)
	case err != nil:
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// cutFlows returns the rules that drop packets of flows that were cut.
func (r *renderer) cutFlows() (rules []rule) {
	for _, f := range r.families {
		words := f.size / 4
		sourcePort := &expr.Payload{
			DestRegister: nfnetlink.Register(2*words + 1), Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2,
		}
		rules = append(rules, rule{expressions: append(
			f.is(),
			f.address(ruleset.Ingress, 0), f.address(ruleset.Egress, words),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nfnetlink.Register(2 * words)},
			sourcePort, destinationPort(nfnetlink.Register(2*words+2)),
			&expr.Lookup{SourceRegister: 1, SetName: setCut + f.suffix},
			&expr.Verdict{Kind: expr.VerdictDrop},
		)})
	}
	return rules
}
