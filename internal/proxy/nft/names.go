package nft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// bridgeSuffix is added to the name of the tables that serve while those of another layout are
// replaced.
const bridgeSuffix = "-next"

// The chains that are not made of a size.
const (
	chainServices = "services"
	chainAgain    = "again"
	chainLimited  = "limited"
	chainRefuse   = "refuse"
)

// The chains for a number of endpoints are named after what they do and the number.
const (
	prefixEndpoints     = "endpoints-"      // plain DNAT
	prefixMasquerade    = "masquerade-"     // the same, and masquerades
	prefixExternalLocal = "external-local-" // externalTrafficPolicy Local
	prefixLocal         = "local-"          // its endpoints on the node
)

// localSlot is the first slot of the endpoints on the node of a Frontend with policy
// ExternalLocal; those of all endpoints begin at 0.
const localSlot = 1 << 16

// chains names the chains for a number of endpoints: those that choose at random, those that
// choose by hash or, if it is positive, those of an affinity of that many seconds.
type chains int

const (
	plainChains          chains = 0
	clientHashChains     chains = -1
	connectionHashChains chains = -2
)

// name returns the name of the chain for a size, such as endpoints-3, client-hash-endpoints-8 or
// affinity-10800-endpoints-3.
func (k chains) name(prefix string, size int) string {
	return k.prefix() + prefix + strconv.Itoa(size)
}

// prefix returns what all names begin with.
func (k chains) prefix() string {
	switch k {
	case plainChains:
		return ""
	case clientHashChains:
		return frontend.ClientHash.String() + "-"
	case connectionHashChains:
		return frontend.ConnectionHash.String() + "-"
	}
	return fmt.Sprintf("affinity-%d-", k)
}

// hashed reports whether the chains choose by hash.
func (k chains) hashed() bool { return k < 0 }

// sizeFor returns the size of the chain for n endpoints, 1 to 32767.
func (k chains) sizeFor(n int) int {
	if k.hashed() {
		return frontend.TableSize(n)
	}
	return sizeFor(n)
}

// hasSize reports whether there are chains of a size.
func (k chains) hasSize(size int) bool {
	if k.hashed() {
		return size > 0 && frontend.TableSize(size/2) == size
	}
	return slices.Contains(sizes, size)
}

// sized is a number of endpoints, and which chains serve it.
type sized struct {
	chains chains
	size   int
}

// parseChain returns what the chain with a name is for. Other chains than those for a number of
// endpoints yield zero and false.
func parseChain(name string) (s sized, ok bool) {
	for _, k := range []chains{clientHashChains, connectionHashChains} {
		if rest, found := strings.CutPrefix(name, k.prefix()); found {
			s.chains, name = k, rest
		}
	}
	if rest, found := strings.CutPrefix(name, "affinity-"); found {
		seconds, after, _ := strings.Cut(rest, "-")
		n, err := strconv.Atoi(seconds)
		if err != nil || n <= 0 {
			return sized{}, false
		}
		s.chains, name = chains(n), after
	}
	size, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil || !s.chains.hasSize(size) {
		return sized{}, false
	}
	s.size = size
	return s, true
}

// setName names a set or map of a table.
type setName string

// The sets and maps.
const (
	setServices     setName = "services"      // destination : goto a chain
	setAdmitted     setName = "admitted"      // destination : goto a chain, after the check of its source
	setLocal        setName = "local"         // destination : goto local-N or drop, for clients outside
	setEndpoints    setName = "endpoints"     // destination . slot : address . port
	setHashed       setName = "hashed"        // the same, of those that are chosen by hash
	setSourceRanges setName = "source-ranges" // destination . source
	setAddresses    setName = "addresses"     // of all destinations
	setClusterIPs   setName = "cluster-ips"   // those of policy Plain
	setServiceCIDRs setName = "service-cidrs"
	setConnections  setName = "connections" // destinations, each with a counter
	setHairpin      setName = "hairpin"     // endpoint . the same endpoint

	// Those of session affinity, see affinity_linux.go.
	setAffinityGroups    setName = "affinity-groups"    // destination : group
	setAffinityChoices   setName = "affinity-choices"   // destination . slot : number
	setAffinityEndpoints setName = "affinity-endpoints" // destination . number : address . port
	setAffinity          setName = "affinity"           // source . group : number, written by packets
)

// setNames returns those that are filled here, in the order in which elements are removed that nothing
// needs any more: what leads to others first. They are added in the opposite order.
func (c *Config) setNames() []setName {
	all := []setName{
		setClusterIPs, setAddresses, setServices, setAdmitted, setLocal, setSourceRanges,
		setAffinityGroups, setAffinityChoices, setAffinityEndpoints, setEndpoints, setHashed, setHairpin, setServiceCIDRs,
	}
	if c.Counters {
		all = append(all, setConnections)
	}
	return all
}
