package settings

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
)

// Transfer configures zone transfers to secondaries.
type Transfer struct {
	// Allow are rules. A client may transfer the zones if a rule matches. If empty,
	// transfers are off.
	Allow []TransferRule `yaml:"allow"`
	Keys  []TransferKey  `yaml:"keys"`
	// History limits the changes kept for incremental transfers.
	History TransferHistory `yaml:"history"`
	// MaxTransfers is the highest number of long transfers at once. Memory is the limit
	// of the memory that they use.
	MaxTransfers int      `yaml:"maxTransfers"`
	Memory       key.Size `yaml:"memory"`
	// Notify are addresses and ports that receive NOTIFY, besides the endpoints of the
	// Service NotifyService (namespace/name).
	Notify        []string `yaml:"notify"`
	NotifyService string   `yaml:"notifyService"`
}

// TransferRule matches a client for which all of its fields match.
type TransferRule struct {
	Clients     []string `yaml:"clients"`     // prefixes; all when empty
	Key         string   `yaml:"key"`         // the name of the key that signs the query
	Certificate string   `yaml:"certificate"` // a name in the client's certificate
}

// TransferKey is a key for TSIG (RFC 8945).
type TransferKey struct {
	Name       string `yaml:"name"`
	Algorithm  string `yaml:"algorithm"`  // such as hmac-sha256
	SecretFile string `yaml:"secretFile"` // a file with the secret, in base64
}

// TransferHistory limits the changes kept for incremental transfers.
type TransferHistory struct {
	Changes int      `yaml:"changes"`
	Memory  key.Size `yaml:"memory"`
}

// CompiledTransfer is a Transfer in the types of the packages that use it.
type CompiledTransfer struct {
	Sender  transfer.Config // without its data and its secondaries
	History zone.HistoryLimits
	// Notify are the receivers of NOTIFY besides the endpoints of NotifyService.
	// NotifyService is the zero Key if it is not configured.
	Notify        []netip.AddrPort
	NotifyService cluster.Key
}

// IsOn reports whether any client may transfer the zones.
func (t *CompiledTransfer) IsOn() bool { return len(t.Sender.Permissions) > 0 }

func (d *DNS) compileTransfer(made *Compiled) error {
	t, m := &d.Transfer, &made.Transfer
	m.History = zone.HistoryLimits{Changes: t.History.Changes, Octets: int64(t.History.Memory)}
	m.Sender.MaxTransfers, m.Sender.MaxSize, m.Sender.UDPSize = t.MaxTransfers, int64(t.Memory), uint16(d.UDPSize)
	for _, step := range []func(*CompiledTransfer) error{t.compileKeys, t.compileAllow, t.compileNotify} {
		if err := step(m); err != nil {
			return err
		}
	}
	for i, rule := range t.Allow {
		if rule.Certificate != "" && d.TLS.ClientCA == "" {
			return key.ItemErrorf(
				"dns.transfer.allow.certificate", i,
				"certificates of clients are checked with dns.tls.clientCA, which is empty",
			)
		}
	}
	if d.TLS.ClientCA != "" && len(d.TLS.Listen) == 0 {
		return key.Errorf("dns.tls.clientCA", "clients have certificates over TLS alone; give dns.tls.listen")
	}
	return nil
}

func (t *Transfer) compileKeys(m *CompiledTransfer) error {
	for i, k := range t.Keys {
		name, err := dnsname.Parse(k.Name)
		algorithm := dnswire.TSIGAlgorithm(strings.ToLower(k.Algorithm))
		switch {
		case err != nil:
			return key.ItemErrorf("dns.transfer.keys.name", i, "%w", err)
		case name.IsRoot():
			return key.ItemErrorf("dns.transfer.keys.name", i, "the root is not a name for a key")
		case slices.ContainsFunc(m.Sender.Keys, func(k transfer.KeyFile) bool { return k.Name == name }):
			return key.ItemErrorf("dns.transfer.keys.name", i, "%q is given twice", k.Name)
		case !algorithm.IsKnown():
			return key.ItemErrorf(
				"dns.transfer.keys.algorithm", i, "%q is not hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512",
				k.Algorithm,
			)
		case k.SecretFile == "":
			return key.ItemErrorf(
				"dns.transfer.keys.secretFile", i,
				"no file; a secret is 16 octets or more in base64, such as openssl rand -base64 32 gives",
			)
		}
		m.Sender.Keys = append(m.Sender.Keys, transfer.KeyFile{Name: name, Algorithm: algorithm, File: k.SecretFile})
	}
	return nil
}

func (t *Transfer) compileAllow(m *CompiledTransfer) error {
	for i, r := range t.Allow {
		rule := transfer.Permission{Certificate: r.Certificate}
		if len(r.Clients) == 0 && r.Key == "" && r.Certificate == "" {
			return key.ItemErrorf("dns.transfer.allow", i, "a rule for everybody; give clients, key or certificate")
		}
		var err error
		if rule.Clients, err = parsePrefixes(r.Clients); err != nil {
			return key.ItemErrorf("dns.transfer.allow.clients", i, "%w", err)
		}
		if r.Key != "" {
			name, err := dnsname.Parse(r.Key)
			if err != nil || !slices.ContainsFunc(m.Sender.Keys, func(k transfer.KeyFile) bool { return k.Name == name }) {
				return key.ItemErrorf("dns.transfer.allow.key", i, "%q is not the name of one of dns.transfer.keys", r.Key)
			}
			rule.Key = name
		}
		m.Sender.Permissions = append(m.Sender.Permissions, rule)
	}
	return nil
}

func (t *Transfer) compileNotify(m *CompiledTransfer) error {
	for i, text := range t.Notify {
		addr, err := netip.ParseAddrPort(text)
		if err != nil || addr.Port() == 0 {
			return key.ItemErrorf("dns.transfer.notify", i, "%q is not an address and port, such as 10.0.0.2:53", text)
		}
		m.Notify = append(m.Notify, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
	}
	if t.NotifyService == "" {
		return nil
	}
	ns, name, err := key.Object("dns.transfer.notifyService", t.NotifyService)
	if err != nil {
		return err
	}
	m.NotifyService = cluster.Key{Namespace: ns, Name: name}
	return nil
}
