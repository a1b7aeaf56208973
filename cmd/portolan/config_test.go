//go:build unix

package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/configtest"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// effects has for each key of the configuration file a test that the key has its
// documented effect, and that the default behaves differently.
var effects = map[string]func(*testing.T){
	"manifests": func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "only.yaml")
		write(t, file, service("only", "10.96.0.9"))
		wantPrinted(t, "manifests: "+file, "\t10.96.0.9\n", "only.shop.svc.cluster.local")
	},
	"dns.listen": func(t *testing.T) {
		p := serve(t, "dns:\n  listen: ['"+anyPort+"', '"+anyPort+"']")
		addrs := p.waitLog(`listen="\[(\S+) (\S+)\]"`)[1:]
		for _, p.addr = range addrs {
			if err := wantData(p.ask("udp", question(web)), "10.96.0.7"); err != nil {
				t.Errorf("%s: %v", p.addr, err)
			}
		}
	},
	"dns.zones": func(t *testing.T) {
		wantChange(t, "dns: {zones: [a.example]}", "REFUSED", "\t10.96.0.7\n", "web.shop.svc.a.example")
		wantChange(t, "dns: {zones: [a.example]}", "web.shop.svc.cluster.local.\n", "web.shop.svc.a.example.\n", "7.0.96.10.in-addr.arpa", "PTR")
	},
	"dns.ttl": func(t *testing.T) {
		wantChange(t, "dns: {ttl: 77}", "\t5\tIN\tA\t", "\t77\tIN\tA\t", web)
		wantChange(t, "dns: {ttl: 77}", " 5\n", " 77\n", "cluster.local", "SOA")
	},
	"dns.pods": func(t *testing.T) {
		const pod, noPod = "10-244-1-30.shop.pod.cluster.local", "10-9-9-9.shop.pod.cluster.local"
		wantChange(t, "dns: {pods: disabled}", "\t10.244.1.30\n", "NXDOMAIN", pod)
		wantChange(t, "dns: {pods: insecure}", "NXDOMAIN", "\t10.9.9.9\n", noPod)
		wantPrinted(t, "dns: {pods: verified}", "\t10.244.1.30\n", pod)
	},
	"dns.endpointPodNames": func(t *testing.T) {
		wantChange(t, "dns: {endpointPodNames: true}", "NXDOMAIN", "\t10.244.1.18\n", "db-spare.db.data.svc.cluster.local")
	},
	"dns.serviceCIDRs": func(t *testing.T) {
		wantChange(t, "dns: {serviceCIDRs: [10.96.0.0/16]}", "\nin-addr.arpa.\t5\tIN\tSOA", "\n96.10.in-addr.arpa.\t5\tIN\tSOA", "9.9.96.10.in-addr.arpa", "PTR")
	},
	"dns.podCIDRs": func(t *testing.T) {
		wantChange(t, "dns: {podCIDRs: [10.244.0.0/16]}", "\nin-addr.arpa.\t5\tIN\tSOA", "\n244.10.in-addr.arpa.\t5\tIN\tSOA", "9.9.244.10.in-addr.arpa", "PTR")
	},
	"dns.nameServer.service": func(t *testing.T) {
		wantChange(t, "dns: {nameServer: {service: shop/web}}", "\t127.0.0.1\n", "\t10.96.0.7\n", "ns.dns.cluster.local")
	},
	"dns.nameServer.addresses": func(t *testing.T) {
		wantChange(t, "dns: {nameServer: {addresses: [192.0.2.53]}}", "\t127.0.0.1\n", "\t192.0.2.53\n", "ns.dns.cluster.local")
	},
	"dns.udpSize":            effectOfUDPSize,
	"dns.udpSteering":        effectOfSteering,
	"dns.identity.nsid":      effectOfNSID,
	"dns.identity.serverID":  func(t *testing.T) { effectOnChaos(t, "serverID", "id.server.") },
	"dns.identity.version":   func(t *testing.T) { effectOnChaos(t, "version", "version.bind.") },
	"dns.cookies.secrets":    effectOfCookieSecrets,
	"dns.tcp.maxConnections": effectOfMaxConnections,
	"dns.tcp.maxInFlight":    effectOfMaxInFlight,
	"dns.tcp.maxQueries":     effectOfMaxQueries,
	"dns.tcp.idle":           effectOfIdle,
	"log.level":              effectOfLogLevel,

	"kubernetes.kubeconfig":      effectOfKubeconfig,
	"kubernetes.namespaces":      effectOfNamespaces,
	"kubernetes.serviceSelector": effectOfServiceSelector,
	"kubernetes.qps":             effectOfQPS,
	"kubernetes.burst":           effectOfBurst,
	"kubernetes.watchList":       effectOfWatchList,
	"kubernetes.silence":         effectOfSilence,
	"snapshot.file":              effectOfSnapshotFile,
	"snapshot.settle":            effectOfSettle,
	"admin.listen":               effectOfAdminListen,
	"admin.debug":                effectOfDebug,
	"admin.pprof":                effectOfPProf,
	"admin.maxStaleness":         effectOfMaxStaleness,
	"lameduck":                   effectOfLameduck,
	"log.format":                 effectOfLogFormat,
}

func TestConfigEffects(t *testing.T) {
	t.Parallel()
	for key, test := range effects {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// TestEveryKeyHasAnEffectTest checks that effects has all keys.
func TestEveryKeyHasAnEffectTest(t *testing.T) {
	keys := keysOf(reflect.TypeFor[config.Config](), "")
	tested := slices.Sorted(maps.Keys(effects))
	if slices.Sort(keys); !slices.Equal(keys, tested) {
		t.Errorf("keys of the configuration:\n%q\nkeys with a test of their effect:\n%q", keys, tested)
	}
}

func keysOf(section reflect.Type, prefix string) (keys []string) {
	for f := range section.Fields() {
		key := prefix + f.Tag.Get("yaml")
		of := f.Type
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			keys = append(keys, keysOf(of, key+".")...)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// settings writes a configuration file. By default, the manifests are testdata/shop and
// the servers listen on free ports.
func settings(t *testing.T, text string) (path string) {
	t.Helper()
	all := fmt.Sprintf("dns: {listen: ['%s']}\nadmin: {listen: '%s'}", anyPort, anyPort)
	if !strings.HasPrefix(text, "kubernetes:") {
		all += "\nmanifests: testdata/shop"
	}
	path = filepath.Join(t.TempDir(), "portolan.yaml")
	write(t, path, configtest.Merge(all, text))
	return path
}

// serve starts a server with a configuration and waits until it answers web.
func serve(t *testing.T, text string) *process {
	t.Helper()
	p := start(t, "--config", settings(t, text))
	p.await(patience, web, "10.96.0.7")
	return p
}

// wantPrinted checks that the output of query contains words.
func wantPrinted(t *testing.T, text, words string, query ...string) {
	t.Helper()
	if text == "" {
		text = "# the defaults"
	}
	cmd := exec.Command("portolan", append([]string{"query", "--config", settings(t, text)}, query...)...)
	printed, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	if !strings.Contains(string(printed), words) {
		t.Errorf("%q with %q printed\n%swant %q", cmd.Args, text, printed, words)
	}
}

// wantChange checks that the output of query contains other words with a setting than
// without it.
func wantChange(t *testing.T, setting, without, with string, query ...string) {
	t.Helper()
	wantPrinted(t, "", without, query...)
	wantPrinted(t, setting, with, query...)
}

// manyEndpoints writes manifests of web and of a headless Service with the given ports
// and number of endpoints, at most 65,536.
func manyEndpoints(t *testing.T, ports string, endpoints int) (path string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(service("web", "10.96.0.7") + `---
apiVersion: v1
kind: Service
metadata: {name: many, namespace: shop}
spec: {clusterIP: None}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: many-1, namespace: shop, labels: {kubernetes.io/service-name: many}}
addressType: IPv4
ports: ` + ports + `
endpoints:
`)
	for i := range endpoints {
		fmt.Fprintf(&b, "  - addresses: [10.100.%d.%d]\n", i>>8, i&255)
	}
	path = filepath.Join(t.TempDir(), "many.yaml")
	write(t, path, b.String())
	return path
}

func effectOfUDPSize(t *testing.T) {
	manifests := "manifests: " + manyEndpoints(t, "[]", 100) // more than fit into a small message
	q := question("many.shop.svc.cluster.local.")
	q.UDPSize = 4096
	for setting, want := range map[string]struct {
		truncated bool
		least     int
		most      int
	}{
		"":                     {true, 70, 80}, // 16 octets each, in 1232
		"dns: {udpSize: 512}":  {true, 25, 30},
		"dns: {udpSize: 4096}": {false, 100, 100},
	} {
		p := serve(t, manifests+"\n"+setting)
		var m *dnswire.Message
		p.poll(patience, func() error {
			if m = p.ask("udp", q); len(m.Answer) == 0 {
				return fmt.Errorf("answer:\n%swant any", m)
			}
			return nil
		})
		if n := len(m.Answer); slices.Contains(m.Flags, "tc") != want.truncated || n < want.least || n > want.most {
			t.Errorf("%q: %d records, flags %q, want %+v", setting, n, m.Flags, want)
		}
	}
}

func effectOfNSID(t *testing.T) {
	q := question(web)
	q.Options = map[dnswire.OptionCode][]byte{dnswire.OptionNSID: {}}
	m := serve(t, "dns: {identity: {nsid: harbor-1}}").ask("udp", q)
	if want := hex.EncodeToString([]byte("harbor-1")); m.Options[dnswire.OptionNSID] != want {
		t.Errorf("options %q, want NSID %s", m.Options, want)
	}
}

func effectOnChaos(t *testing.T, key, name string) {
	q := dnswire.QuerySpec{Name: name, Type: dnswire.TypeTXT, Class: dnswire.ClassCHAOS}
	if m := serve(t, "").ask("udp", q); m.Status != "REFUSED" {
		t.Errorf("without identity.%s: answer\n%swant REFUSED", key, m)
	}
	m := serve(t, "dns:\n  identity: {"+key+": harbor}").ask("udp", q)
	if len(m.Answer) != 1 || m.Answer[0].Data != `"harbor"` {
		t.Errorf("identity.%s: answer\n%swant harbor", key, m)
	}
}

// effectOfCookieSecrets checks that each server with the secret of a cookie accepts it,
// and that the first secret is used for new cookies.
func effectOfCookieSecrets(t *testing.T) {
	const first, second = "000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"
	secrets := func(all ...string) *process {
		return serve(t, "dns:\n  cookies: {secrets: ['"+strings.Join(all, "', '")+"']}")
	}
	cookie := func(p *process, sent string) string {
		t.Helper()
		raw, err := hex.DecodeString(sent)
		if err != nil {
			t.Fatal(err)
		}
		q := question(web)
		q.Options = map[dnswire.OptionCode][]byte{dnswire.OptionCookie: raw}
		return p.ask("udp", q).Options[dnswire.OptionCookie]
	}
	const client = "1112131415161718"
	old, both, next, none := secrets(first), secrets(second, first), secrets(second), serve(t, "")
	made := cookie(old, client)
	if len(made) != 48 || !strings.HasPrefix(made, client) {
		t.Fatalf("cookie %q, want the client's and a server's", made)
	}
	if got := cookie(both, made); got != made {
		t.Errorf("cookie of the second secret %s: got %s, want the same", made, got)
	}
	for claim, p := range map[string]*process{"without that secret": next, "with a secret of its own": none} {
		if got := cookie(p, made); got == made || len(got) != 48 {
			t.Errorf("a server %s: cookie %s for %s, want another", claim, got, made)
		}
	}
	rolled := cookie(both, client)
	if got := cookie(next, rolled); got != rolled {
		t.Errorf("cookie of the first secret %s: got %s, want the same", rolled, got)
	}
}

// stillAnswers checks that the server answers on a connection used before.
func (c *conn) stillAnswers() {
	c.t.Helper()
	if m, err := c.ask(question(web)); err != nil || m.Status != "NOERROR" {
		c.t.Fatalf("answer %v, %v, want one", m, err)
	}
}

func effectOfMaxConnections(t *testing.T) {
	p := serve(t, "dns: {tcp: {maxConnections: 2}}")
	var conns []*conn
	for range 3 {
		c := p.dial("tcp")
		c.stillAnswers()
		conns = append(conns, c)
	}
	conns[0].wantClosed()
	conns[1].stillAnswers()
	conns[2].stillAnswers()
}

// effectOfMaxInFlight checks that at most the set number of responses to pipelined
// queries is sent at once.
func effectOfMaxInFlight(t *testing.T) {
	// The kernel may coalesce segments, but not each time.
	c := serve(t, "dns: {tcp: {maxInFlight: 1}}").dial("tcp")
	for n := 0; answeredTogether(t, c); n++ {
		if n == 100 {
			t.Error("tcp.maxInFlight 1: responses always arrive together")
			break
		}
	}
	if !answeredTogether(t, serve(t, "").dial("tcp")) {
		t.Error("tcp.maxInFlight 64: responses arrived separately")
	}
}

// answeredTogether sends pipelined queries and reports whether all responses arrive at
// once.
func answeredTogether(t *testing.T, c *conn) bool {
	t.Helper()
	const some = 30
	packet, err := dnswire.NewQuery(question(web))
	if err != nil {
		t.Fatal(err)
	}
	var stream []byte
	for range some {
		stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(packet))), packet...)
	}
	if _, err := c.Write(stream); err != nil {
		t.Fatal(err)
	}
	answers := make([]byte, 1<<16)
	first, err := c.Read(answers)
	if err != nil {
		t.Fatal(err)
	}
	length := 2 + int(binary.BigEndian.Uint16(answers))
	if _, err := io.ReadFull(c, answers[first:some*length]); err != nil {
		t.Fatal(err)
	}
	return first == some*length
}

func effectOfMaxQueries(t *testing.T) {
	c := serve(t, "dns: {tcp: {maxQueries: 2}}").dial("tcp")
	c.stillAnswers()
	c.stillAnswers()
	c.wantClosed()
}

// effectOfIdle checks that an idle connection is closed, and that the keepalive option
// has the timeout in units of 100 ms.
func effectOfIdle(t *testing.T) {
	q := question(web)
	q.Options = map[dnswire.OptionCode][]byte{dnswire.OptionKeepalive: {}}
	keepalive := func(p *process) string { return p.ask("tcp", q).Options[dnswire.OptionKeepalive] }
	if got := keepalive(serve(t, "")); got != "0064" {
		t.Errorf("keepalive %q, want 0064: 10 s", got)
	}
	p := serve(t, "dns: {tcp: {idle: 300ms}}")
	if got := keepalive(p); got != "0003" {
		t.Errorf("tcp.idle 300ms: keepalive %q, want 0003", got)
	}
	p.dial("tcp").wantClosed()
}

// effectOfLogLevel checks that messages below the level are not logged. A broken document
// is an error and an unknown field a warning; both are logged before web is answered.
func effectOfLogLevel(t *testing.T) {
	dir := shop(t)
	write(t, filepath.Join(dir, "broken.yaml"), service("broken", "[]"))
	write(t, filepath.Join(dir, "odd.yaml"), service("odd", "10.96.0.8")+"extra: 1\n")
	levels := []string{"debug", "info", "warn", "error"}
	said := map[string]string{"info": "level=INFO msg=stopped", "warn": "level=WARN ", "error": "level=ERROR "}
	for i, level := range levels {
		p := launch(t, "--config", settings(t, "manifests: "+dir+"\nlog: {level: "+level+"}"))
		p.waitLog("file=" + filepath.Join(dir, "broken.yaml"))
		p.waitLog(map[bool]string{true: "odd.yaml", false: "broken.yaml"}[level != "error"])
		p.stop(syscall.SIGTERM)
		for other, words := range said {
			if got, want := strings.Contains(p.logged(), words), slices.Index(levels, other) >= i; got != want {
				t.Errorf("log.level %s: %q logged: %t, want %t\n%s", level, words, got, want, p.logged())
			}
		}
	}
}

func effectOfLogFormat(t *testing.T) {
	p := serve(t, "log: {format: json}")
	p.waitLog(`^\{"time":"[^"]+","level":"INFO","msg":"serving","listen":\["127\.0\.0\.1:\d+"\],"zones":\["cluster\.local"\],"admin":"127\.0\.0\.1:\d+"\}$`)
	serve(t, "log: {format: text}").waitLog(`^time=\S+ level=INFO msg=serving listen=\[127\.0\.0\.1:\d+\] zones=\[cluster\.local\] admin=127\.0\.0\.1:\d+$`)
}
