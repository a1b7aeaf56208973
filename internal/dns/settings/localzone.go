package settings

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
)

// compileLocalZones compiles the local zones. Their files are not read.
func (d *DNS) compileLocalZones(made *Compiled, compiler *kubezone.Compiler) error {
	if len(d.LocalZones) == 0 {
		return nil
	}
	local := &made.LocalZones
	local.Inner = compiler.Apexes()
	for i := range d.LocalZones {
		source, err := d.LocalZones[i].compile()
		if err != nil {
			return key.ItemErrorf("dns.localZones."+err.Path, i, "%w", err.Err)
		}
		if err := checkOutside(source.Apex, &made.Zone); err != nil {
			return key.ItemErrorf("dns.localZones.zone", i, "%w", err)
		}
		if slices.Contains(local.Inner, source.Apex) {
			return key.ItemErrorf(
				"dns.localZones.zone", i, "%s is given twice, or is a reverse zone of the cluster", source.Apex,
			)
		}
		local.Inner = append(local.Inner, source.Apex)
		local.Sources = append(local.Sources, source)
	}
	soa, err := compiler.SOA(dnsname.Root)
	if err != nil {
		return err
	}
	check := *local
	check.SOA = soa
	octets := 0
	for i, source := range local.Sources {
		if source.File != "" {
			continue
		}
		of, err := check.Check(source, octets)
		if err != nil {
			return recordsError(source.Apex, i, err)
		}
		octets += of
	}
	return nil
}

// recordsError returns the error of the records of a zone, which is an item of the list.
func recordsError(apex dnsname.Name, item int, err error) error {
	bad := &key.Error{Path: "dns.localZones.records", Item: item, Err: fmt.Errorf("zone %s: %w", apex, err)}
	if of, ok := errors.AsType[*dnswire.MasterError](err); ok {
		bad.Line = of.Line
	}
	return bad
}

// checkOutside returns an error if a local zone is in a zone with names of the cluster's
// objects: whoever may create these would write into the local zone.
func checkOutside(apex dnsname.Name, of *kubezone.Config) error {
	inside := func(z dnsname.Name) bool { return apex.IsSubdomainOf(z) }
	if i := slices.IndexFunc(of.Zones, inside); i >= 0 {
		return fmt.Errorf(
			"%s is in the cluster's zone %s; give names in it by dns.hosts or dns.rewrite", apex, of.Zones[i],
		)
	}
	const objects = "which holds names of the cluster's objects; use a zone outside it"
	if i := slices.IndexFunc(of.External.Zones, inside); i >= 0 {
		return fmt.Errorf("%s is in the zone %s of dns.external, %s", apex, of.External.Zones[i], objects)
	}
	if m := of.Multicluster; !m.IsRoot() && inside(m) {
		return fmt.Errorf("%s is in the zone %s of dns.multicluster, %s", apex, m, objects)
	}
	return nil
}

// maxTTL is the highest TTL, in seconds (RFC 2181, section 8).
const maxTTL = math.MaxInt32

var (
	errNoSource  = errors.New("no file, and no records either")
	errTwoSource = errors.New("both a file and records; give one of them")
	errRootZone  = errors.New("the root; give dns.forward.routes for all names")
)

// compile returns the zone's source, or the error with its key.
func (z *LocalZone) compile() (source localzone.Source, bad *key.Error) {
	wrong := func(path string, err error) (localzone.Source, *key.Error) {
		return source, &key.Error{Path: path, Err: err}
	}
	name, err := parseTree(z.Zone)
	switch {
	case err != nil:
		return wrong("zone", err)
	case name.IsRoot():
		return wrong("zone", errRootZone)
	case z.TTL < 0 || z.TTL > maxTTL:
		return wrong("ttl", fmt.Errorf("%d is not between 0 and %d", z.TTL, maxTTL))
	case z.File == "" && z.Records == "":
		return wrong("file", errNoSource)
	case z.File != "" && z.Records != "":
		return wrong("file", errTwoSource)
	}
	source = localzone.Source{Apex: name, File: z.File, Text: z.Records, TTL: uint32(z.TTL)}
	if z.TTL == 0 {
		source.TTL = DefaultLocalTTL
	}
	return source, nil
}
