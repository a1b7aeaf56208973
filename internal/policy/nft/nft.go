// Package nft programs a ruleset.Ruleset into the kernel: a table of nftables that judges the first
// packet of each connection of the node's Pods.
//
//	table inet portolan-policy {
//		chain forward {  # on hook forward; chain input is the same on hook input, without ingress
//			iif @pod-devices jump source
//			ct state established,related accept
//			jump egress
//			goto ingress
//		}
//		chain source {  # packets that come by the device of a Pod
//			iif . ip saddr @sources-4 return     # the device of 10.244.1.7 . 10.244.1.7
//			… log …; counter drop
//		}
//		chain egress {
//			ip saddr vmap @egress-4              # 10.244.1.7 : goto out-91cc…
//			ip saddr @ranges-4 goto unknown-out  # an address for Pods that no Pod has
//		}
//		chain ingress { ip daddr vmap @ingress-4 … }
//		chain out-91cc… { tcp dport 5432 ip daddr @pods-kz5mq3ba-4 return; … log …; counter drop }
//		chain in-5f2a…  { tcp dport 80 ip saddr @pods-ap3xn6ts-4 accept; … log …; counter drop }
//	}
//
// What a chain for egress allows returns to the base chain. The source of each packet of a Pod's device is
// compared, so that none passes as one of an established flow of another Pod. There is no hook output: what
// the node sends to its own Pods always passes. Nobody owns the table: it stays in force while the agent is
// away.
//
//	render.go   chains ──► rules
//	encode.go   sets and their elements ──► octets
//	batch.go    all of them ──► messages
//	table.go    Delta ──► transaction.go
//	sync.go     kernel (read.go), Ruleset ──► transaction.go
//	judge.go    Packet, rules of the kernel ──► Verdict
package nft

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// DefaultName is the name of the table.
const DefaultName = "portolan-policy"

// defaultLogRate is how many packets a rule logs per second.
const defaultLogRate = 10

// Config configures a Table.
type Config struct {
	// Name is the name of the table; empty is DefaultName.
	Name string
	// LogGroup is the group of nfnetlink_log that gets the packets that are denied or reported.
	LogGroup uint16
	// LogRate is how many packets each rule logs per second; 0 is 10.
	LogRate uint32
	// Log gets what the Table repairs; nil is nobody.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Name, c.LogRate = cmp.Or(c.Name, DefaultName), cmp.Or(c.LogRate, defaultLogRate)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// ErrUnknownSet is wrapped by ChangeResolved's error if the kernel has no such set of kind Resolved.
var ErrUnknownSet = errors.New("no such set of resolved addresses")

// Notice is what Watch reports. Sync repairs the table.
type Notice = nfnetlink.Notice

// The notices.
const (
	Changed = nfnetlink.Changed
	Lost    = nfnetlink.Lost
)

// Counter is how many packets met a rule that logs, also those that were over the limit of the log.
type Counter struct {
	Prefix
	Packets, Bytes uint64
}

// Names of base chains, and of those of the table itself that they lead to.
const (
	chainForward = "forward"
	chainEgress  = "egress"
	chainIngress = "ingress"
	chainInput   = "input"
	chainSource  = "source"
	chainLink    = "link"
)

// unknownChain returns the chain for packets of addresses that no Pod has.
func unknownChain(d ruleset.Direction) string { return "unknown-" + directionName(d) }

// tableError is an error of a table.
func tableError(name string, err error) error {
	return fmt.Errorf("nftables table inet %s: %w", name, err)
}
