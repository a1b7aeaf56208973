package dnsconfig

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrorType is the type of a FieldError, as the API server names it.
type ErrorType string

// The types of errors that Validate returns.
const (
	Required     ErrorType = "Required value"
	Invalid      ErrorType = "Invalid value"
	NotSupported ErrorType = "Unsupported value"
	Forbidden    ErrorType = "Forbidden"
	TooLong      ErrorType = "Too long"
)

// FieldError is the API server's error for a field.
type FieldError struct {
	Field string // its path, such as "spec.dnsConfig.nameservers[0]"
	Type  ErrorType
	// Value is the quoted value, or "" if the message does not contain it.
	Value  string
	Detail string
}

// Error returns the text of the API server's error.
func (e *FieldError) Error() string {
	text := e.Field + ": " + string(e.Type)
	if e.Value != "" {
		text += ": " + e.Value
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Validate returns the API server's errors for the DNS and hostname settings of a new
// Pod, in its order. It accepts the policies that only the KEPs define, and treats Custom
// as None; Resolve warns about them.
func Validate(p PodSettings) []*FieldError {
	v := validator{pod: &p}
	v.policy()
	v.dnsConfig()
	v.hostnameOverride()
	if p.Hostname != "" {
		v.label("hostname", p.Hostname)
	}
	if p.Subdomain != "" {
		v.label("subdomain", p.Subdomain)
	}
	switch p.OS {
	case "", Linux, Windows:
	default:
		v.add("os", NotSupported, jsonText(p.OS), supported(string(Linux), string(Windows)))
	}
	return v.errs
}

// validator collects errors.
type validator struct {
	pod  *PodSettings
	errs []*FieldError
}

func (v *validator) add(field string, kind ErrorType, value, detail string) {
	v.errs = append(v.errs, &FieldError{Field: v.pod.field(field), Type: kind, Value: value, Detail: detail})
}

func (v *validator) policy() {
	switch v.pod.Policy.canonical() {
	case Default, ClusterFirst, ClusterFirstWithHostNet, None, ClusterFirstWithAutopath:
		return
	}
	v.add("dnsPolicy", NotSupported, jsonText(v.pod.Policy),
		supported(string(ClusterFirstWithHostNet), string(ClusterFirst), string(Default), string(None)))
}

func (v *validator) dnsConfig() {
	c := v.pod.DNSConfig
	if v.pod.Policy.canonical() == None {
		if c == nil {
			v.add("dnsConfig", Required, "", "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if len(c.Nameservers) == 0 {
			v.add("dnsConfig.nameservers", Required, "", "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > MaxNameservers {
		v.add("dnsConfig.nameservers", Invalid, jsonText(c.Nameservers),
			fmt.Sprintf("must not have more than %d nameservers", MaxNameservers))
	}
	for i, text := range c.Nameservers {
		if detail := checkAddr(text); detail != "" {
			v.add(fmt.Sprintf("dnsConfig.nameservers[%d]", i), Invalid, strconv.Quote(text), detail)
		}
	}
	v.searches(c.Searches)
	for i, option := range c.Options {
		if option.Name == "" {
			v.add(fmt.Sprintf("dnsConfig.options[%d]", i), Required, "", "must not be empty")
		}
	}
}

func (v *validator) searches(list []string) {
	const field = "dnsConfig.searches"
	if len(list) > MaxSearches {
		v.add(field, Invalid, jsonText(list), fmt.Sprintf("must not have more than %d search paths", MaxSearches))
	}
	if joinedLen(list) > MaxSearchList {
		v.add(field, Invalid, jsonText(list),
			fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", MaxSearchList))
	}
	for i, search := range list {
		if search != "." {
			v.subdomain(fmt.Sprintf("%s[%d]", field, i), strings.TrimSuffix(search, "."), underscores)
		}
	}
}

func (v *validator) hostnameOverride() {
	if v.pod.HostnameOverride == nil {
		return
	}
	const field = "hostnameOverride"
	if v.pod.SetHostnameAsFQDN {
		v.add(field, Forbidden, "", "may not be specified when setHostnameAsFQDN is true")
	}
	if v.pod.HostNetwork {
		v.add(field, Forbidden, "", "may not be specified when hostNetwork is true")
	}
	name := *v.pod.HostnameOverride
	if len(name) > maxFQDN {
		v.add(field, TooLong, "", fmt.Sprintf("may not be more than %d bytes", maxFQDN))
	}
	v.subdomain(field, name, hostCharacters)
}

// characters is the set of characters that a name may have.
type characters int

const (
	hostCharacters characters = iota // a-z, 0-9 and -
	underscores                      // hostCharacters and _
)

// label validates a name of one label (RFC 1123).
func (v *validator) label(field, name string) {
	if len(name) > maxHostname {
		v.add(field, Invalid, strconv.Quote(name), fmt.Sprintf("must be no more than %d characters", maxHostname))
	}
	switch {
	case isLabel(name, hostCharacters):
	case isSubdomain(name, hostCharacters):
		v.add(field, Invalid, strconv.Quote(name), "must not contain dots")
	default:
		v.add(field, Invalid, strconv.Quote(name),
			"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "+
				"and must start and end with an alphanumeric character "+
				"(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')")
	}
}

// subdomain validates a name of one or more labels.
func (v *validator) subdomain(field, name string, c characters) {
	if len(name) > MaxSearch {
		v.add(field, Invalid, strconv.Quote(name), fmt.Sprintf("must be no more than %d characters", MaxSearch))
	}
	if isSubdomain(name, c) {
		return
	}
	list, label := "'-' or '.'", `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	if c == underscores {
		list, label = "'_', '-' or '.'", `_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?`
	}
	v.add(field, Invalid, strconv.Quote(name),
		"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "+list+
			", and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '"+
			label+`(\.`+label+")*')")
}

func isSubdomain(name string, c characters) bool {
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label, c) {
			return false
		}
	}
	return true
}

// isLabel ignores the length, as Kubernetes does for the labels of a name.
func isLabel(label string, c characters) bool {
	if c == underscores {
		label = strings.TrimPrefix(label, "_")
	}
	if label == "" || !isAlphanumeric(rune(label[0])) || !isAlphanumeric(rune(label[len(label)-1])) {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool {
		return !isAlphanumeric(r) && r != '-' && (r != '_' || c != underscores)
	})
}

func isAlphanumeric(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// checkAddr returns what is wrong with the address of a nameserver, or "".
func checkAddr(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		addr, err = netip.ParseAddr(withoutZeros(text))
		if err == nil && addr.Zone() == "" {
			return "must not have leading 0s"
		}
	}
	switch {
	case err != nil || addr.Zone() != "":
		return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
	case addr.Is4In6():
		return "must not be an IPv4-mapped IPv6 address"
	}
	return ""
}

// withoutZeros removes leading zeros from the four decimal parts of an address.
func withoutZeros(text string) string {
	colon := strings.LastIndexByte(text, ':') + 1
	parts := strings.Split(text[colon:], ".")
	if len(parts) != 4 {
		return text
	}
	for i, part := range parts {
		if short := strings.TrimLeft(part, "0"); short != part {
			parts[i] = short
			if short == "" {
				parts[i] = "0"
			}
		}
	}
	return text[:colon] + strings.Join(parts, ".")
}

// supported returns the detail of an error of type NotSupported.
func supported(values ...string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.Quote(value)
	}
	return "supported values: " + strings.Join(quoted, ", ")
}

// jsonText returns a string or a list of strings as JSON.
func jsonText(value any) string {
	text, _ := json.Marshal(value) //nolint:errchkjson // strings can always be encoded
	return string(text)
}
