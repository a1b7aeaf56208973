// Package architecture has no code; its tests check which packages may import
// which, what packages may be called, and that each has a comment.
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

// arrows between wings, as paths below internal: from a wing or package to a wing or
// package. Within a wing packages import one another freely, and the compiler keeps
// that free of circles. Data moves one way: source → cluster → compiler → output ←
// server.
var arrows = []arrow{
	{"cli", "daemon", "runs processes"},
	{"cli", "config", "flags override the settings"},
	{"cli", "dns/app", "assembles processes"},
	{"cli", "kube/app", "assembles processes"},
	{"cli", "gateway/app", "assembles processes"},
	{"cli", "gateway/translate", "translates Ingresses"},
	{"cli", "kube/daemonset", "policies leave a node with the agents"},
	{"cli", "kube/nodekey", "agents publish the keys of their nodes"},
	{"cli", "kube/ticketkeys", "gateways share keys"},
	{"cli", "kube/gatewaystatus", "a gateway writes statuses"},
	{"cli", "kube/events", "a service proxy tells owners of problems"},
	{"cli", "network/app", "assembles processes, and removes what a network left"},
	{"cli", "node/app", "assembles processes"},
	{"cli", "support/follow", "tests again when a file changes"},
	{"cli", "pod/app", "asks what Pods see"},
	{"cli", "proxy/frontend", "arguments have protocols"},
	{"cli", "proxy/app", "assembles processes"},
	{"cli", "proxy/nft", "reads and removes what a service proxy left in the kernel"},
	{"cli", "policy/app", "assembles processes"},
	{"cli", "cni", "installs the CNI plugin, and is it"},
	{"cli", "policy/nft", "removes what policies left in the kernel, and asks for its verdicts"},
	{"cli", "policy/ruleset", "asks the kernel about packets"},
	{"cli", "support/hostaddrs", "whether a packet is for the node"},
	{"cli", "policy/settings", "names the annotation of agents with policies"},
	{"cli", "proxy/trace", "prints the paths of packets"},
	{"cli", "policy/droplog", "prints the packets that policies deny"},
	{"cli", "node/hostnet", "removes what an agent left in the kernel"},
	{"cli", "dns/settings", "flags name modes"},
	{"cli", "kube/settings", "flags override settings"},
	{"cli", "kube/source", "reads clusters"},
	{"cli", "kube/api", "the contexts of a kubeconfig"},
	{"cli", "dns/resolvconf", "compares a Pod's file with the computed one"},
	{"cli", "kube/manifest", "prints problems of manifests"},
	{"cli", "kube/simulate/apiobject", "prints objects"},
	{"cli", "cluster", "names kinds and objects"},
	{"cli", "dns/dnsname", "arguments are names"},
	{"cli", "dns/dnswire", "prints records and responses"},
	{"cli", "dns/kubezone", "prints the version of the schema"},
	{"cli", "dns/localzone", "prints why local zones are not loaded"},
	{"cli", "dns/respond", "asks without a socket"},
	{"cli", "dns/zone", "prints records"},
	{"cli", "migrate", "serves and prints other programs' settings"},
	{"cli", "policy/diff", "prints which connections open or close"},
	{"cli", "ops/admin", "names the dumps of a process"},
	{"cli", "ops/report", "writes the archive of a bug report"},
	{"cli", "kube/inventory", "a bug report has the logs of Pods"},
	{"cli", "pod", "prints what Pods see"},
	{"cli", "support/evidence", "gives parts what they tell of events, and prints it"},
	{"cli", "support/suggest", "suggests rules for misspelled ones"},
	{"cli", "support/deadline", "a Corefile may block its reader"},

	{"daemon", "cluster", "parts name the kinds they need"},
	{"daemon", "config", "settings are reloaded"},
	{"daemon", "ops", "the admin servers and the metrics of every process"},
	{"daemon", "support/bind", "binds with the capability in effect"},
	{"daemon", "support/evidence", "pages and metrics of what the parts do"},
	{"daemon", "support/budget", "connections to the admin servers are accounted"},
	{"ops", "support/budget", "connections to the admin servers are accounted, and accounts have metrics"},
	{"ops", "support/httpserver", "the admin servers have its bounds"},
	{"ops/access", "support/certfile", "the certificate of the admin server"},
	{"ops/access", "support/deadline", "a file may block its reader"},

	{"config", "dns/settings", "the sections of the DNS server"},
	{"config", "kube", "the sections of the API and its parts, and what they compile to"},
	{"config", "proxy/settings", "the section of the service proxy"},
	{"config", "network/settings", "the section of the network of Pods"},
	{"config", "policy/settings", "the section of policies"},
	{"config", "gateway/settings", "the section of Ingress and Gateway API"},
	{"config", "support", "errors with lines"},
	{"migrate/kubeproxy", "proxy/settings", "names of modes and defaults"},
	{"migrate", "config", "makes settings"},
	{"migrate", "dns/settings", "makes settings"},
	{"migrate", "dns/dnsname", "zones are names"},
	{"migrate", "dns/dnswire", "types of records have names"},
	{"migrate", "support", "errors with lines"},

	{"cluster/snapshot", "support/statefile", "a snapshot is such a file"},
	{"kube", "cluster", "reads, completes and writes the model"},
	{"kube", "support", "reads in parallel, errors with lines"},
	{"kube/source", "config", "settings say which cluster"},
	{"kube/source", "ops/metrics", "collects its metrics"},
	{"kube/app", "config", "settings of its parts"},
	{"kube/app", "ops/metrics", "collects its metrics"},
	{"kube/settings", "config/key", "declares keys"},
	{"kube/settings", "network/podcidr", "checks the ranges of Nodes"},
	{"kube/settings", "network/pool", "checks the pools of addresses"},
	{"kube/loadbalancer", "network/pool", "writes the addresses that it assigns"},
	{"kube/nodespec", "network/podcidr", "writes the ranges that it gives to Nodes"},
	{"kube/settings", "dns/dnsname", "the cluster's domain is a name"},
	{"kube/settings", "pod", "rules have names, and Pods a limit of nameservers"},
	{"kube/admission", "dns/resolvconf", "the options of a Pod's dnsConfig"},
	{"kube/admission", "pod", "reviews what Pods will see"},

	{"dns/kubezone", "cluster", "compiles the model"},
	{"dns/kubezone", "support/parallel", "compiles everything on all processors"},
	{"dns/secondary", "support/statefile", "zones are saved in such a file"},
	{"dns/settings", "cluster", "names Services"},
	{"dns/settings", "config/key", "declares keys"},
	{"dns/settings", "node/hostnet", "the addresses of the agent"},
	{"dns", "support/deadline", "a file may block its reader"},
	{"dns", "support/follow", "lists and zones are in files that others write"},
	{"dns", "support/evidence", "tells of queries"},
	{"dns", "support/budget", "what clients make the server hold is accounted"},
	{"dns/app", "cluster", "follows the model"},
	{"dns/app", "config", "settings of its part"},
	{"dns/app", "ops/metrics", "collects its metrics"},
	{"dns/app", "support/bind", "errors of listening"},
	{"dns/app", "support/certfile", "the certificate of DNS over TLS"},
	{"dns/dnsserver", "support/bind", "agents share ports"},

	{"node/app", "cluster", "a part names the kinds it needs"},
	{"node/app", "ops/metrics", "collects its metrics"},
	{"node/app", "support/budget", "a part has accounts"},

	{"pod", "cluster", "what a Pod sees is of the model"},
	{"pod", "dns", "what a Pod sees of DNS is what the servers answer"},
	{"pod/connection", "proxy/plan", "which addresses a node serves, and with which endpoints"},
	{"pod/path", "proxy/frontend", "protocols of targets"},
	{"pod/path", "proxy/plan", "protocols of ports"},
	{"pod/connection", "proxy/frontend", "evaluates connections as the kernel does"},
	{"pod/connection", "policy/semantics", "what NetworkPolicies allow"},
	{"pod/connection", "policy/ruleset", "asks what the kernel lets pass"},
	{"pod/lint", "gateway/compile", "which routes are accepted, and which rules never serve"},
	{"pod/lint", "gateway/table", "which paths match, and where redirects lead"},
	{"pod/request", "gateway/compile", "what Ingresses and routes are compiled into"},
	{"pod/live", "gateway/table", "why a gateway answers itself"},
	{"pod/request", "gateway/table", "which rules serve a request"},
	{"pod/app", "gateway/compile", "whose Ingresses and Gateways are served"},
	{"pod/view", "policy/semantics", "which policies apply to Pods"},
	{"pod/view", "policy/ruleset", "directions have names"},
	{"pod/view", "proxy/plan", "which endpoints connections use"},
	{"pod/lint", "network/pool", "which addresses Services may request"},
	{"pod/lint", "policy/semantics", "what NetworkPolicies allow"},
	{"pod/lint", "proxy/plan", "which values annotations may have"},
	{"pod/lint", "proxy/frontend", "which values annotations may have"},
	{"pod/live", "support/hostaddrs", "whether this machine is the client"},
	{"pod/live", "support/netns", "sends from a Pod's network namespace"},
	{"pod", "support/suggest", "names with a typing error"},
	{"pod/peer", "proxy/frontend", "protocols of targets"},
	{"pod/suite", "support/yamlerr", "lines of errors"},
	{"pod/app", "config", "settings of the cluster's DNS"},
	{"pod/app", "kube/manifest", "problems of manifests are findings"},
	{"pod/app", "kube/source", "findings stand in files that were read"},

	{"gateway/h1", "support/budget", "connections are accounted"},
	{"gateway/upstream", "support/sockbuf", "what the kernel holds for connections is bounded"},
	{"gateway/stream", "support/sockbuf", "what the kernel holds for connections is bounded"},
	{"gateway/stream", "support/budget", "connections are accounted"},
	{"gateway/datagram", "support/budget", "sessions are accounted"},
	{"gateway/settings", "config/key", "declares keys"},
	{"gateway/app", "cluster", "follows the model"},
	{"gateway/app", "config", "settings of its part"},
	{"gateway/app", "ops/metrics", "metrics of its part"},
	{"gateway/app", "support", "binds ports, accounts connections, spaces attempts"},

	{"network/pool", "cluster", "assigns addresses to Services of the model"},
	{"network/podcidr", "cluster", "divides ranges among the Nodes of the model"},

	{"node/hostnet", "support/nfnetlink", "the number of the last transaction"},
	{"policy/nft", "support/nfnetlink", "transactions, lists and attributes"},
	{"proxy/nft", "support/nfnetlink", "transactions, lists and attributes"},
	{"gateway/annotation", "cluster", "merges Ingresses of the model"},
	{"gateway/translate", "cluster", "translates Ingresses of the model"},
	{"gateway/compile", "cluster", "compiles the model"},
	{"gateway/status", "cluster", "says what became of objects of the model"},
	{"gateway/status", "support/retry", "spaces attempts, and repairs of what others write"},
	{"kube/gatewaystatus", "gateway/status", "is its Writer: wraps its errors, and tells it the version of Gateway API"},
	{"network/announce", "cluster", "compiles the model, and follows it"},
	{"network/plan", "cluster", "compiles the model"},
	{"network/announce", "support/retry", "spaces attempts"},
	{"network/announce/handover", "support/nfnetlink", "transactions and attributes"},
	{"network/announce/settings", "config/key", "declares keys"},
	{"network/announce/settings", "support/deadline", "a file may block its reader"},
	{"network/link", "support/netns", "makes the Pod's end of a link"},
	{"network/nft", "support/nfnetlink", "transactions, lists and attributes"},
	{"network/route", "support", "attributes of messages, and pauses between attempts"},
	{"policy", "cluster", "judges the model"},
	{"cni", "support", "reads files that may block, and replaces them"},
	{"policy", "cni", "answers the CNI plugin"},
	{"policy/cni", "support", "records attachments in state files"},
	{"policy/droplog", "support", "reads the kernel's messages, again after a pause"},
	{"policy/fqdn", "dns/dnsname", "policies have domain names"},
	{"policy/fqdn", "dns/dnswire", "reads the addresses in answers"},
	{"policy/fqdn", "support/budget", "answers that wait are accounted, and addresses have a share of the memory"},

	{"network/ipam", "support", "records addresses in state files"},

	{"proxy/plan", "cluster", "compiles the model"},
	{"policy/app", "config", "settings of its part"},
	{"policy/app", "ops/metrics", "metrics of its part"},
	{"policy/app", "support", "spaces attempts, reads the host's addresses, accounts answers"},
	{"policy/flows", "support/ctnetlink", "reads and deletes entries of connection tracking"},
	{"policy/settings", "config/key", "declares keys"},

	{"network/settings", "config/key", "declares keys"},
	{"network/app", "cluster", "follows the model"},
	{"network", "cni", "answers the CNI plugin, and installs it"},
	{"network/app", "config", "settings of its part"},
	{"network/app", "ops/metrics", "metrics of its part"},
	{"network/app", "support", "one process makes the network, and schedules transactions"},

	{"proxy/conntrack", "support/ctnetlink", "reads and deletes entries of connection tracking"},
	{"proxy/settings", "config/key", "declares keys"},
	{"proxy/app", "cluster", "follows the model"},
	{"proxy/app", "config", "settings of its part"},
	{"proxy/app", "support", "connections are accounted, its servers have the bounds of the others"},
	{"proxy/healthcheck", "cluster", "names Services and families, and a Node says whether it leaves"},
	{"proxy/healthcheck", "support/budget", "connections are accounted"},
	{"pod/app", "support/httpserver", "views respond with errors as all do"},
	{"proxy/healthcheck", "support/httpserver", "its servers have the bounds of the others"},

	{"scenario", "cluster", "which kinds are loaded"},
	{"scenario", "config", "a scenario has settings"},
	{"scenario", "dns", "answers as the server does"},
	{"scenario", "support/budget", "limits of waiting queries"},
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
	{"internal/kube/events", "k8s.io/", "Events, and a client"},
	{"internal/kube/loadbalancer", "k8s.io/", "the API type, a client, and a queue"},
	{"internal/kube/nodespec", "k8s.io/", "the API type, a client, and a queue"},
	{"internal/kube/daemonset", "k8s.io/", "the API type, and a client"},
	{"internal/kube/nodekey", "k8s.io/", "a client"},
	{"internal/kube/ticketkeys", "k8s.io/", "a Secret, and a client"},
	{"internal/kube/gatewaystatus", "k8s.io/", "API types, and a client"},
	{"internal/kube/gatewaystatus", "sigs.k8s.io/gateway-api", "API types"},
	{"internal/gateway/status", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/admission", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/admission", "golang.org/x/sync", "one question for all that ask it at once"},
	{"internal/kube/simulate/apiobject", "k8s.io/", "API types"},
	{"internal/kube/simulate/apiobject", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/endpointslices", "k8s.io/", "API types, and what Kubernetes makes slices by"},
	{"internal/kube/object", "k8s.io/", "API types and their validation"},
	{"internal/kube/object", "sigs.k8s.io/network-policy-api", "API types"},
	{"internal/kube/object", "sigs.k8s.io/gateway-api", "API types"},
	{"internal/kube/object", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/simulate", "k8s.io/", "slices are API objects, for those who print them"},
	{"internal/kube/manifest", "k8s.io/", "API types"},
	{"internal/kube/api", "k8s.io/", "API types, and the Reflector"},
	{"internal/kube/inventory", "k8s.io/", "Pods, Nodes and logs"},
	{"internal/kube/api", "sigs.k8s.io/json", "decoding as the API server does it"},
	{"internal/kube/api", "google.golang.org/protobuf/encoding/protowire", "fields that nobody needs are cut out of messages"},
	{"internal/kube/api", "github.com/klauspost/compress/gzip", "lists come packed"},
	{"internal/kube/api", "github.com/go-logr/logr", "client-go logs through it"},
	{"internal/kube/api", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/manifest", "sigs.k8s.io/json", "strict decoding as the API server does it"},
	{"internal/kube/manifest", "go.yaml.in/yaml/v3", "lines of fields"},
	{"internal/kube/manifest", "github.com/fsnotify/fsnotify", "watches directories"},
	{"internal/config", "go.yaml.in/yaml/v3", "lines of keys"},
	{"internal/pod/suite", "go.yaml.in/yaml/v3", "suites are YAML"},
	{"internal/pod/suite", "k8s.io/apimachinery", "label selectors"},
	{"internal/support/follow", "github.com/fsnotify/fsnotify", "watches directories"},
	{"internal/config/configtest", "go.yaml.in/yaml/v3", "merges fragments of a file"},
	{"internal/cli", "go.yaml.in/yaml/v3", "a configuration as JSON, objects as YAML"},
	{"internal/migrate/corefile", "github.com/coredns/caddy/caddyfile", "reads Corefiles as CoreDNS does"},
	{"internal/migrate/corefile", "go.yaml.in/yaml/v3", "kube-dns' settings are a manifest"},
	{"internal/migrate/kubeproxy", "go.yaml.in/yaml/v3", "recognizes kube-proxy's settings by their kind"},
	{"internal/support/yamlerr", "go.yaml.in/yaml/v3", "its errors"},
	{"internal/cli", "github.com/spf13/cobra", "commands and flags"},
	{"internal/cli", "github.com/spf13/pflag", "suggests a flag for a misspelled one"},
	{"internal/cli", "golang.org/x/term", "whether it prints to a terminal, and how wide that is"},
	{"internal/dns/respond", "github.com/dchest/siphash", "server cookies are SipHash-2-4"},
	{"internal/support/bind", "golang.org/x/sys", "the capability for ports below 1024, and shared ports"},
	{"internal/support/sockbuf", "golang.org/x/sys", "options and queues of sockets"},
	{"internal/gateway/stream", "golang.org/x/sys", "the kernel moves octets between sockets"},
	{"internal/gateway/datagram", "golang.org/x/sys", "the address that a datagram came to"},
	{"internal/support/handover", "golang.org/x/sys", "who is at the other end of a socket"},
	{"internal/dns/dnsserver", "golang.org/x/sys", "socket options, and batches of packets"},
	{"internal/dns/dnsserver", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "golang.org/x/sync", "goroutines that end together"},
	{"internal/daemon", "github.com/KimMachineGun/automemlimit", "the memory limit is the control group's"},
	{"internal/ops/metrics", "github.com/prometheus/client_golang", "metrics in Prometheus' format"},
	{"internal/daemon", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/dns/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/kube/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/kube/source", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/node/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/pod/app", "github.com/prometheus/client_golang", "is a part of processes, which have metrics"},
	{"internal/dns/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/source", "golang.org/x/sync", "goroutines that end together"},
	{"internal/kube/apitest", "k8s.io/", "API types, and selectors"},
	{"internal/node/hostnet", "github.com/vishvananda/netlink", "devices and their addresses"},
	{"internal/network/link", "github.com/vishvananda/netlink", "the links of Pods"},
	{"internal/network/link", "golang.org/x/sys", "namespaces, and names of numbers"},
	{"internal/network/nft", "github.com/google/nftables", "expressions of rules"},
	{"internal/network/nft", "github.com/mdlayher/netlink", "a table that is owned by its socket"},
	{"internal/network/nft", "golang.org/x/sys", "names of numbers"},
	{"internal/network/route", "github.com/vishvananda/netlink", "devices, addresses, routes and rules"},
	{"internal/network/route", "golang.org/x/sys", "many routes at once, and names of numbers"},
	{"internal/network/wireguard", "golang.zx2c4.com/wireguard/wgctrl", "the keys and peers of devices"},
	{"internal/cni/bridge", "github.com/vishvananda/netlink", "devices that routes lead to"},
	{"internal/policy/cni/device", "github.com/vishvananda/netlink", "devices, and those that routes lead to"},
	{"internal/cni/conflist", "github.com/fsnotify/fsnotify", "watches directories"},
	{"internal/gateway/tracing", "go.opentelemetry.io", "spans of requests, and the messages of OTLP"},
	{"internal/gateway/tracing", "google.golang.org/protobuf", "encodes them"},
	{"internal/proxy/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/proxy/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/proxy/trace", "golang.org/x/sync", "goroutines that end together"},
	{"internal/proxy/nft", "github.com/google/nftables", "chains and rules"},
	{"internal/proxy/nft", "github.com/mdlayher/netlink", "elements of maps, and a table that is owned by its socket"},
	{"internal/policy/nft", "github.com/google/nftables", "expressions of rules, and comments"},
	{"internal/policy/nft", "github.com/mdlayher/netlink", "the sockets of transactions, and of changes by others"},
	{"internal/policy/nft", "golang.org/x/sys", "names of numbers, and the filter of a socket"},
	{"internal/support/netns", "golang.org/x/sys", "enters network namespaces"},
	{"internal/support/nfnetlink", "github.com/mdlayher/netlink", "transactions of nftables, lists, and changes by others"},
	{"internal/support/evidence", "github.com/prometheus/client_golang", "metrics of recorded events"},
	{"internal/support/programmer", "github.com/prometheus/client_golang", "metrics of transactions"},
	{"internal/support/nfnetlink", "golang.org/x/sys", "names of numbers, and system calls of sockets"},
	{"internal/proxy/nft", "golang.org/x/sys", "names of numbers"},
	{"internal/node/hostnet", "github.com/google/nftables", "the table of a node"},
	{"internal/node/hostnet", "github.com/mdlayher/netlink", "a table that goes with its socket"},
	{"internal/node/hostnet", "golang.org/x/sys", "the TUN device, and names of numbers"},
	{"internal/network/announce", "github.com/vishvananda/netlink", "tells of changes of interfaces"},
	{"internal/network/announce", "golang.org/x/net/bpf", "the filters of sockets"},
	{"internal/network/announce", "golang.org/x/sys", "packet sockets, and memberships of groups"},
	{"internal/network/announce/bgp", "golang.org/x/sys", "signatures of connections"},
	{"internal/network/announce/handover", "github.com/google/nftables", "expressions of rules"},
	{"internal/network/announce/handover", "github.com/mdlayher/netlink", "a table that is owned by its socket"},
	{"internal/network/announce/handover", "golang.org/x/sys", "names of numbers"},
	{"internal/network/announce/settings", "k8s.io/apimachinery", "names and values of labels"},
	{"internal/policy/droplog", "github.com/mdlayher/netlink", "the socket of the kernel's log of packets"},
	{"internal/policy/droplog", "golang.org/x/sys", "names of numbers"},
	{"internal/gateway/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/gateway/proxy", "github.com/dchest/siphash", "tokens of sessions"},
	{"internal/gateway/proxy", "google.golang.org/protobuf", "messages of Envoy's authorization services"},
	{"internal/gateway/compile", "golang.org/x/crypto", "OCSP responses of Secrets"},
	{"internal/gateway/tlsfront", "golang.org/x/crypto", "until when OCSP responses are up to date"},
	{"internal/gateway/htpasswd", "golang.org/x/crypto", "compares passwords with bcrypt"},
	{"internal/gateway/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/network/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/network/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/policy/app", "github.com/prometheus/client_golang", "collects metrics"},
	{"internal/policy/app", "golang.org/x/sync", "goroutines that end together"},
	{"internal/support/ctnetlink", "golang.org/x/sys", "the socket of connection tracking"},
	{"internal/support/ctnetlink/ctnetlinktest", "github.com/mdlayher/netlink", "makes entries of connection tracking"},
	{"internal/support/ctnetlink/ctnetlinktest", "golang.org/x/sys", "names of numbers"},
	{"internal/scenario", "golang.org/x/tools/txtar", "scenario files"},
	{"test/program", "github.com/rogpeppe/go-internal/lockedfile", "one build at a time"},
	{"test/netns/nodes", "github.com/miekg/dns", "an upstream server, and who asks"},
	{"test/netns/nodes", "github.com/vishvananda/netlink", "links between namespaces"},
	{"test/netns/nodes", "golang.org/x/sys", "namespaces"},
	{"test/namespace", "golang.org/x/sys", "namespaces"},
	{"test/wireguard", "golang.org/x/sys", "mounts"},
	{"test/wireguard", "golang.zx2c4.com/wireguard", "devices in user space"},
	{"test/namespace/namespacetest", "golang.org/x/sys", "namespaces"},
	{"test/namespace/namespacetest", "github.com/vishvananda/netlink", "links between namespaces"},
	{"test/policy/policytest", "github.com/vishvananda/netlink", "links of Pods that end"},
	{"test/policy/policytest", "k8s.io/", "API types"},
	{"build/cmd/release", "go.yaml.in/yaml/v3", "the manifest of krew"},
	{"build/man", "github.com/spf13/cobra", "pages of commands"},
	{"build/man", "github.com/spf13/pflag", "options of commands"},
	{"test/world", "github.com/miekg/dns", "an upstream server, and who asks"},
	{"test/world", "github.com/vishvananda/netlink", "rules of routes"},
	{"test/world", "golang.org/x/sys", "marks of packets"},
}

// TestImports: every import between wings, and every library, is an allowed arrow,
// and every arrow is used.
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

// pure are the packages that import the standard library, and each other, only.
var pure = []string{"cluster", "dns/dnsname", "dns/resolvconf"}

// TestPure: what all others build on imports nothing else.
func TestPure(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/internal/")
		if !slices.Contains(pure, name) {
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/internal/"); !standard(imported) && (!ours || !slices.Contains(pure, to)) {
				t.Errorf("%s imports %s, want the standard library only", name, imported)
			}
		}
	}
}

// TestApps: only commands assemble parts, so that no part depends on another.
func TestApps(t *testing.T) {
	for _, p := range list(t) {
		for _, imported := range p.Imports {
			if path.Base(imported) == "app" && strings.HasPrefix(imported, module) && p.ImportPath != module+"/internal/cli" {
				t.Errorf("%s imports %s, which only commands may", p.ImportPath, imported)
			}
		}
	}
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// wing is the first folder of a path below internal.
func wing(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// below reports whether path is root, or below it.
func below(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// allowed finds the arrow that an import is one of. Imports within a wing, and those
// of programs and tests, need none.
func allowed(from, imported string) (arrow, bool) {
	within := arrow{why: "within a wing"}
	from, inside := strings.CutPrefix(from, "internal/")
	if to, ours := strings.CutPrefix(imported, module+"/internal/"); ours {
		if !inside || wing(from) == wing(to) {
			return within, true
		}
		i := slices.IndexFunc(arrows, func(a arrow) bool { return below(from, a.from) && below(to, a.to) })
		if i < 0 {
			return arrow{}, false
		}
		return arrows[i], true
	}
	if strings.HasPrefix(imported, module) {
		return within, !inside
	}
	i := slices.IndexFunc(libraries, func(a arrow) bool {
		return (from == a.from || "internal/"+from == a.from) && strings.HasPrefix(imported, a.to)
	})
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
