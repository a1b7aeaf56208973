package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// behavior is how a server answers. The zero value answers all queries at once.
type behavior struct {
	loss   float64   // percentage of packets without an answer
	stalls time.Time // until when the server reads nothing
}

// all is the loss at which connections are not answered either.
const all = 100

// parseBehavior parses a command received at time now.
func parseBehavior(command string, now time.Time) (*behavior, error) {
	what, value, _ := strings.Cut(strings.TrimSpace(command), " ")
	b := new(behavior)
	var err error
	switch what {
	case "good":
	case "dead":
		b.loss = all
	case "loss":
		b.loss, err = strconv.ParseFloat(value, 64)
		if err == nil && (b.loss < 0 || b.loss > all) {
			err = fmt.Errorf("%s percent", value)
		}
	case "stall":
		var length time.Duration
		length, err = time.ParseDuration(value)
		b.stalls = now.Add(length)
	default:
		err = errors.New("no such command")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", command, err)
	}
	return b, nil
}

// drops reports, at random, whether to drop a packet.
func (b *behavior) drops(random *rand.Rand) bool { return all*random.Float64() < b.loss }

// dead reports whether the server answers nothing.
func (b *behavior) dead() bool { return b.loss >= all }

// stall returns how long from now the server reads nothing.
func (b *behavior) stall(now time.Time) time.Duration { return max(0, b.stalls.Sub(now)) }
