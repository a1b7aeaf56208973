// Package annotation reads the annotations with which ingress-nginx is configured, nginx.ingress.kubernetes.io/* of an
// Ingress (ingress-nginx 1.15, "Annotations"), and says what Ingresses together have of a host.
//
//	annotations ──► parse.go: the settings of an Ingress, and a Verdict on each annotation
//	                known.go: all annotations there are, and what becomes of each
//	settings    ──► host.go:  the locations of a host, of all its Ingresses, as ingress-nginx orders them
//
// It serves both the gateway, which obeys annotations if gateway.ingress.annotations is nginx, and the translation of
// Ingresses into routes.
package annotation

import (
	"net/netip"
	"time"
)

// Prefix is that of the names of annotations.
const Prefix = "nginx.ingress.kubernetes.io/"

// Effect is what an annotation does.
type Effect uint8

// The effects. The zero value is the most severe one.
const (
	Unsupported Effect = iota // there is nothing like it here
	Invalid                   // its value is none that it can have
	Ignored                   // there is nothing that it could change here, or nothing with its other annotations
	Used
)

// String returns the effect as a word.
func (e Effect) String() string {
	return [...]string{Unsupported: "unsupported", Invalid: "invalid", Ignored: "ignored", Used: "used"}[e]
}

// Verdict is what is said of an annotation of an Ingress.
type Verdict struct {
	// Name is without Prefix.
	Name   string
	Effect Effect
	// Text says why, or what to do; it may be empty if the annotation is used.
	Text string
}

// Settings are what the annotations of an Ingress say. The zero Settings are not those of an Ingress without
// annotations: see Parse.
type Settings struct {
	// SSLRedirect has requests over HTTP be redirected if the host has TLS, and ForceSSLRedirect always.
	SSLRedirect, ForceSSLRedirect bool
	// KeepSlash keeps a slash at the end of what they are redirected to (preserve-trailing-slash).
	KeepSlash bool
	// UseRegex makes paths of all Ingresses of the host regular expressions, as Rewrite does.
	UseRegex bool
	// Rewrite is rewrite-target: what replaces the path, with $1 to $9 for the groups of the expression.
	Rewrite string
	// AppRoot is where requests for "/" are redirected to.
	AppRoot string
	// Redirect is permanent-redirect or temporal-redirect; nil for none.
	Redirect *Redirect
	// WWW redirects from the host with "www." to that without, or the other way round (from-to-www-redirect).
	WWW bool
	// Aliases are other names of the Ingress' hosts (server-alias), in lower case.
	Aliases []string
	// Host is upstream-vhost, and Prefix x-forwarded-prefix, which needs a Rewrite.
	Host, Prefix string
	Protocol     Protocol
	Body         Size
	// Allow and Deny are ranges of clients; without Allow all are allowed.
	Allow, Deny []netip.Prefix
	// Denied says why no request may be served: what should restrict them is invalid. Empty otherwise.
	Denied string
	// HostDenied is Denied for all requests for the hosts of the Ingress, also those that other Ingresses have paths for.
	HostDenied string
	Basic      *Basic
	External   *External
	// AnyOf: one of Allow, Basic and External is enough (satisfy: any).
	AnyOf    bool
	CORS     *CORS
	Limits   *Limits
	Canary   *Canary
	Affinity *Affinity
	// HashBy is upstream-hash-by.
	HashBy string
	Retry  Retry
	// ReadTimeout is proxy-read-timeout; 0 if it is not set. SendTimeout and ConnectTimeout are alike.
	ReadTimeout, SendTimeout, ConnectTimeout time.Duration
	ClientCertificates                       *ClientCertificates
	// Passthrough is ssl-passthrough.
	Passthrough bool
}

// Redirect answers with a location.
type Redirect struct {
	Location string
	Status   int
}

// Protocol is backend-protocol.
type Protocol string

// The protocols.
const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	GRPC  Protocol = "GRPC"
	GRPCS Protocol = "GRPCS"
)

// Size is a number of octets that may be not set. 0 is any number (proxy-body-size).
type Size struct {
	Octets int64
	Set    bool
}

// Basic is auth-type basic (RFC 7617).
type Basic struct {
	// Namespace, which may be empty, and Secret name the Secret with the passwords. Map: its keys are users, else its
	// key "auth" is a file of htpasswd.
	Namespace, Secret string
	Map               bool
	Realm             string
}

// External is auth-url: a request to another server decides.
type External struct {
	URL, Method string
	// SignIn is where clients are redirected that have no credentials; Param is the parameter with the URL they wanted.
	SignIn, Param string
	// Headers are those of its response that the backend gets.
	Headers []string
	// Redirect is what its request has in X-Auth-Request-Redirect; empty is the path and query.
	Redirect string
}

// CORS is enable-cors and cors-*.
type CORS struct {
	Origins, Methods, Headers, Expose []string
	Credentials                       bool
	MaxAge                            time.Duration
}

// Limits are limit-*, for each client's address.
type Limits struct {
	// PerSecond and PerMinute are requests, and Connections those under way at once; 0 is any number.
	PerSecond, PerMinute, Connections int
	// Burst is how many times a rate may be exceeded at once.
	Burst int
	// Except are clients without limits.
	Except []netip.Prefix
}

// Canary is canary-*: which requests for the paths of other Ingresses go to the backends of this one. A header decides
// before a cookie, and that before the weight.
type Canary struct {
	Header, Value, Pattern string
	Cookie                 string
	Weight, Total          int
}

// Affinity is session affinity by a cookie.
type Affinity struct {
	Name, Path, Domain, SameSite string
	// MaxAge is 0 for a cookie that ends with the browser.
	MaxAge time.Duration
	// Secure is nil if that depends on the connection.
	Secure *bool
	// Persistent is affinity-mode persistent.
	Persistent bool
	// ChangeOnFailure has the cookie name another endpoint after one failed.
	ChangeOnFailure bool
}

// Retry is proxy-next-upstream-*. Fields that are nil are not set; 0 Tries are any number, and a Timeout of 0 is none.
type Retry struct {
	On      []string
	Tries   *int
	Timeout time.Duration
}

// ClientCertificates is auth-tls-*, which is for all Ingresses of the host.
type ClientCertificates struct {
	Namespace, Secret string
	// Verify is on, optional, optional_no_ca or off.
	Verify string
	Depth  int
	// Pass hands the certificate to the backend.
	Pass bool
}
