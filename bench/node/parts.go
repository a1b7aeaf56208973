package node

import (
	"context"
	"time"

	"portolan.dev/portolan/bench/rig"
)

// part is what is measured.
type part struct {
	name    string
	rounds  func(*settings) int
	measure func(*bench, context.Context, *results, int) error // in this round
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

// results are what all parts found, in the order in which they did.
type results struct {
	packets   []packetsRow
	octets    []octetsRow
	latencies []latencies
	failovers []failover
	faults    []faultRow
	memory    []memoryRow

	before float64       // part of the processors that others used before the start
	stolen float64       // part that the host took meanwhile
	took   time.Duration // of everything
}

// measure gives what was measured, also when it fails.
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
