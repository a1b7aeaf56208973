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
	{"internal/cli", "internal/pod/lint", "prints findings, and the rules"},
	{"internal/cli", "internal/support/suggest", "suggests rules for misspelt ones"},
	{"internal/cli", "internal/config", "flags override the configuration"},
	{"internal/cli", "internal/migrate/corefile", "prints, and serves, what becomes of other servers' settings"},
	{"internal/cli", "internal/daemon", "commands ask for wired parts"},
	{"internal/cli", "internal/dns/dnsname", "arguments are names"},
	{"internal/cli", "internal/dns/dnswire", "records and responses are printed"},
	{"internal/cli", "internal/pod/explain", "prints explanations"},
	{"internal/cli", "internal/kube/simulate/apiobject", "prints objects"},
	{"internal/cli", "internal/dns/kubezone", "the version command names the schema's"},
	{"internal/cli", "internal/pod/dnsconfig", "arguments are Pods, and warnings are printed"},
	{"internal/cli", "internal/dns/respond", "query asks without a socket"},
	{"internal/cli", "internal/cluster", "lists keys of objects"},
	{"internal/cli", "internal/pod/serviceenv", "prints environments"},
	{"internal/cli", "internal/kube/manifest", "prints what a look at manifests found"},
	{"internal/cli", "internal/dns/zone", "zone prints entries"},
	{"internal/kube/simulate/alloc", "internal/cluster", "fills in Services of the model"},
	{"internal/dns/autopath", "internal/dns/dnsname", "search paths are names"},
	{"internal/dns/cache", "internal/dns/dnswire", "keeps replies"},
	{"internal/kube/admission", "internal/pod/lint", "its rules"},
	{"internal/kube/admission", "internal/cluster", "rules judge the model"},
	{"internal/kube/admission", "internal/pod/dnsconfig", "what a Pod's policy means"},
	{"internal/kube/admission", "internal/kube/object", "turns API objects into the model's"},
	{"internal/config", "internal/pod/lint", "rules have names"},
	{"internal/kube/admission", "internal/dns/resolvconf", "the options of a Pod's dnsConfig"},
	{"internal/config", "internal/kube/admission", "its settings are in the file"},
	{"internal/pod/lint", "internal/cluster", "judges the model"},
	{"internal/pod/lint", "internal/support/suggest", "names with a slip"},
	{"internal/pod/lint", "internal/pod/dnsconfig", "what a Pod's settings come to"},
	{"internal/pod/lint", "internal/policy/semantics", "what NetworkPolicies allow"},
	{"internal/pod/lint", "internal/dns/resolvconf", "options"},
	{"internal/config", "internal/dns/autopath", "its settings are in the file"},
	{"internal/config", "internal/node/hostnet", "its settings are in the file"},
	{"internal/config", "internal/dns/secondary", "its settings are in the file"},
	{"internal/config", "internal/dns/cache", "its settings are in the file"},
	{"internal/config", "internal/cluster", "names the DNS Service"},
	{"internal/config", "internal/dns/dnsname", "zones are names"},
	{"internal/config", "internal/kube/endpointslices", "its settings are in the file"},
	{"internal/config", "internal/kube/leader", "its settings are in the file"},
	{"internal/config", "internal/dns/dnsserver", "its settings are in the file"},
	{"internal/config", "internal/dns/forward", "its settings are in the file"},
	{"internal/config", "internal/dns/kubezone", "its settings are in the file"},
	{"internal/config", "internal/dns/respond", "its settings are in the file"},
	{"internal/config", "internal/dns/dnswire", "response codes have names"},
	{"internal/config", "internal/dns/transfer", "its settings are in the file"},
	{"internal/config", "internal/dns/zone", "how much is remembered of changes"},
	{"internal/daemon", "internal/dns/transfer", "wiring"},
	{"internal/ops/metrics", "internal/dns/transfer", "tells what it counted"},
	{"internal/dns/transfer", "internal/dns/dnsname", "zones are names"},
	{"internal/dns/transfer", "internal/dns/dnswire", "messages and signatures"},
	{"internal/dns/transfer", "internal/dns/respond", "is asked by it"},
	{"internal/dns/transfer", "internal/dns/zone", "what is transferred"},
	{"internal/config", "internal/dns/querylog", "its settings are in the file"},
	{"internal/config", "internal/dns/filter", "they are in the file"},
	{"internal/config", "internal/kube/simulate/alloc", "node ports are in the file"},
	{"internal/config", "internal/kube/simulate", "its settings are in the file"},
	{"internal/daemon", "internal/kube/simulate", "wiring"},
	{"internal/kube/simulate", "internal/kube/simulate/alloc", "gives Services their addresses"},
	{"internal/kube/simulate", "internal/cluster", "completes the model"},
	{"internal/kube/simulate", "internal/kube/endpointslices", "gives Services their slices"},
	{"internal/config", "internal/support/yamlerr", "lines of syntax errors"},
	{"internal/migrate/corefile", "internal/config", "makes one"},
	{"internal/migrate/corefile", "internal/dns/dnsname", "zones are names"},
	{"internal/migrate/corefile", "internal/support/yamlerr", "lines of syntax errors"},
	{"internal/config", "internal/pod/dnsconfig", "how many nameservers a Pod has"},
	{"internal/daemon", "internal/ops/admin", "wiring"},
	{"internal/daemon", "internal/kube/admission", "wiring"},
	{"internal/daemon", "internal/dns/autopath", "wiring"},
	{"internal/daemon", "internal/node/hostnet", "wiring"},
	{"internal/daemon", "internal/dns/secondary", "wiring"},
	{"internal/daemon", "internal/dns/cache", "wiring"},
	{"internal/daemon", "internal/pod/lint", "wiring"},
	{"internal/daemon", "internal/dns/dnswire", "asks servers for explanations"},
	{"internal/daemon", "internal/pod/explain", "wiring"},
	{"internal/daemon", "internal/pod/stubresolver", "its questions are answered"},
	{"internal/daemon", "internal/cluster", "wiring"},
	{"internal/daemon", "internal/pod/dnsconfig", "wiring"},
	{"internal/daemon", "internal/dns/resolvconf", "a node has one"},
	{"internal/daemon", "internal/dns/dnsname", "zones are names"},
	{"internal/daemon", "internal/kube/endpointslices", "wiring"},
	{"internal/daemon", "internal/kube/leader", "wiring"},
	{"internal/daemon", "internal/ops/metrics", "wiring"},
	{"internal/daemon", "internal/pod/serviceenv", "wiring"},
	{"internal/daemon", "internal/cluster/snapshot", "wiring"},
	{"internal/daemon", "internal/kube/api", "wiring"},
	{"internal/daemon", "internal/config", "wiring"},
	{"internal/daemon", "internal/dns/dnsserver", "wiring"},
	{"internal/daemon", "internal/kube/simulate/apiobject", "wiring"},
	{"internal/daemon", "internal/dns/forward", "wiring"},
	{"internal/daemon", "internal/dns/kubezone", "wiring"},
	{"internal/daemon", "internal/dns/respond", "wiring"},
	{"internal/daemon", "internal/dns/querylog", "wiring"},
	{"internal/daemon", "internal/dns/filter", "wiring"},
	{"internal/daemon", "internal/kube/manifest", "wiring"},
	{"internal/daemon", "internal/dns/zone", "wiring"},
	{"internal/kube/manifest", "internal/support/parallel", "many files at once"},
	{"internal/kube/manifest", "internal/cluster", "writes the model"},
	{"internal/kube/manifest", "internal/support/suggest", "kinds with a slip"},
	{"internal/kube/manifest", "internal/kube/object", "turns API objects into the model's"},
	{"internal/kube/manifest", "internal/support/yamlerr", "lines of syntax errors"},
	{"internal/kube/api", "internal/cluster", "writes the model"},
	{"internal/kube/api", "internal/kube/object", "turns API objects into the model's"},
	{"internal/ops/metrics", "internal/dns/cache", "tells its size"},
	{"internal/ops/metrics", "internal/dns/forward", "tells what it counted"},
	{"internal/ops/metrics", "internal/dns/secondary", "tells how copies stand"},
	{"internal/ops/metrics", "internal/dns/respond", "tells what it counted"},
	{"internal/pod/serviceenv", "internal/cluster", "compiles the model"},
	{"internal/kube/endpointslices", "internal/support/parallel", "many Services at once"},
	{"internal/kube/endpointslices", "internal/cluster", "completes the model"},
	{"internal/kube/endpointslices", "internal/kube/object", "turns the library's slices into the model's"},
	{"internal/cluster/snapshot", "internal/cluster", "keeps the model"},
	{"internal/cluster/snapshot", "internal/support/statefile", "in such a file"},
	{"internal/kube/object", "internal/cluster", "makes the model's types"},
	{"internal/kube/simulate/apiobject", "internal/cluster", "what was filled in"},
	{"internal/dns/forward", "internal/dns/cache", "what others answered"},
	{"internal/dns/forward", "internal/dns/dnsname", "suffixes of routes"},
	{"internal/dns/forward", "internal/dns/dnswire", "queries to others, and their replies"},
	{"internal/dns/forward", "internal/dns/resolvconf", "upstreams are in such a file"},
	{"internal/dns/kubezone", "internal/support/parallel", "everything is compiled at once"},
	{"internal/dns/kubezone", "internal/cluster", "compiles the model"},
	{"internal/dns/kubezone", "internal/dns/zone", "into this"},
	{"internal/dns/kubezone", "internal/dns/dnsname", "owner names"},
	{"internal/dns/kubezone", "internal/dns/dnswire", "RDATA"},
	{"internal/pod/explain", "internal/pod/lint", "what is wrong with what a name stands for"},
	{"internal/pod/explain", "internal/support/suggest", "suggests names for misspelt ones"},
	{"internal/pod/explain", "internal/cluster", "what a name stands for"},
	{"internal/pod/explain", "internal/dns/dnswire", "answers"},
	{"internal/pod/explain", "internal/pod/dnsconfig", "the Pod's resolv.conf"},
	{"internal/pod/explain", "internal/dns/resolvconf", "what a resolver goes by"},
	{"internal/pod/explain", "internal/pod/stubresolver", "what a resolver asks"},
	{"internal/pod/dnsconfig", "internal/cluster", "Pods of the model"},
	{"internal/pod/dnsconfig", "internal/dns/resolvconf", "computes one"},
	{"internal/pod/stubresolver", "internal/dns/dnswire", "types and codes"},
	{"internal/pod/stubresolver", "internal/pod/dnsconfig", "whose resolver it is"},
	{"internal/pod/stubresolver", "internal/dns/resolvconf", "resolvers go by one"},
	{"internal/policy/semantics", "internal/cluster", "judges the model"},
	{"internal/dns/zone", "internal/dns/dnsname", "owner names"},
	{"internal/dns/zone", "internal/dns/dnswire", "RRsets are kept ready in wire form"},
	{"internal/dns/secondary", "internal/dns/dnsname", "zones are names"},
	{"internal/dns/secondary", "internal/dns/dnswire", "queries for transfers, and their answers"},
	{"internal/dns/secondary", "internal/dns/forward", "servers are written as upstreams are"},
	{"internal/dns/secondary", "internal/dns/respond", "takes NOTIFYs from it"},
	{"internal/dns/secondary", "internal/support/statefile", "the copy is saved in such a file"},
	{"internal/dns/secondary", "internal/dns/zone", "keeps copies of them"},
	{"internal/dns/respond", "internal/dns/zone", "answers from it"},
	{"internal/dns/respond", "internal/dns/autopath", "reads what names are searched for in"},
	{"internal/dns/respond", "internal/dns/cache", "what others answered"},
	{"internal/dns/respond", "internal/dns/forward", "asks others"},
	{"internal/dns/respond", "internal/dns/filter", "applies them"},
	{"internal/dns/querylog", "internal/dns/dnsname", "names in lines"},
	{"internal/dns/querylog", "internal/dns/dnswire", "types and codes in lines"},
	{"internal/dns/querylog", "internal/dns/respond", "is told of queries by it"},
	{"internal/dns/filter", "internal/dns/dnsname", "they are about names"},
	{"internal/dns/filter", "internal/dns/dnswire", "addresses are kept as RRsets"},
	{"internal/dns/respond", "internal/dns/dnswire", "reads queries, writes responses"},
	{"internal/dns/respond", "internal/dns/dnsname", "names of class CHAOS"},
	{"internal/dns/dnsserver", "internal/dns/respond", "tells it the client and transport"},
	{"internal/dns/dnsserver", "internal/dns/dnswire", "the longest message"},
	{"internal/dns/dnswire", "internal/dns/dnsname", "names on the wire"},
	{"internal/scenario", "internal/dns/autopath", "answers as the server does"},
	{"internal/scenario", "internal/cluster", "which kinds are loaded"},
	{"internal/scenario", "internal/dns/cache", "answers as the server does"},
	{"internal/scenario", "internal/config", "a scenario has settings"},
	{"internal/scenario", "internal/dns/forward", "asks upstreams that are text"},
	{"internal/scenario", "internal/dns/dnswire", "queries and responses"},
	{"internal/scenario", "internal/dns/kubezone", "answers as the server does"},
	{"internal/scenario", "internal/dns/respond", "clients"},
	{"internal/scenario", "internal/dns/filter", "answers as the server does"},
	{"internal/scenario", "internal/dns/dnsname", "names of transfers"},
	{"internal/scenario", "internal/dns/transfer", "answers as the server does"},
	{"internal/scenario", "internal/dns/zone", "answers as the server does, and as copies do"},
}

// libraries from outside, by path prefix, and who may import them.
var libraries = []arrow{
	{"internal/dns/dnswire", "github.com/miekg/dns", "prints records, packs queries: nobody else needs to know it"},
	{"internal/scenario", "github.com/miekg/dns", "makes replies from text, for tests"},
	{"internal/dns/cache", "github.com/maypok86/otter/v2", "decides what is kept"},
	{"internal/pod/lint", "golang.org/x/net/publicsuffix", "names of top-level domains"},
	{"internal/pod/lint", "golang.org/x/tools/txtar", "reads the examples of rules"},
	{"internal/dns/querylog", "github.com/dnstap/golang-dnstap", "the messages of dnstap"},
	{"internal/dns/querylog", "github.com/farsightsec/golang-framestream", "how they are sent"},
	{"internal/dns/querylog", "google.golang.org/protobuf/proto", "what they are made of"},
	{"internal/dns/forward", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/admission", "k8s.io/", "API types, and a client"},
	{"internal/kube/leader", "k8s.io/", "the election, and a client"},
	{"internal/kube/admission", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/admission", "golang.org/x/sync", "one question for all that ask it at once"},
	{"internal/kube/simulate/apiobject", "k8s.io/", "API types"},
	{"internal/kube/simulate/apiobject", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/endpointslices", "k8s.io/", "API types, and what Kubernetes makes slices by"},
	{"internal/kube/object", "k8s.io/", "API types and their validation"},
	{"internal/kube/simulate", "k8s.io/", "slices are API objects, for those who print them"},
	{"internal/kube/manifest", "k8s.io/", "API types"},
	{"internal/kube/api", "k8s.io/", "API types, and the Reflector"},
	{"internal/kube/api", "google.golang.org/protobuf/encoding/protowire", "fields that nobody needs are cut out of messages"},
	{"internal/kube/api", "github.com/klauspost/compress/gzip", "lists come packed"},
	{"internal/kube/api", "github.com/go-logr/logr", "client-go logs through it"},
	{"internal/kube/api", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/manifest", "sigs.k8s.io/json", "strict decoding as the API server does it"},
	{"internal/kube/manifest", "go.yaml.in/yaml/v3", "lines of fields"},
	{"internal/kube/manifest", "github.com/fsnotify/fsnotify", "watches directories"},
	{"internal/config", "go.yaml.in/yaml/v3", "lines of keys"},
	{"internal/config/configtest", "go.yaml.in/yaml/v3", "merges fragments of a file"},
	{"internal/cli", "go.yaml.in/yaml/v3", "a configuration as JSON, objects as YAML"},
	{"internal/migrate/corefile", "github.com/coredns/caddy/caddyfile", "reads Corefiles as CoreDNS does"},
	{"internal/migrate/corefile", "go.yaml.in/yaml/v3", "kube-dns' settings are a manifest"},
	{"internal/support/yamlerr", "go.yaml.in/yaml/v3", "its errors"},
	{"internal/cli", "github.com/spf13/cobra", "commands and flags"},
	{"internal/cli", "golang.org/x/term", "whether it prints to a terminal, and how wide that is"},
	{"internal/dns/respond", "github.com/dchest/siphash", "server cookies are SipHash-2-4"},
	{"internal/daemon", "golang.org/x/sys", "the capability for ports below 1024"},
	{"internal/dns/dnsserver", "golang.org/x/sys", "socket options, and batches of packets"},
	{"internal/dns/dnsserver", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "github.com/KimMachineGun/automemlimit", "the memory limit is the control group's"},
	{"internal/ops/metrics", "github.com/prometheus/client_golang", "metrics in Prometheus' format"},
	{"internal/kube/apitest", "k8s.io/", "API types, and selectors"},
	{"internal/node/hostnet", "github.com/vishvananda/netlink", "devices and their addresses"},
	{"internal/node/hostnet", "github.com/google/nftables", "the table of a node"},
	{"internal/node/hostnet", "github.com/mdlayher/netlink", "a table that goes with its socket"},
	{"internal/node/hostnet", "golang.org/x/sys", "the TUN device, and names of numbers"},
	{"internal/scenario", "golang.org/x/tools/txtar", "scenario files"},
	{"test/netns/nodes", "github.com/miekg/dns", "an upstream server, and who asks"},
	{"test/netns/nodes", "github.com/vishvananda/netlink", "links between namespaces"},
	{"test/netns/nodes", "golang.org/x/sys", "namespaces"},
	{"test/program", "github.com/rogpeppe/go-internal/lockedfile", "one build at a time in the user's cache"},
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
