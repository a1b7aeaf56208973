package node

import (
	"context"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// part is a measurement.
type part struct {
	name    string
	rounds  func(*settings) int
	measure func(*bench, context.Context, *results, int) error // for one round
}

func once(*settings) int { return 1 }

func parts() []part {
	return []part{
		{"packets", once, (*bench).measurePackets},
		{"octets", once, (*bench).measureOctets},
		{"latency", func(s *settings) int { return s.rounds }, (*bench).measureLatency},
		{"failover", once, (*bench).measureFailover},
		{"faults", once, (*bench).measureFaults},
		{"memory", once, (*bench).measureMemory},
	}
}

func partNames() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// results are the results of all parts, in the order of their measurement.
type results struct {
	packets   []packetsRow
	octets    []octetsRow
	latencies []latencies
	failovers []failover
	faults    []faultRow
	memory    []memoryRow

	before float64       // share of the processors that other programs used before the start
	stolen float64       // share that the host took meanwhile
	took   time.Duration // total time
}

// measure returns the results, also if it fails.
func (b *bench) measure(ctx context.Context) (*results, error) {
	r := &results{before: rig.OtherLoad(time.Second)}
	begin, usage := time.Now(), rig.ReadUsage()
	err := b.measureParts(ctx, r)
	now := rig.ReadUsage()
	r.stolen = float64(now.Stolen-usage.Stolen) / float64(now.All-usage.All)
	r.took = time.Since(begin)
	return r, err
}

func (b *bench) measureParts(ctx context.Context, r *results) error {
	for _, p := range b.parts {
		for round := range p.rounds(b.settings) {
			b.log.Info("measuring", "part", p.name, "round", round+1)
			if err := p.measure(b, ctx, r, round); err != nil {
				return err
			}
		}
	}
	return nil
}
