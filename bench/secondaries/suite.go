// Package secondaries measures the server's cost of nodes that transfer the zone,
// compares it with nodes that watch the Kubernetes API, and computes the cost of many
// nodes. It prints tables in Markdown. See docs/bench.md.
package secondaries

import (
	"context"
	"flag"
	"log/slog"
	"time"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// settings are the values of the flags.
type settings struct {
	rounds   int
	duration time.Duration
	services int
	write    string
}

// Suite returns this measurement as a subcommand.
func Suite() rig.Suite {
	return rig.Suite{
		Name:    "secondaries",
		Short:   "what nodes that transfer the zones cost, beside nodes that watch the API",
		Declare: declare,
	}
}

// declare declares the flags and returns the measurement that uses their values.
func declare(flags *flag.FlagSet) rig.Measurement {
	s := new(settings)
	rig.RoundsFlag(flags, &s.rounds, 3)
	flags.DurationVar(&s.duration, "duration", 4*time.Second, "how long each measurement is")
	flags.IntVar(&s.services, "services", 10_000, "Services of 3 endpoints")
	rig.WriteFlag(flags, &s.write)
	return s.run
}

// changeRate is the number of EndpointSlices that change per second.
const changeRate = 100

// followerCounts and watcherCounts are the numbers of followers and watchers. The cost
// of one should not depend on them.
var (
	followerCounts = []int{100, 400}
	watcherCounts  = []int{20, 100}
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log      *slog.Logger
	dir      string
	portolan *rig.Program
	machine  string
	key      *key
}

// results are the results of all measurements.
type results struct {
	headless, plain half // plain are Services with a cluster IP
	api             *apiResults
	others          []float64 // share of the processors that other programs used
}

// half has the server's results with Services of one kind, by round.
type half struct {
	kind      synthetic.Kind
	counts    []int // of followers
	alone     []window
	followers map[int][]following // by number of followers
	whole     []wholeZone
	node      []node
}

func (s *settings) run(ctx context.Context, log *slog.Logger, dir string) error {
	b := &bench{settings: s, log: log, dir: dir, machine: rig.DescribeMachine()}
	workshop, err := rig.NewWorkshop(ctx, log, dir)
	if err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	if b.key, err = newKey(dir); err != nil {
		return err
	}
	r := &results{
		headless: half{kind: synthetic.Triple, counts: followerCounts, followers: make(map[int][]following)},
		plain:    half{kind: synthetic.ClusterIP, counts: followerCounts[1:], followers: make(map[int][]following)},
	}
	// None of the measured programs runs yet.
	const look = 3 * time.Second
	r.others = append(r.others, rig.OtherLoad(look))
	for _, h := range []*half{&r.headless, &r.plain} {
		if err := b.measureServer(ctx, h); err != nil {
			return err
		}
	}
	r.others = append(r.others, rig.OtherLoad(look))
	if r.api, err = b.measureAPI(ctx); err != nil {
		return err
	}
	r.others = append(r.others, rig.OtherLoad(look))
	return rig.Report(b.markdown(r), s.write, "secondaries")
}

// cluster returns a cluster with Services of one kind.
func (b *bench) cluster(k synthetic.Kind) *synthetic.Cluster {
	c := &synthetic.Cluster{Namespaces: 100}
	c.Services[k] = b.services
	return c
}
