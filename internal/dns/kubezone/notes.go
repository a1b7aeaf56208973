package kubezone

import (
	"fmt"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// What clients are told with a denial (docs/dns-answers.md, "Negative answers").
var (
	noNamespace   = because("no such Namespace")
	noService     = because("no such Service in this Namespace")
	noPort        = because("this Service has no such named port, or not for this protocol")
	noEndpoint    = because("no ready endpoint of this Service has that hostname or address")
	noAddress     = because("no address was assigned to this Service")
	noEndpoints   = because("this Service has no endpoints")
	targetAddress = because("the target of this ExternalName Service is an address, not a name")
	targetInvalid = because("the target of this ExternalName Service is not a domain name")
	noPod         = because("no running Pod in this Namespace has that address")
	noPodAddress  = because("pod names are addresses with dashes")
	podsOff       = because("pod records are off")

	recalled = &zone.Stale{
		Found:     &zone.EDE{Code: dnswire.EDEStale, Text: "from a snapshot, the Kubernetes API has not told of it since the start"},
		Denied:    &zone.EDE{Code: dnswire.EDEStaleNXDomain, Text: "not in the snapshot, and the Kubernetes API has not told what there is since the start"},
		DeniedTTL: 1,
	}
	confirming = &zone.Stale{
		Found:  recalled.Found,
		Denied: &zone.EDE{Code: dnswire.EDENotReady, Text: "not in the snapshot, and the Kubernetes API is just telling what there is", Pending: true},
	}

	notLoaded = &zone.EDE{Code: dnswire.EDENotReady, Text: "the cluster's objects are not loaded yet", Pending: true}
)

func because(text string) *zone.EDE { return &zone.EDE{Code: dnswire.EDEOther, Text: text} }

// fewReady are the notes for Services of few endpoints, so that all have the
// same, by how many those are.
var fewReady = func() (notes [100]*zone.EDE) {
	notes[0] = noEndpoints
	notes[1] = because("this Service has 1 endpoint and it is not ready")
	for n := 2; n < len(notes); n++ {
		notes[n] = manyUnready(n)
	}
	return notes
}()

func manyUnready(endpoints int) *zone.EDE {
	return because(fmt.Sprintf("this Service has %d endpoints and none is ready", endpoints))
}

// noneReady: the Service has that many endpoints.
func noneReady(endpoints int) *zone.EDE {
	if endpoints < len(fewReady) {
		return fewReady[endpoints]
	}
	return manyUnready(endpoints)
}
