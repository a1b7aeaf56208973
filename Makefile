# Short names for what is done often.

MODULES := . bench test/e2e test/deploy test/attack test/upstream test/conformance test/page test/prometheus

.PHONY: help build test quick check fmt lint fuzz docs release release-verify attack bench bench-code bench-simulate bench-burst bench-explain bench-forwarding bench-gateway bench-live bench-network bench-node bench-policy bench-proxy bench-secondaries conformance-gateway conformance-network conformance-policy conformance-policy-api conformance-proxy evidence-explain evidence-gateway evidence-h2 evidence-policy evidence-situations rolling-proxy

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the binary
	go build -o portolan ./cmd/portolan

test: ## everything that CI runs
	bash test/all

quick: ## the inner loop: format, build, vet, and the tests that are fast
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go build ./...
	go vet ./...
	go test -vet=off -short ./internal/...

fmt: ## format, and wrap lines over 120 columns
	for module in $(MODULES); do \
		(cd $$module && go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint fmt) || exit 1; \
	done

lint: ## golangci-lint in all modules
	for module in $(MODULES); do \
		(cd $$module && go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run) || exit 1; \
	done

check: ## vet and the tests without the race detector
	go vet ./...
	go test ./...

attack: ## each attack for 30 seconds, with what the server used; as root; docs/security.md
	cd test/attack && go test -count=1 -v -time 30s -timeout 30m .

conformance-gateway: ## the conformance tests of the Gateway API, about 3 minutes, as root; docs/gateway-conformance.md
	cd test/conformance && go test -count=1 -timeout 1h . -record $(CONFORMANCEFLAGS)
	cd test/conformance && go test -count=1 -timeout 1h . -record -channel experimental $(CONFORMANCEFLAGS)

conformance-network: ## Kubernetes' conformance tests of the network on one that the manifests make, about 25 minutes, as root; docs/network-e2e.md
	cd test/upstream && go run ./cmd/conformance -area network $(CONFORMANCEFLAGS)

conformance-policy: ## Kubernetes' tests of NetworkPolicies with the agent, about 10 minutes, as root; docs/policy-e2e.md
	cd test/upstream && go run ./cmd/conformance -area policies $(CONFORMANCEFLAGS)

conformance-policy-api: ## the conformance tests of ClusterNetworkPolicy with the agent, about 15 minutes, as root; docs/policy-e2e.md
	cd test/upstream && go test -count=1 -timeout 1h ./policyapi -record

evidence-explain: ## verdicts of portolan test compared with packets and requests in random clusters, some 5 minutes, as root; docs/explain-evidence.md
	REPORT=1 SEED=1 WORLDS=10 QUESTIONS=150 go test -count=1 -timeout 1h -v ./test/verdicts -run TestVerdicts

evidence-gateway: ## requests while routes change and endpoints are replaced, and the gateway at its limits, as root; docs/gateway-evidence.md
	CHANGES=1000 RESTARTS=200 go test -count=1 -timeout 10m -v ./cmd/portolan -run TestGatewayZeroDrop
	REPLACEMENTS=200 go test -count=1 -timeout 10m -v ./cmd/portolan -run 'TestConfigEffects/gateway.handover$$'
	cd test/attack && go test -count=1 -timeout 20m -v . -run TestGateway -time 8s

evidence-h2: ## gRPC's interoperability tests, h2spec, testssl.sh and slowhttptest, without root; docs/gateway-evidence.md
	cd test/conformance && go test -count=1 -timeout 10m -v ./interop

evidence-policy: ## packets while Pods start, names are looked up and policies change, some 10 minutes, as root; docs/policy-evidence.md
	STARTS=1000 LOOKUPS=2000 ROUNDS=1000 go test -count=1 -timeout 1h -v ./test/policy \
		-run 'TestPodStarts|TestDomains|TestNamespaceRelabelled|TestBlocks'
	LOOKUPS=100000 go test -count=1 -timeout 1h -v ./internal/policy/fqdn -run TestLookupThenConnectInKernel

evidence-situations: ## each broken situation with packets, compared with explain --live, some 10 minutes, as root; docs/situations.md
	go test -count=1 -timeout 1h -v ./internal/pod/app -run TestSituationsLive -live all -update
	go test -count=1 ./internal/pod/app -run TestSituationsPage -update

conformance-proxy: ## Kubernetes' tests of Services with kube-proxy and with the service proxy, as root; docs/proxy-e2e.md
	cd test/upstream && go run ./cmd/conformance $(CONFORMANCEFLAGS)

rolling-proxy: ## a rolling update of 50 Pods under load with both proxies, about 8 minutes, as root; docs/proxy-e2e.md
	cd test/upstream && go run ./cmd/rolling -page ../../docs/proxy-e2e.md $(ROLLINGFLAGS)

FUZZTIME ?= 10m
fuzz: ## each fuzz target in turn, for FUZZTIME
	bash test/fuzz $(FUZZTIME)

docs: ## the parts of the docs that tests make
	go test ./internal/scenario -run Coverage -update
	go test ./internal/kube/simulate/apiobject -run Coverage -update
	go test ./internal/pod/lint -run Docs -update
	go test ./docs -update
	go test ./build/dashboard -update
	cd test/deploy && go test -run RestartKeys -update .

release: ## binaries, image, chart, SBOMs and checksums, into dist; no Docker and no registry
	go run ./build/cmd/release -o dist $(RELEASEFLAGS)

release-verify: ## the same, then again from a clone in another directory: the checksums must be equal
	go run ./build/cmd/release -o dist -verify $(RELEASEFLAGS)

bench: ## what a query costs, beside CoreDNS, Knot and NSD, about 25 minutes; docs/bench.md
	cd bench && go run . query -write ../docs/bench.md $(BENCHFLAGS)

bench-code: ## Go benchmarks of lookup, answer, compile and change, 5 minutes; docs/bench.md
	(go test -run - -bench 'Lookup|Full|Change' -benchtime 200ms -count 10 ./internal/dns/kubezone && \
	go test -run - -bench 'Respond' -benchtime 200ms -count 10 ./internal/dns/respond && \
	go test -run - -bench Together -cpu 1,2 -benchtime 200ms -count 10 ./internal/dns/respond) \
	| go tool -modfile=tools/go.mod benchstat -

bench-simulate: ## what completing manifests costs, and changes of Pods then, 4 minutes; docs/bench.md
	export GOGC=200; (go test -run - -bench Ready -benchtime 1x -count 4 ./internal/kube/simulate && \
	go test -run - -bench 'Full|Events/batch=1000' -benchtime 2s -count 6 ./internal/kube/endpointslices && \
	go test -run - -bench Complete -benchtime 2s -count 6 ./internal/kube/simulate/alloc) \
	| go tool -modfile=tools/go.mod benchstat -

bench-burst: ## what changes of the cluster do to queries, 4 minutes; docs/bench.md
	cd bench && go run . burst -write ../docs/bench.md $(BENCHFLAGS)

bench-explain: ## what explanations and assertions cost in a large cluster, about 2 minutes; docs/bench.md
	cd bench && go run . explain -write ../docs/bench.md $(BENCHFLAGS)

bench-forwarding: ## names outside the cluster, beside CoreDNS and Unbound, about 15 minutes; docs/bench.md
	cd bench && go run . forwarding -write ../docs/bench.md $(BENCHFLAGS)

bench-gateway: ## the gateway beside other proxies, about 30 minutes; docs/bench.md
	cd bench && go run . gateway -write ../docs/bench.md $(BENCHFLAGS)

bench-live: ## Portolan beside CoreDNS on a real API server, about 25 minutes; docs/bench.md
	cd bench && go run . live -write ../docs/bench.md $(BENCHFLAGS)

bench-network: ## the network of Pods beside other CNI plugins, about 8 minutes, as root; docs/bench.md
	cd bench && go run . network -write ../docs/bench.md $(BENCHFLAGS)

bench-node: ## what the agent on a node is to Pods, beside CoreDNS, about 20 minutes, as root; docs/bench.md
	cd bench && go run . node -write ../docs/bench.md $(BENCHFLAGS)

bench-policy: ## what network policies cost, about 5 minutes, as root; docs/bench.md
	cd bench && go run . policy -write ../docs/bench.md $(BENCHFLAGS)

bench-proxy: ## the service proxy beside kube-proxy, about 10 minutes, as root; docs/bench.md
	cd bench && go run . proxy -write ../docs/bench.md $(BENCHFLAGS)

bench-secondaries: ## what nodes that transfer the zones cost, beside watchers of the API, about 8 minutes; docs/bench.md
	cd bench && go run . secondaries -write ../docs/bench.md $(BENCHFLAGS)
