package respond

import (
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/evidence"
)

// EvidenceKind is the kind of events that are queries.
const EvidenceKind = "query"

// Indices of EvidenceReasons: those of zone.Reason, of which the first stands for an answer as
// expected, and these for answers whose code says it all.
const (
	evidenceNXDomain = int(zone.Reasons) + iota
	evidenceNoData
	evidenceServFail
	evidenceRefused
	evidenceFormErr
	evidenceNotImp
	evidenceBadVers
	evidenceBadCookie
	evidenceNotAuth
	evidenceRateLimited
	evidenceReasons // how many there are
)

// evidenceMeanings has what reasons mean; their words are those of zone.Reason for the first.
var evidenceMeanings = [evidenceReasons]evidence.Reason{
	zone.Implied:        {Word: "ok", Meaning: "The answer has what the query asked for.", Usual: true},
	zone.NoNamespace:    {Meaning: "There is no such Namespace."},
	zone.NoService:      {Meaning: "The Namespace has no such Service."},
	zone.NoPort:         {Meaning: "The Service has no port of that name, or not for that protocol."},
	zone.NoEndpoint:     {Meaning: "No ready endpoint of the Service has that hostname or address."},
	zone.NoAddress:      {Meaning: "The Service has no address yet."},
	zone.NoEndpoints:    {Meaning: "The headless Service has no endpoints."},
	zone.NoneReady:      {Meaning: "The headless Service has endpoints, and none is ready."},
	zone.TargetAddress:  {Meaning: "The `externalName` of the Service is an address."},
	zone.TargetInvalid:  {Meaning: "The `externalName` of the Service is no domain name."},
	zone.NoPod:          {Meaning: "No running Pod of the Namespace has that address."},
	zone.NoPodAddress:   {Meaning: "The name below `pod` is not an address with dashes."},
	zone.PodsDisabled:   {Meaning: "Names of Pods are off (`dns.pods`)."},
	zone.AliasLoop:      {Meaning: "Aliases lead in a circle, or on for too long."},
	zone.NotLoaded:      {Meaning: "The objects of the cluster, or the zone, are not loaded yet."},
	zone.StaleData:      {Meaning: "The answer is from stale data."},
	zone.Blocked:        {Meaning: "A rule of `dns.block` has the name, or `dns.suppress` the type."},
	zone.NotAllowed:     {Meaning: "A rule of `dns.access` denies the client or the name."},
	zone.NoUpstream:     {Meaning: "The name is outside the zones, and no upstream server is asked."},
	zone.UpstreamFailed: {Meaning: "No upstream server answered in time, or all failed."},
	zone.Other:          {Meaning: "Another reason, which the Extended DNS Error of the answer says."},

	evidenceNXDomain: {Word: "nxdomain", Meaning: "An upstream server or a local zone says that the name does not exist."},
	evidenceNoData: {
		Word: "nodata", Usual: true,
		Meaning: "The name has no records of that type, such as AAAA in a cluster without IPv6.",
	},
	evidenceServFail:  {Word: "servfail", Meaning: "Upstream servers answered SERVFAIL."},
	evidenceRefused:   {Word: "refused", Meaning: "The server refuses queries of that class or type."},
	evidenceFormErr:   {Word: "formerr", Meaning: "The query is malformed."},
	evidenceNotImp:    {Word: "notimp", Meaning: "The server does not know the operation."},
	evidenceBadVers:   {Word: "badvers", Meaning: "The query has an EDNS version that the server does not know."},
	evidenceBadCookie: {Word: "badcookie", Meaning: "The query has a cookie that is not the server's."},
	evidenceNotAuth:   {Word: "notauth", Meaning: "The signature of the query is wrong, or the zone is not served."},
	evidenceRateLimited: {
		Word:    "rate-limited",
		Meaning: "The client is over `dns.rateLimit`; it gets no answer, or a truncated one.",
	},
}

// EvidenceReasons returns the reasons that Config.Evidence must have.
func EvidenceReasons() []evidence.Reason {
	reasons := evidenceMeanings
	for r := zone.Implied + 1; r < zone.Reasons; r++ {
		reasons[r].Word = r.String()
	}
	return reasons[:]
}

// evidenceOutcomes are the reasons of answers whose code says it all.
var evidenceOutcomes = [...]int{
	failed:           evidenceServFail,
	denied:           evidenceNXDomain,
	malformed:        evidenceFormErr,
	notImplemented:   evidenceNotImp,
	refused:          evidenceRefused,
	badVersion:       evidenceBadVers,
	badCookie:        evidenceBadCookie,
	notAuthoritative: evidenceNotAuth,
	transferring:     int(zone.Implied),
}

// evidenceReason returns the index of the reason of a verdict.
func (w *Worker) evidenceReason(v *verdict) int {
	switch v.cause {
	case overRate:
		return evidenceRateLimited
	case deniedAccess:
		return int(zone.NotAllowed)
	case noCause, notQuery:
	}
	if why := v.reason().Why(); why != zone.Implied {
		return int(why)
	}
	switch {
	case v.outcome != answered:
		return evidenceOutcomes[v.outcome]
	case w.response.Answers() == 0 && !v.truncated:
		return evidenceNoData
	}
	return int(zone.Implied)
}

// sample records an observation that was drawn.
func (w *Worker) sample(o *Observation, e evidence.Sample) {
	e.Time, e.Client = o.Began, o.Client.Addr
	e.Subject = dnsname.AppendText(w.eventText[:0], o.QName)
	e.Detail = append(w.eventText[len(e.Subject):len(e.Subject)], o.QType.String()...)
	w.sampler.Record(&e)
}
