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

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// flagOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h: only the socket that
// created the table can change it, and closing the socket removes it.
const flagOwner = 2

// answerWithin is the maximum time to wait for the kernel's responses.
const answerWithin = 5 * time.Second

// errNoNftables is wrapped by errors of a kernel that lacks a part of nftables.
var errNoNftables = errors.New("no nftables")

// table is the nftables table.
type table struct {
	prefix string
	addrs  []netip.Addr
	port   uint16
	id     string // the ID of the agent, the comment of each rule

	plain bool  // without the owner flag
	why   error // why it is plain
	name  string
	conn  *nftables.Conn
	// socket is the socket of conn. Closing it removes an owned table.
	socket *mdlayher.Conn
	made   string // the state after it was installed, or "" if there is none
}

func newTable(cfg Config, id string) *table {
	return &table{
		prefix: cfg.Prefix,
		addrs:  slices.Clone(cfg.Addresses),
		port:   cfg.Port,
		id:     id,
		plain:  cfg.fallback.plain,
	}
}

// install creates the table, replacing an existing one.
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
		// Deleting a table that does not exist fails.
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

// createOwned creates an empty table that is removed when t.conn is closed.
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

// makeOwned sends the message that creates an owned table: the library cannot set flags.
// The chains can follow in another transaction, because an empty table does nothing.
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

// open opens a new socket for the table. Closing the previous socket removes an owned
// table.
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

// limit sets the deadline for the kernel's responses to answerWithin from now: a kernel
// without nftables responds once, however many messages there are.
func (t *table) limit() error { return t.socket.SetDeadline(time.Now().Add(answerWithin)) }

// flush applies the queued changes of t.conn in one transaction.
func (t *table) flush() error {
	if err := t.limit(); err != nil {
		return err
	}
	err := t.conn.Flush()
	if first, ok := errors.AsType[unix.Errno](err); ok { // of an error for each message
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

// repair installs the table again if it has changed, and returns what was missing. It
// leaves a plain table that another agent replaced.
func (t *table) repair() (missing []string, err error) {
	if t.made == "" {
		return nil, nil
	}
	made := t.made
	defer func() {
		if err != nil {
			t.made = made // so that the next repair retries
		}
	}()
	state, others, err := t.currentState()
	if err != nil || others || state == made {
		return nil, err
	}
	return []string{"table " + t.name}, t.install()
}

// currentState returns the state, through a new socket if the current one fails: after a
// late response, each response would be matched to another request. Closing the socket
// removes an owned table.
func (t *table) currentState() (state string, others bool, err error) {
	if t.conn != nil {
		if state, others, err = t.state(); err == nil || errors.Is(err, errChanging) {
			return state, others, err
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

// state returns a text that represents the whole table, "" if there is none, and whether
// another agent created it. Unless it is as it was made, it is read again while others change the
// kernel's tables, so that no half of the state is older than the other.
func (t *table) state() (state string, others bool, err error) {
	if err := t.limit(); err != nil {
		return "", false, err
	}
	before, err := t.generation()
	if err != nil {
		return "", false, err
	}
	for range maxReads {
		if state, others, err = t.read(); err != nil {
			return "", false, err
		}
		if t.made != "" && state == t.made {
			return state, others, nil
		}
		after, err := t.generation()
		if err != nil {
			return "", false, err
		}
		if after == before {
			return state, others, nil
		}
		before = after
	}
	return "", false, errChanging
}

// maxReads is how often the table is read while others change the kernel's tables.
const maxReads = 20

// errChanging is returned if others changed the kernel's tables during each read.
var errChanging = errors.New("tables change faster than they can be read")

// generation returns the number of the last transaction with any table in the network
// namespace.
func (t *table) generation() (uint32, error) {
	n, err := nfnetlink.Generation(t.socket)
	if err != nil {
		return 0, fmt.Errorf("generation of the tables: %w", err)
	}
	return n, nil
}

// read reads the state for state.
func (t *table) read() (state string, others bool, err error) {
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

// release removes the rules for queries, and keeps those that exempt responses from
// connection tracking: otherwise a later query of a client from the same port would be
// tracked as part of the connection of a response, and skip NAT.
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
	t.made = "" // so that repair ignores it
	return t.flush()
}

// remove removes the table, unless another agent replaced it.
func (t *table) remove() error {
	ours, err := t.ours()
	if ours && t.plain {
		t.conn.DelTable(t.inet())
		err = t.flush()
	}
	return joinErrors(err, t.close())
}

// ours reports whether the table exists, and no other agent created it.
func (t *table) ours() (bool, error) {
	if t.conn == nil || t.name == "" {
		return false, nil
	}
	state, others, err := t.currentState()
	return err == nil && state != "" && !others, err
}
