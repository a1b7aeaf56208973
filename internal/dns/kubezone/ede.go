package kubezone

import (
	"fmt"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Extended DNS Errors in negative answers (docs/dns-answers.md, "Negative answers").
var (
	noNamespace   = otherEDE(zone.NoNamespace, "no such Namespace")
	noService     = otherEDE(zone.NoService, "no such Service in this Namespace")
	noImport      = otherEDE(zone.NoService, "no such ServiceImport in this Namespace")
	noPort        = otherEDE(zone.NoPort, "this Service has no such named port, or not for this protocol")
	noEndpoint    = otherEDE(zone.NoEndpoint, "no ready endpoint of this Service has that hostname or address")
	noAddress     = otherEDE(zone.NoAddress, "no address was assigned to this Service")
	noEndpoints   = otherEDE(zone.NoEndpoints, "this Service has no endpoints")
	targetAddress = otherEDE(zone.TargetAddress, "the target of this ExternalName Service is an address, not a name")
	targetInvalid = otherEDE(zone.TargetInvalid, "the target of this ExternalName Service is not a domain name")
	noPod         = otherEDE(zone.NoPod, "no running Pod in this Namespace has that address")
	noPodAddress  = otherEDE(zone.NoPodAddress, "pod names are addresses with dashes")
	podsDisabled  = otherEDE(zone.PodsDisabled, "pod records are off")

	recalled = &zone.Stale{
		Found: &zone.EDE{
			Code: dnswire.EDEStale,
			Text: "from a snapshot, the Kubernetes API has not told of it since the start",
		},
		Denied: &zone.EDE{
			Code: dnswire.EDEStaleNXDomain,
			Text: "not in the snapshot, and the Kubernetes API has not told what there is since the start",
		},
		DeniedTTL: 1,
	}
	confirming = &zone.Stale{
		Found: recalled.Found,
		Denied: &zone.EDE{
			Code: dnswire.EDENotReady, Pending: true,
			Text: "not in the snapshot, and the Kubernetes API is just telling what there is",
		},
	}

	notLoaded = &zone.EDE{Code: dnswire.EDENotReady, Text: "the cluster's objects are not loaded yet", Pending: true}
)

func otherEDE(reason zone.Reason, text string) *zone.EDE {
	return &zone.EDE{Code: dnswire.EDEOther, Text: text, Reason: reason}
}

// noneReadyEDEs has the error for each small number of endpoints, so that Services share
// them.
var noneReadyEDEs = func() (notes [100]*zone.EDE) {
	notes[0] = noEndpoints
	notes[1] = otherEDE(zone.NoneReady, "this Service has 1 endpoint and it is not ready")
	for n := 2; n < len(notes); n++ {
		notes[n] = newNoneReady(n)
	}
	return notes
}()

func newNoneReady(endpoints int) *zone.EDE {
	return otherEDE(zone.NoneReady, fmt.Sprintf("this Service has %d endpoints and none is ready", endpoints))
}

// noneReadyEDE returns the error for a Service with that many endpoints, none of them
// ready.
func noneReadyEDE(endpoints int) *zone.EDE {
	if endpoints < len(noneReadyEDEs) {
		return noneReadyEDEs[endpoints]
	}
	return newNoneReady(endpoints)
}
