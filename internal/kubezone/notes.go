package kubezone

import (
	"fmt"

	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/zone"
)

// What clients are told with a denial (docs/dns-answers.md, "Saying no").
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

	recalled = &zone.Aged{
		Found:     &zone.Note{Code: dnswire.EDEStale, Text: "from a snapshot, the Kubernetes API has not told of it since the start"},
		Denied:    &zone.Note{Code: dnswire.EDEStaleNXDomain, Text: "not in the snapshot, and the Kubernetes API has not told what there is since the start"},
		DeniedTTL: 1,
	}
	confirming = &zone.Aged{
		Found:  recalled.Found,
		Denied: &zone.Note{Code: dnswire.EDENotReady, Text: "not in the snapshot, and the Kubernetes API is just telling what there is", Pending: true},
	}

	notLoaded = &zone.Note{Code: dnswire.EDENotReady, Text: "the cluster's objects are not loaded yet", Pending: true}
)

func because(text string) *zone.Note { return &zone.Note{Code: dnswire.EDEOther, Text: text} }

// noneReady: the Service has that many endpoints.
func noneReady(endpoints int) *zone.Note {
	switch endpoints {
	case 0:
		return noEndpoints
	case 1:
		return because("this Service has 1 endpoint and it is not ready")
	}
	return because(fmt.Sprintf("this Service has %d endpoints and none is ready", endpoints))
}
