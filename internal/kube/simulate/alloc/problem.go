package alloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// problem is a reason to refuse a Service, in the texts of the API: the field, and what
// kubectl prints after it and a colon. Problems that concern no field have an empty
// field.
type problem struct{ field, message string }

type problems []problem

// invalid, unsupported, duplicate and forbidden append a problem of a field in the format
// of apimachinery's package util/validation/field. A value is encoded as JSON.
func (p *problems) invalid(field, value, detail string) {
	p.report(field, "Invalid value: "+value+": "+detail)
}

func (p *problems) unsupported(field, value string, supported ...string) {
	for i := range supported {
		supported[i] = strconv.Quote(supported[i])
	}
	p.report(field, "Unsupported value: "+value+": supported values: "+strings.Join(supported, ", "))
}

func (p *problems) duplicate(field, value string) { p.report(field, "Duplicate value: "+value) }

func (p *problems) forbidden(field, detail string) { p.report(field, "Forbidden: "+detail) }

// internal appends a problem that concerns no field.
func (p *problems) internal(format string, args ...any) {
	p.report("", "Internal error occurred: "+fmt.Sprintf(format, args...))
}

// report appends a problem unless it is already in the list.
func (p *problems) report(field, message string) {
	if reported := (problem{field, message}); !slices.Contains(*p, reported) {
		*p = append(*p, reported)
	}
}

// at returns the path of element i of a list.
func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func quoted[S ~string](s S) string { return strconv.Quote(string(s)) }

// listed returns a list as JSON; a nil list is null.
func listed[S ~string](list []S) string {
	if list == nil {
		return "null"
	}
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = quoted(s)
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// ipTexts returns cluster IPs as the API prints them, with an empty text for each address
// missing from the wanted number.
func ipTexts(ips []netip.Addr, wanted int) []string {
	texts := make([]string, max(len(ips), wanted))
	for i, ip := range ips {
		texts[i] = ipText(ip)
	}
	return texts
}

func ipText(ip netip.Addr) string {
	if !ip.IsValid() {
		return "None"
	}
	return ip.String()
}
