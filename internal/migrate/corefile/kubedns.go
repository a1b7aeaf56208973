package corefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/support/yamlerr"
)

// ParseKubeDNS translates a manifest of the ConfigMap kube-dns. Its errors have the file
// and the line.
func ParseKubeDNS(path string, data []byte) (*Translation, error) {
	t := newTranslator("config map", path, Options{})
	entries, err := configMap(path, data)
	if err != nil {
		return nil, err
	}
	// The defaults of kube-dns, and its flags as installed.
	t.Config.DNS.Listen, t.Config.DNS.Pods, t.Config.DNS.TTL = []string{"0.0.0.0:53", "[::]:53"}, "insecure", 30
	t.Config.Admin.Listen = config.Default().Admin.Listen
	upstreams := false
	for _, e := range entries {
		switch e.name {
		case "stubDomains":
			t.stubDomains(&e)
		case "upstreamNameservers":
			upstreams = true
			t.upstreamNameservers(&e)
		case "federations":
			t.note(Missing, &e, "Kubernetes no longer has federations")
		default:
			t.note(Missing, &e, "not a key of kube-dns")
		}
	}
	if !upstreams {
		t.appendRoute(&statement{file: path, line: 1}, dnssettings.Route{ResolvConf: "/etc/resolv.conf"})
	}
	return t.finish()
}

// configMap returns the entries of a ConfigMap as statements with one argument.
func configMap(path string, data []byte) ([]statement, error) {
	wrong := func(line int, format string, args ...any) ([]statement, error) {
		return nil, fmt.Errorf("config map %s:%d: %w", path, line, fmt.Errorf(format, args...))
	}
	var root yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		line, err := yamlerr.Split(err)
		return wrong(max(line, 1), "%w", err)
	}
	var doc struct {
		Kind string    `yaml:"kind"`
		Data yaml.Node `yaml:"data"`
	}
	if err := root.Decode(&doc); err != nil {
		return wrong(1, "not a manifest of a ConfigMap")
	}
	if doc.Kind != "ConfigMap" {
		return wrong(1, "kind is %q, not ConfigMap", doc.Kind)
	}
	var entries []statement
	if doc.Data.Kind == 0 || doc.Data.ShortTag() == "!!null" {
		return nil, nil
	}
	if doc.Data.Kind != yaml.MappingNode {
		return wrong(doc.Data.Line, "data is not a mapping")
	}
	for i := 0; i+1 < len(doc.Data.Content); i += 2 {
		key, value := doc.Data.Content[i], doc.Data.Content[i+1]
		entries = append(entries, statement{file: path, line: key.Line, name: key.Value, args: []string{value.Value}})
	}
	return entries, nil
}

// stubDomains translates a JSON object of domains and their servers.
func (t *translator) stubDomains(e *statement) {
	var domains map[string][]string
	if err := json.Unmarshal([]byte(e.args[0]), &domains); err != nil {
		t.fail(e, "not a JSON object of lists: %w", err)
		return
	}
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		name, err := dnsname.Parse(domain)
		if err != nil {
			t.fail(e, "%w", err)
			return
		}
		t.kubeDNSRoute(e, zoneText(name), domains[domain])
	}
}

// upstreamNameservers translates a JSON list of servers.
func (t *translator) upstreamNameservers(e *statement) {
	var servers []string
	if err := json.Unmarshal([]byte(e.args[0]), &servers); err != nil {
		t.fail(e, "not a JSON list: %w", err)
		return
	}
	t.kubeDNSRoute(e, "", servers)
}

func (t *translator) kubeDNSRoute(e *statement, suffix string, servers []string) {
	var route dnssettings.Route
	for _, s := range servers {
		addr, _, err := parseServer("dns", strings.ReplaceAll(s, "#", ":")) // dnsmasq separates the port by #
		if ip, errIP := netip.ParseAddr(s); errIP == nil {
			addr, err = ip.Unmap().String(), nil
		}
		if err != nil {
			t.note(Missing, e, "%s: upstreams must be addresses: host names are not resolved", s)
			continue
		}
		route.Upstreams = append(route.Upstreams, addr)
	}
	if len(route.Upstreams) == 0 {
		t.note(Missing, e, "none of the servers for %s is supported: there is no route", showZone(suffix))
		return
	}
	route.Suffix = suffix
	t.appendRoute(e, route)
}
