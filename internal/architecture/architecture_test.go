// Package architecture holds no code; its test keeps the house in order: who
// may import whom, what packages may be called, and that each says what it is.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "portolan.dev/portolan"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Dir        string
	Doc        string
	Imports    []string
	GoFiles    []string
}

// arrow is an import that is allowed, and why.
type arrow struct{ from, to, why string }

// arrows between packages of this module, as paths below it. Data moves one
// way: source → cluster → kubezone → zone ← respond ← dnsserver.
var arrows = []arrow{
	{"cmd/portolan", "internal/cli", "main is the commands and nothing else"},
	{"internal/cli", "internal/check", "prints findings, and the rules"},
	{"internal/cli", "internal/config", "flags override the configuration"},
	{"internal/cli", "internal/corefile", "prints, and serves, what becomes of other servers' settings"},
	{"internal/cli", "internal/daemon", "commands ask for wired parts"},
	{"internal/cli", "internal/dnsname", "arguments are names"},
	{"internal/cli", "internal/dnswire", "records and responses are printed"},
	{"internal/cli", "internal/explain", "prints explanations"},
	{"internal/cli", "internal/filled", "prints objects"},
	{"internal/cli", "internal/kubezone", "the version command names the schema's"},
	{"internal/cli", "internal/podresolv", "arguments are Pods, and warnings are printed"},
	{"internal/cli", "internal/respond", "query asks without a socket"},
	{"internal/cli", "internal/cluster", "lists keys of objects"},
	{"internal/cli", "internal/serviceenv", "prints environments"},
	{"internal/cli", "internal/source/manifest", "prints what a look at manifests found"},
	{"internal/cli", "internal/zone", "zone prints entries"},
	{"internal/alloc", "internal/cluster", "fills in Services of the model"},
	{"internal/autopath", "internal/dnsname", "search paths are names"},
	{"internal/cache", "internal/dnswire", "keeps replies"},
	{"internal/admission", "internal/check", "its rules"},
	{"internal/admission", "internal/cluster", "rules judge the model"},
	{"internal/admission", "internal/podresolv", "what a Pod's policy means"},
	{"internal/admission", "internal/source/kubeobj", "turns API objects into the model's"},
	{"internal/config", "internal/check", "rules have names"},
	{"internal/admission", "internal/resolvconf", "the options of a Pod's dnsConfig"},
	{"internal/config", "internal/admission", "its settings are in the file"},
	{"internal/check", "internal/cluster", "judges the model"},
	{"internal/check", "internal/near", "names with a slip"},
	{"internal/check", "internal/podresolv", "what a Pod's settings come to"},
	{"internal/check", "internal/policy", "what NetworkPolicies allow"},
	{"internal/check", "internal/resolvconf", "options"},
	{"internal/config", "internal/autopath", "its settings are in the file"},
	{"internal/config", "internal/nodenet", "its settings are in the file"},
	{"internal/config", "internal/replica", "its settings are in the file"},
	{"internal/config", "internal/cache", "its settings are in the file"},
	{"internal/config", "internal/cluster", "names the DNS Service"},
	{"internal/config", "internal/dnsname", "zones are names"},
	{"internal/config", "internal/endpointslices", "its settings are in the file"},
	{"internal/config", "internal/leader", "its settings are in the file"},
	{"internal/config", "internal/dnsserver", "its settings are in the file"},
	{"internal/config", "internal/forward", "its settings are in the file"},
	{"internal/config", "internal/kubezone", "its settings are in the file"},
	{"internal/config", "internal/respond", "its settings are in the file"},
	{"internal/config", "internal/dnswire", "response codes have names"},
	{"internal/config", "internal/transfer", "its settings are in the file"},
	{"internal/config", "internal/zone", "how much is remembered of changes"},
	{"internal/daemon", "internal/transfer", "wiring"},
	{"internal/metrics", "internal/transfer", "tells what it counted"},
	{"internal/transfer", "internal/dnsname", "zones are names"},
	{"internal/transfer", "internal/dnswire", "messages and signatures"},
	{"internal/transfer", "internal/respond", "is asked by it"},
	{"internal/transfer", "internal/zone", "what is transferred"},
	{"internal/config", "internal/querylog", "its settings are in the file"},
	{"internal/config", "internal/rules", "they are in the file"},
	{"internal/config", "internal/alloc", "node ports are in the file"},
	{"internal/config", "internal/simulate", "its settings are in the file"},
	{"internal/daemon", "internal/simulate", "wiring"},
	{"internal/simulate", "internal/alloc", "gives Services their addresses"},
	{"internal/simulate", "internal/cluster", "completes the model"},
	{"internal/simulate", "internal/endpointslices", "gives Services their slices"},
	{"internal/config", "internal/yamlline", "lines of syntax errors"},
	{"internal/corefile", "internal/config", "makes one"},
	{"internal/corefile", "internal/dnsname", "zones are names"},
	{"internal/corefile", "internal/yamlline", "lines of syntax errors"},
	{"internal/config", "internal/podresolv", "how many nameservers a Pod has"},
	{"internal/daemon", "internal/admin", "wiring"},
	{"internal/daemon", "internal/admission", "wiring"},
	{"internal/daemon", "internal/autopath", "wiring"},
	{"internal/daemon", "internal/nodenet", "wiring"},
	{"internal/daemon", "internal/replica", "wiring"},
	{"internal/daemon", "internal/cache", "wiring"},
	{"internal/daemon", "internal/check", "wiring"},
	{"internal/daemon", "internal/dnswire", "asks servers for explanations"},
	{"internal/daemon", "internal/explain", "wiring"},
	{"internal/daemon", "internal/stub", "its questions are answered"},
	{"internal/daemon", "internal/cluster", "wiring"},
	{"internal/daemon", "internal/podresolv", "wiring"},
	{"internal/daemon", "internal/resolvconf", "a node has one"},
	{"internal/daemon", "internal/dnsname", "zones are names"},
	{"internal/daemon", "internal/endpointslices", "wiring"},
	{"internal/daemon", "internal/leader", "wiring"},
	{"internal/daemon", "internal/metrics", "wiring"},
	{"internal/daemon", "internal/serviceenv", "wiring"},
	{"internal/daemon", "internal/snapshot", "wiring"},
	{"internal/daemon", "internal/source/kubeapi", "wiring"},
	{"internal/daemon", "internal/config", "wiring"},
	{"internal/daemon", "internal/dnsserver", "wiring"},
	{"internal/daemon", "internal/filled", "wiring"},
	{"internal/daemon", "internal/forward", "wiring"},
	{"internal/daemon", "internal/kubezone", "wiring"},
	{"internal/daemon", "internal/respond", "wiring"},
	{"internal/daemon", "internal/querylog", "wiring"},
	{"internal/daemon", "internal/rules", "wiring"},
	{"internal/daemon", "internal/source/manifest", "wiring"},
	{"internal/daemon", "internal/zone", "wiring"},
	{"internal/source/manifest", "internal/parallel", "many files at once"},
	{"internal/source/manifest", "internal/cluster", "writes the model"},
	{"internal/source/manifest", "internal/near", "kinds with a slip"},
	{"internal/source/manifest", "internal/source/kubeobj", "turns API objects into the model's"},
	{"internal/source/manifest", "internal/yamlline", "lines of syntax errors"},
	{"internal/source/kubeapi", "internal/cluster", "writes the model"},
	{"internal/source/kubeapi", "internal/source/kubeobj", "turns API objects into the model's"},
	{"internal/metrics", "internal/cache", "tells its size"},
	{"internal/metrics", "internal/forward", "tells what it counted"},
	{"internal/metrics", "internal/replica", "tells how copies stand"},
	{"internal/metrics", "internal/respond", "tells what it counted"},
	{"internal/serviceenv", "internal/cluster", "compiles the model"},
	{"internal/endpointslices", "internal/parallel", "many Services at once"},
	{"internal/endpointslices", "internal/cluster", "completes the model"},
	{"internal/endpointslices", "internal/source/kubeobj", "turns the library's slices into the model's"},
	{"internal/snapshot", "internal/cluster", "keeps the model"},
	{"internal/snapshot", "internal/statefile", "in such a file"},
	{"internal/source/kubeobj", "internal/cluster", "makes the model's types"},
	{"internal/filled", "internal/cluster", "what was filled in"},
	{"internal/forward", "internal/cache", "what others answered"},
	{"internal/forward", "internal/dnsname", "suffixes of routes"},
	{"internal/forward", "internal/dnswire", "queries to others, and their replies"},
	{"internal/forward", "internal/resolvconf", "upstreams are in such a file"},
	{"internal/kubezone", "internal/parallel", "everything is compiled at once"},
	{"internal/kubezone", "internal/cluster", "compiles the model"},
	{"internal/kubezone", "internal/zone", "into this"},
	{"internal/kubezone", "internal/dnsname", "owner names"},
	{"internal/kubezone", "internal/dnswire", "RDATA"},
	{"internal/explain", "internal/check", "what is wrong with what a name stands for"},
	{"internal/explain", "internal/cluster", "what a name stands for"},
	{"internal/explain", "internal/dnswire", "answers"},
	{"internal/explain", "internal/podresolv", "the Pod's resolv.conf"},
	{"internal/explain", "internal/resolvconf", "what a resolver goes by"},
	{"internal/explain", "internal/stub", "what a resolver asks"},
	{"internal/podresolv", "internal/cluster", "Pods of the model"},
	{"internal/podresolv", "internal/resolvconf", "computes one"},
	{"internal/stub", "internal/dnswire", "types and codes"},
	{"internal/stub", "internal/podresolv", "whose resolver it is"},
	{"internal/stub", "internal/resolvconf", "resolvers go by one"},
	{"internal/policy", "internal/cluster", "judges the model"},
	{"internal/zone", "internal/dnsname", "owner names"},
	{"internal/zone", "internal/dnswire", "RRsets are kept ready in wire form"},
	{"internal/replica", "internal/dnsname", "zones are names"},
	{"internal/replica", "internal/dnswire", "queries for transfers, and their answers"},
	{"internal/replica", "internal/forward", "servers are written as upstreams are"},
	{"internal/replica", "internal/respond", "takes NOTIFYs from it"},
	{"internal/replica", "internal/statefile", "the copy is saved in such a file"},
	{"internal/replica", "internal/zone", "keeps copies of them"},
	{"internal/respond", "internal/zone", "answers from it"},
	{"internal/respond", "internal/autopath", "reads what names are searched for in"},
	{"internal/respond", "internal/cache", "what others answered"},
	{"internal/respond", "internal/forward", "asks others"},
	{"internal/respond", "internal/rules", "applies them"},
	{"internal/querylog", "internal/dnsname", "names in lines"},
	{"internal/querylog", "internal/dnswire", "types and codes in lines"},
	{"internal/querylog", "internal/respond", "is told of queries by it"},
	{"internal/rules", "internal/dnsname", "they are about names"},
	{"internal/rules", "internal/dnswire", "addresses are kept as RRsets"},
	{"internal/respond", "internal/dnswire", "reads queries, writes responses"},
	{"internal/respond", "internal/dnsname", "names of class CHAOS"},
	{"internal/dnsserver", "internal/respond", "tells it the client and transport"},
	{"internal/dnsserver", "internal/dnswire", "the longest message"},
	{"internal/dnswire", "internal/dnsname", "names on the wire"},
	{"internal/scenario", "internal/autopath", "answers as the server does"},
	{"internal/scenario", "internal/cluster", "which kinds are loaded"},
	{"internal/scenario", "internal/cache", "answers as the server does"},
	{"internal/scenario", "internal/config", "a scenario has settings"},
	{"internal/scenario", "internal/forward", "asks upstreams that are text"},
	{"internal/scenario", "internal/dnswire", "queries and responses"},
	{"internal/scenario", "internal/kubezone", "answers as the server does"},
	{"internal/scenario", "internal/respond", "clients"},
	{"internal/scenario", "internal/rules", "answers as the server does"},
	{"internal/scenario", "internal/dnsname", "names of transfers"},
	{"internal/scenario", "internal/transfer", "answers as the server does"},
	{"internal/scenario", "internal/zone", "answers as the server does, and as copies do"},
}

// libraries from outside, by path prefix, and who may import them.
var libraries = []arrow{
	{"internal/dnswire", "github.com/miekg/dns", "prints records, packs queries: nobody else needs to know it"},
	{"internal/scenario", "github.com/miekg/dns", "makes replies from text, for tests"},
	{"internal/cache", "github.com/maypok86/otter/v2", "decides what is kept"},
	{"internal/check", "golang.org/x/net/publicsuffix", "names of top-level domains"},
	{"internal/querylog", "github.com/dnstap/golang-dnstap", "the messages of dnstap"},
	{"internal/querylog", "github.com/farsightsec/golang-framestream", "how they are sent"},
	{"internal/querylog", "google.golang.org/protobuf/proto", "what they are made of"},
	{"internal/forward", "golang.org/x/sync", "goroutines that end together"},
	{"internal/admission", "k8s.io/", "API types, and a client"},
	{"internal/leader", "k8s.io/", "the election, and a client"},
	{"internal/admission", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/admission", "golang.org/x/sync", "one question for all that ask it at once"},
	{"internal/filled", "k8s.io/", "API types"},
	{"internal/filled", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/endpointslices", "k8s.io/", "API types, and what Kubernetes makes slices by"},
	{"internal/source/kubeobj", "k8s.io/", "API types and their validation"},
	{"internal/simulate", "k8s.io/", "slices are API objects, for those who print them"},
	{"internal/source/manifest", "k8s.io/", "API types"},
	{"internal/source/kubeapi", "k8s.io/", "API types, and the Reflector"},
	{"internal/source/kubeapi", "google.golang.org/protobuf/encoding/protowire", "fields that nobody needs are cut out of messages"},
	{"internal/source/kubeapi", "github.com/klauspost/compress/gzip", "lists come packed"},
	{"internal/source/kubeapi", "github.com/go-logr/logr", "client-go logs through it"},
	{"internal/source/kubeapi", "golang.org/x/sync", "goroutines that end together"},
	{"internal/source/manifest", "sigs.k8s.io/json", "strict decoding as the API server does it"},
	{"internal/source/manifest", "go.yaml.in/yaml/v3", "lines of fields"},
	{"internal/source/manifest", "github.com/fsnotify/fsnotify", "watches directories"},
	{"internal/config", "go.yaml.in/yaml/v3", "lines of keys"},
	{"internal/cli", "go.yaml.in/yaml/v3", "a configuration as JSON, objects as YAML"},
	{"internal/corefile", "github.com/coredns/caddy/caddyfile", "reads Corefiles as CoreDNS does"},
	{"internal/corefile", "go.yaml.in/yaml/v3", "kube-dns' settings are a manifest"},
	{"internal/yamlline", "go.yaml.in/yaml/v3", "its errors"},
	{"internal/cli", "github.com/spf13/cobra", "commands and flags"},
	{"internal/cli", "golang.org/x/term", "whether it prints to a terminal, and how wide that is"},
	{"internal/respond", "github.com/dchest/siphash", "server cookies are SipHash-2-4"},
	{"internal/daemon", "golang.org/x/sys", "the capability for ports below 1024"},
	{"internal/dnsserver", "golang.org/x/sys", "socket options, and batches of packets"},
	{"internal/dnsserver", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "github.com/KimMachineGun/automemlimit", "the memory limit is the control group's"},
	{"internal/metrics", "github.com/prometheus/client_golang", "metrics in Prometheus' format"},
	{"internal/apitest", "k8s.io/", "API types, and selectors"},
	{"internal/nodenet", "github.com/vishvananda/netlink", "devices and their addresses"},
	{"internal/nodenet", "github.com/google/nftables", "the table of a node"},
	{"internal/nodenet", "github.com/mdlayher/netlink", "a table that goes with its socket"},
	{"internal/nodenet", "golang.org/x/sys", "the TUN device, and names of numbers"},
	{"internal/scenario", "golang.org/x/tools/txtar", "scenario files"},
	{"test/netns/nodes", "github.com/miekg/dns", "an upstream server, and who asks"},
	{"test/netns/nodes", "github.com/vishvananda/netlink", "links between namespaces"},
	{"test/netns/nodes", "golang.org/x/sys", "namespaces"},
}

// TestImports: every import is an allowed arrow, and every arrow is used.
func TestImports(t *testing.T) {
	used := make(map[arrow]bool)
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			if standard(imported) {
				continue
			}
			a, ok := allowed(from, imported)
			if !ok {
				t.Errorf("%s imports %s: not an allowed arrow", from, imported)
			}
			used[a] = true
		}
	}
	for _, a := range slices.Concat(arrows, libraries) {
		if !used[a] {
			t.Errorf("%s → %s is allowed (%s) and not used", a.from, a.to, a.why)
		}
	}
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func allowed(from, imported string) (arrow, bool) {
	if to, ours := strings.CutPrefix(imported, module+"/"); ours {
		i := slices.IndexFunc(arrows, func(a arrow) bool { return a.from == from && a.to == to })
		if i < 0 {
			return arrow{}, false
		}
		return arrows[i], true
	}
	i := slices.IndexFunc(libraries, func(a arrow) bool { return a.from == from && strings.HasPrefix(imported, a.to) })
	if i < 0 {
		return arrow{}, false
	}
	return libraries[i], true
}

// TestPackages: each package says what it is, and has a name of its own.
func TestPackages(t *testing.T) {
	for _, p := range list(t) {
		name := path.Base(p.ImportPath)
		want := "Package " + name + " "
		if strings.Contains(p.ImportPath, "/cmd/") {
			want = "Command " + name + " "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: package comment begins %q, want %q", p.ImportPath, p.Doc, want)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "pkg"}, name) {
			t.Errorf("%s: a package needs a name of its own", p.ImportPath)
		}
	}
}

// look opens the package's folder and files, so that the cache of test results
// knows what these tests depend on.
func look(t *testing.T, p pkg) {
	t.Helper()
	if _, err := os.ReadDir(p.Dir); err != nil {
		t.Fatal(err)
	}
	for _, file := range p.GoFiles {
		if _, err := os.ReadFile(filepath.Join(p.Dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

// list is every package of the module that has code beside tests.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
		look(t, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list %s/...: %d packages", module, len(all))
	}
	return all
}
