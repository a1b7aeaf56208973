package nft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// chains names the chains for a number of endpoints: plain ones or, if it is not 0, those of an
// affinity of that many seconds.
type chains int

const plainChains chains = 0

// name returns the name of the chain for a size, such as endpoints-3 or affinity-10800-endpoints-3.
func (k chains) name(prefix string, size int) string {
	if k == plainChains {
		return prefix + strconv.Itoa(size)
	}
	return fmt.Sprintf("affinity-%d-%s%d", k, prefix, size)
}

// sized is a number of endpoints, and which chains serve it.
type sized struct {
	chains chains
	size   int
}

// parseChain returns what the chain with a name is for. Other chains than those for a number of
// endpoints yield false.
func parseChain(name string) (s sized, ok bool) {
	if rest, found := strings.CutPrefix(name, "affinity-"); found {
		seconds, after, _ := strings.Cut(rest, "-")
		n, err := strconv.Atoi(seconds)
		if err != nil || n <= 0 {
			return s, false
		}
		s.chains, name = chains(n), after
	}
	size, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	s.size = size
	return s, err == nil && slices.Contains(sizes, size)
}

// setName names a set or map of a table.
type setName string

// The sets and maps.
const (
	setServices     setName = "services"      // destination : goto a chain
	setAdmitted     setName = "admitted"      // destination : goto a chain, after the check of its source
	setLocal        setName = "local"         // destination : goto local-N or drop, for clients outside
	setEndpoints    setName = "endpoints"     // destination . slot : address . port
	setSourceRanges setName = "source-ranges" // destination . source
	setAddresses    setName = "addresses"     // of all destinations
	setClusterIPs   setName = "cluster-ips"   // those of policy Plain
	setServiceCIDRs setName = "service-cidrs"
	setHairpin      setName = "hairpin" // endpoint . the same endpoint

	// Those of session affinity, see affinity_linux.go.
	setAffinityGroups    setName = "affinity-groups"    // destination : group
	setAffinityChoices   setName = "affinity-choices"   // destination . slot : number
	setAffinityEndpoints setName = "affinity-endpoints" // destination . number : address . port
	setAffinity          setName = "affinity"           // source . group : number, written by packets
)

// setNames are those that are filled here, in the order in which elements are removed that nothing
// needs any more: what leads to others first. They are added in the opposite order.
var setNames = []setName{
	setClusterIPs, setAddresses, setServices, setAdmitted, setLocal, setSourceRanges,
	setAffinityGroups, setAffinityChoices, setAffinityEndpoints, setEndpoints, setHairpin, setServiceCIDRs,
}
