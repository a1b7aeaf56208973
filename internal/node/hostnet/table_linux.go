package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// flagOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h: only the socket
// that made the table changes it, and it goes with the socket.
const flagOwner = 2

// answerWithin is how long is waited for the kernel's answers.
const answerWithin = 5 * time.Second

// errNoNftables: the kernel has not what the table is made of.
var errNoNftables = errors.New("no nftables")

// table of nftables. The zero state is that there is none.
type table struct {
	prefix string
	addrs  []netip.Addr
	port   uint16
	id     string // the agent's, a comment of each rule

	plain bool  // without the flag owner
	why   error // it is plain
	name  string
	conn  *nftables.Conn
	// socket of conn, which the table goes with.
	socket *mdlayher.Conn
	made   string // the state when it was installed; "" while there is none
}

func newTable(cfg Config, id string) *table {
	return &table{prefix: cfg.Prefix, addrs: slices.Clone(cfg.Addresses), port: cfg.Port, id: id, plain: cfg.fallback.plain}
}

// install makes the table, instead of one that is there.
func (t *table) install() error {
	err := t.create()
	for _, no := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", errNoNftables, no)
		}
	}
	return err
}

func (t *table) create() error {
	if !t.plain {
		switch err := t.createOwned(); {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP):
			t.plain, t.why = true, err // before Linux 5.12
		case err != nil:
			return err
		}
	}
	if t.plain {
		if err := t.open(); err != nil {
			return err
		}
		t.name = t.prefix
		// A table that isn't there can't be deleted.
		t.conn.AddTable(t.inet())
		t.conn.DelTable(t.inet())
		t.conn.AddTable(t.inet())
	}
	if err := t.fill(); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	made, _, err := t.state()
	t.made = made
	return err
}

// createOwned makes a table, still empty, that goes with t.conn.
func (t *table) createOwned() error {
	if err := t.open(); err != nil {
		return err
	}
	t.name = t.prefix + "-" + t.id
	if err := makeOwned(t.socket, t.name); err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	return nil
}

// makeOwned sends the message that makes an owned table: the library makes none
// with flags. It may end with the table's chains in another transaction, for an
// empty one does nothing.
func makeOwned(socket *mdlayher.Conn, name string) error {
	attributes, err := mdlayher.MarshalAttributes([]mdlayher.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, flagOwner}},
	})
	if err != nil {
		return err
	}
	batch := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	_, err = socket.SendMessages([]mdlayher.Message{
		{Header: mdlayher.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: mdlayher.Request}, Data: batch},
		{
			Header: mdlayher.Header{
				Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
				Flags: mdlayher.Request | mdlayher.Acknowledge | mdlayher.Create | mdlayher.Excl,
			},
			Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attributes...),
		},
		{Header: mdlayher.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: mdlayher.Request}, Data: batch},
	})
	if err == nil {
		_, err = socket.Receive()
	}
	return err
}

// open opens a socket of its own for the table; an owned one that was there goes
// with the socket before.
func (t *table) open() error {
	if err := t.close(); err != nil {
		return err
	}
	keep := func(socket *mdlayher.Conn) error { t.socket = socket; return t.limit() }
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(keep))
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	t.conn = conn
	return nil
}

// limit gives the kernel answerWithin from now: where it has no nftables it
// answers once, however many messages there are.
func (t *table) limit() error { return t.socket.SetDeadline(time.Now().Add(answerWithin)) }

// flush does what t.conn was told, all or nothing.
func (t *table) flush() error {
	if err := t.limit(); err != nil {
		return err
	}
	err := t.conn.Flush()
	var first unix.Errno // of an error for each message
	if errors.As(err, &first) {
		err = first
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	return nil
}

func (t *table) close() error {
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn, t.made = nil, ""
	return conn.CloseLasting()
}

func (t *table) inet() *nftables.Table {
	return &nftables.Table{Name: t.name, Family: nftables.TableFamilyINet}
}

// mend installs the table anew where it is not as it was, and tells so. A plain
// table that another agent replaced is its affair.
func (t *table) mend() (missing []string, err error) {
	if t.made == "" {
		return nil, nil
	}
	made := t.made
	defer func() {
		if err != nil {
			t.made = made // there shall be one
		}
	}()
	state, others, err := t.look()
	if err != nil || others || state == made {
		return nil, err
	}
	return []string{"table " + t.name}, t.install()
}

// look gives the state, by way of another socket where the one that is there fails:
// after an answer that came too late each one is taken for that to another question.
// An owned table goes with its socket.
func (t *table) look() (state string, others bool, err error) {
	if t.conn != nil {
		if state, others, err = t.state(); err == nil {
			return state, others, nil
		}
	}
	if t.conn == nil && !t.plain {
		return "", false, nil
	}
	made := t.made
	if err := t.open(); err != nil {
		return "", false, err
	}
	t.made = made
	return t.state()
}

// state is all of the table in a few words, "" if there is none, and whether it
// is another agent's.
func (t *table) state() (state string, others bool, err error) {
	if err := t.limit(); err != nil {
		return "", false, err
	}
	var b strings.Builder
	there, err := t.conn.ListTableOfFamily(t.name, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("table %s: %w", t.name, err)
	}
	fmt.Fprintf(&b, "flags %d", there.Flags)
	for _, chain := range chains {
		rules, err := t.conn.GetRules(there, &nftables.Chain{Name: chain.name, Table: there})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return "", false, fmt.Errorf("chain %s of table %s: %w", chain.name, t.name, err)
		}
		fmt.Fprintf(&b, ", chain %s", chain.name)
		for _, r := range rules {
			id, _ := userdata.GetString(r.UserData, userdata.TypeComment)
			others = others || id != "" && id != t.id
			fmt.Fprintf(&b, " %d", r.Handle)
		}
	}
	for _, s := range t.sets() {
		has, err := t.conn.GetSetElements(s.set)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return "", false, fmt.Errorf("set %s of table %s: %w", s.set.Name, t.name, err)
		}
		slices.SortFunc(has, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
		fmt.Fprintf(&b, ", set %s", s.set.Name)
		for _, e := range has {
			fmt.Fprintf(&b, " %x", e.Key)
		}
	}
	return b.String(), others, nil
}

// release lets queries go, and keeps answers off connection tracking: else what a
// client sends from the same port later would be held to belong to an answer, and
// be spared from NAT.
func (t *table) release() error {
	ours, err := t.ours()
	if err != nil || !ours {
		return err
	}
	for _, c := range chains {
		if c.end == destination {
			t.conn.FlushChain(&nftables.Chain{Name: c.name, Table: t.inet()})
		}
	}
	t.made = "" // not to be mended
	return t.flush()
}

// remove removes the table, unless another agent replaced it.
func (t *table) remove() error {
	ours, err := t.ours()
	if ours && t.plain {
		t.conn.DelTable(t.inet())
		err = t.flush()
	}
	return both(err, t.close())
}

// ours tells whether the table is there, and no other agent's.
func (t *table) ours() (bool, error) {
	if t.conn == nil || t.name == "" {
		return false, nil
	}
	state, others, err := t.look()
	return err == nil && state != "" && !others, err
}
