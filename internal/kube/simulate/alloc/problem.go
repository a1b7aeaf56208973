package alloc

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// problem is why a Service is refused, in the words of the API: its field, and
// what kubectl prints behind that and a colon. Where no field is to blame, field
// is empty and the words are all there is.
type problem struct{ field, words string }

type problems []problem

// invalid, unsupported, duplicate and forbidden are the kinds of refusals of a
// field that come up here (apimachinery: util/validation/field). A value is
// spelt as in JSON.
func (p *problems) invalid(field, value, detail string) {
	p.add(field, "Invalid value: "+value+": "+detail)
}

func (p *problems) unsupported(field, value string, supported ...string) {
	for i := range supported {
		supported[i] = strconv.Quote(supported[i])
	}
	p.add(field, "Unsupported value: "+value+": supported values: "+strings.Join(supported, ", "))
}

func (p *problems) duplicate(field, value string) { p.add(field, "Duplicate value: "+value) }

func (p *problems) forbidden(field, detail string) { p.add(field, "Forbidden: "+detail) }

// internal is a refusal that no field is to blame for.
func (p *problems) internal(format string, args ...any) {
	p.add("", "Internal error occurred: "+fmt.Sprintf(format, args...))
}

// add adds a problem that is not there yet.
func (p *problems) add(field, words string) {
	for _, known := range *p {
		if known == (problem{field, words}) {
			return
		}
	}
	*p = append(*p, problem{field, words})
}

// at is the path of element i of a list.
func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

func quoted[S ~string](s S) string { return strconv.Quote(string(s)) }

// listed spells a list in JSON; a list that is not there is null.
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

// ipTexts are cluster IPs as the API spells them, and an empty text for each that
// is wanted and not there.
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
