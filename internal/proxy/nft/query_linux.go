package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Lookup returns what the tables of a name have for an address, and how it differs from the
// frontend there; nil is none. It reads single elements, changes nothing, and does so while
// another process owns the tables. Its error wraps fs.ErrNotExist if there is no table, and
// fs.ErrPermission without the capability NET_ADMIN.
func Lookup(name string, at frontend.Address, want *frontend.Frontend) (Contents, error) {
	t := New(Config{Name: name})
	defer t.Close()
	of := FamilyOf(at.Addr)
	if err := t.open(); err != nil {
		return Contents{}, err
	}
	there, err := t.exists(of, name)
	if err == nil && !there {
		err = unix.ENOENT
	}
	if err != nil {
		return Contents{}, tableError(fmt.Sprint(of, " ", name), err)
	}
	r := &reader{table: t, family: of, at: at, key: destination(at)}
	if err := r.lookup(want); err != nil {
		return r.Contents, tableError(fmt.Sprint(of, " ", name), err)
	}
	return r.Contents, nil
}

// reader compares the elements for an address with a frontend.
type reader struct {
	Contents
	table  *Table
	family Family
	at     frontend.Address
	key    string // the destination
}

func (r *reader) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

func (r *reader) lookup(want *frontend.Frontend) error {
	service, there, err := r.read(setServices, r.key)
	if err != nil {
		return err
	}
	r.Element = fmt.Sprintf("%s . %s . %d : %s", r.at.Addr, r.at.Protocol, r.at.Port, verdictText(service.verdict))
	if err := r.hooks(); err != nil {
		return err
	}
	if want == nil {
		if there {
			r.differ("the model has nothing at this address")
		}
		return nil
	}
	e := newEntry(want, nil)
	if want.Affinity != nil {
		e.group = new(group)
	}
	if err := r.elements(e); err != nil {
		return err
	}
	chain, err := r.chain(e, service.verdict)
	if err != nil {
		return err
	}
	serving, _ := parseChain(chain)
	if r.Endpoints, err = r.slots(e, 0, max(len(e.slots), serving.size)); err != nil {
		return err
	}
	r.compare("", e.Endpoints, r.Endpoints)
	if e.Policy != frontend.ExternalLocal {
		return nil
	}
	local, _, err := r.read(setLocal, r.key)
	if err != nil {
		return err
	}
	serving, _ = parseChain(local.verdict)
	if r.Local, err = r.slots(e, localSlot, max(len(e.local), serving.size)); err != nil {
		return err
	}
	r.compare("for clients outside ", e.Local, r.Local)
	return nil
}

// hooks checks that packets get to the maps.
func (r *reader) hooks() error {
	if err := r.table.limit(); err != nil {
		return err
	}
	l := r.table.layout(r.family)
	chains, err := r.table.conn.ListChainsOfTableFamily(l.table.Family)
	if err != nil {
		return nfnetlink.ErrnoOf(err)
	}
	for _, c := range l.static() {
		if c.base == nil {
			continue
		}
		found := false
		for _, have := range chains {
			found = found || have.Table.Name == l.table.Name && have.Name == c.name && have.Hooknum != nil
		}
		if !found {
			r.differ("the chain %s is missing, so that packets are not looked up", c.name)
		}
	}
	return nil
}

// elements compares verdicts, source ranges and sets of addresses, not endpoints.
func (r *reader) elements(e *entry) error {
	all := append(e.appendTo(nil, nil), element{set: setAddresses, key: padded(e.Addr)})
	if e.Policy == frontend.Plain {
		all = append(all, element{set: setClusterIPs, key: padded(e.Addr)})
	}
	for _, want := range all {
		switch want.set {
		case setEndpoints, setHashed, setAffinityGroups, setAffinityChoices, setAffinityEndpoints:
			continue
		}
		got, there, err := r.read(want.set, want.key)
		switch {
		case err != nil:
			return err
		case want.verdict != got.verdict:
			r.differ("the map %s has %s, the model %s", want.set, verdictText(got.verdict), verdictText(want.verdict))
		case want.set == setSourceRanges && (!there || got.end != want.end):
			r.differ("the set %s lacks a range of the model", want.set)
		case !there:
			r.differ("the set %s lacks %s", want.set, e.Addr)
		}
	}
	return nil
}

// chain returns the chain that chooses an endpoint.
func (r *reader) chain(e *entry, service string) (string, error) {
	if e.Sources == nil {
		return service, nil
	}
	admitted, _, err := r.read(setAdmitted, r.key)
	return admitted.verdict, err
}

// slots returns the endpoints in n slots from first on, sorted.
func (r *reader) slots(e *entry, first, n int) (all []netip.AddrPort, err error) {
	for slot := range n {
		key := slotKey(r.key, first+slot)
		set := setEndpoints
		if e.chains().hashed() {
			set = setHashed
		}
		if e.group != nil {
			choice, there, err := r.read(setAffinityChoices, key)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
			set, key = setAffinityEndpoints, r.key+choice.data
		}
		found, there, err := r.read(set, key)
		if err != nil {
			return nil, err
		}
		if to, valid := parseTarget(found.data); there && valid {
			all = append(all, to)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all), nil
}

// mostReported is the maximum number of endpoints that are reported as missing, and as
// superfluous.
const mostReported = 10

// compare compares the endpoints of the model with those of the kernel.
func (r *reader) compare(whose string, want, got []netip.AddrPort) {
	report := func(these, others []netip.AddrPort, format string) {
		n := 0
		for _, to := range these {
			if slices.Contains(others, to) {
				continue
			}
			if n++; n <= mostReported {
				r.differ(format, whose, to)
			}
		}
		if n > mostReported {
			r.differ("and so for %d more endpoints", n-mostReported)
		}
	}
	report(want, got, "%sit lacks the endpoint %s")
	report(got, want, "%sit has the endpoint %s, which the model does not use")
}

// verdictText returns a verdict as nft lists it.
func verdictText(verdict string) string {
	switch verdict {
	case "":
		return "none"
	case dropVerdict:
		return verdict
	}
	return "goto " + verdict
}

// read reads the element with a key; there is false without one.
func (r *reader) read(set setName, key string) (e element, there bool, err error) {
	k := nfnetlink.Key{Family: r.family.nfproto(), Table: r.table.cfg.Name, Set: string(set), Value: key}
	there, err = nfnetlink.Find(r.table.socket, k, func(data []byte) (err error) {
		e, err = parseElement(data)
		return err
	})
	return e, there, err
}
