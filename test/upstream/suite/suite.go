// Package suite runs the specs of Kubernetes' end-to-end tests one by one, each in a process of its
// own.
package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// Spec is a test, by its whole name with the names of what it is in.
type Spec string

// Alone reports whether no other spec may run at the same time.
func (s Spec) Alone() bool {
	return strings.Contains(string(s), "[Serial]") || strings.Contains(string(s), "[Disruptive]")
}

// unable has reasons why specs cannot run on a cluster of package cluster, by regular expressions
// of their names.
var unable = map[string]string{
	`\[Feature:SCTPConnectivity\]`:       "needs SCTP in the kernel",
	`Internet connection for containers`: "needs a way out of the cluster's network",
	`restarting (kube-proxy|apiserver)`:  "logs in to nodes with SSH",
	`recreate its iptables rules`:        "logs in to nodes with SSH",
	`\[Feature:Networking-Performance\]`: "measures throughput",

	// Of load balancers.
	`cleanup finalizer for service`:                        "needs the service controller of a cloud",
	`\[Slow\] should work for type=LoadBalancer`:           "needs a client outside of the nodes' network",
	`\[Slow\] should only target nodes with endpoints`:     "asks both families for a health check of one",
	`switch session affinity .* with Local traffic policy`: "needs a load balancer that sends to several nodes",
}

// Unable returns why the spec cannot run here, if it cannot.
func (s Spec) Unable() (reason string, ok bool) {
	for pattern, reason := range unable {
		if regexp.MustCompile(pattern).MatchString(string(s)) {
			return reason, true
		}
	}
	return "", false
}

// State is how a spec ended.
type State string

// The states.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped" // the spec finds that it cannot run
)

// Result is what came of a spec.
type Result struct {
	Spec    Spec
	State   State
	Failure string        // why it failed
	Skipped string        // why it was skipped
	Took    time.Duration // with the framework's work before and after
}

// Suite is the test program and what it runs on.
type Suite struct {
	Program    string // of package cmd/e2e
	Kubeconfig string // of an administrator
	Kubectl    string // file
	// Dir gets a file of what each spec prints.
	Dir string
}

// List returns the specs whose names match the regular expression, in alphabetical order.
func (s Suite) List(ctx context.Context, focus string) ([]Spec, error) {
	reports, _, err := s.run(ctx, "list", "--ginkgo.dry-run", "--ginkgo.focus="+focus)
	if err != nil {
		return nil, fmt.Errorf("list specs: %w", err)
	}
	var specs []Spec
	for _, r := range reports {
		if r.LeafNodeType == types.NodeTypeIt && r.State == types.SpecStatePassed {
			specs = append(specs, name(r))
		}
	}
	slices.Sort(specs)
	return specs, nil
}

// Run runs a spec, at most for half an hour.
func (s Suite) Run(ctx context.Context, spec Spec) (Result, error) {
	const most = 30 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	start := time.Now()
	// The expression is matched with the name of the suite, a space and the name.
	reports, output, err := s.run(ctx, "spec", "--ginkgo.focus= "+regexp.QuoteMeta(string(spec))+"$",
		"--ginkgo.no-color", "--ginkgo.v", "--delete-namespace=true", "--disable-log-dump=true")
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", spec, err)
	}
	for _, r := range reports {
		if r.LeafNodeType != types.NodeTypeIt || name(r) != spec {
			continue
		}
		result := Result{Spec: spec, State: state(r.State), Took: time.Since(start)}
		switch result.State {
		case Passed:
			return result, os.Remove(output)
		case Skipped:
			result.Skipped = r.Failure.Message
		case Failed:
			result.Failure = r.Failure.Message
		}
		return result, nil
	}
	return Result{}, fmt.Errorf("%s was not run; see %s", spec, output)
}

func state(s types.SpecState) State {
	switch s {
	case types.SpecStatePassed:
		return Passed
	case types.SpecStateSkipped:
		return Skipped
	default:
		return Failed
	}
}

// name is a spec's whole name, as ginkgo matches it.
func name(r types.SpecReport) Spec { return Spec(strings.TrimSpace(r.FullText())) }

// run runs the test program and returns its report, and the file of what it printed.
func (s Suite) run(ctx context.Context, kind string, args ...string) (types.SpecReports, string, error) {
	output, err := os.CreateTemp(s.Dir, kind+"-*.log")
	if err != nil {
		return nil, "", err
	}
	defer output.Close()
	report := output.Name() + ".json"
	defer os.Remove(report)
	cmd := exec.CommandContext(ctx, s.Program, append([]string{
		"--kubeconfig=" + s.Kubeconfig, "--kubectl-path=" + s.Kubectl, "--provider=skeleton",
		"--ginkgo.json-report=" + report,
	}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the program is told of the death of the thread that starts it
	defer runtime.UnlockOSThread()
	ended := cmd.Run() // with status 1 if specs failed, which the report says
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, "", errors.Join(ended, err, tail(output.Name()))
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, "", err
	}
	var specs types.SpecReports
	for _, r := range reports {
		specs = append(specs, r.SpecReports...)
	}
	return specs, output.Name(), nil
}

// tail is an error with the end of a file.
func tail(file string) error {
	const shown = 2000
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return errors.New(string(bytes.TrimSpace(text[max(0, len(text)-shown):])))
}
