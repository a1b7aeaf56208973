package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// The parts of an SPDX 2.3 document that are written here.
type spdxDocument struct {
	SPDXVersion       string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	SPDXID            string             `json:"SPDXID"`
	Name              string             `json:"name"`
	DocumentNamespace string             `json:"documentNamespace"`
	CreationInfo      spdxCreation       `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string         `json:"name"`
	SPDXID           string         `json:"SPDXID"`
	VersionInfo      string         `json:"versionInfo"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	CopyrightText    string         `json:"copyrightText"`
	Purpose          string         `json:"primaryPackagePurpose,omitempty"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	ExternalRefs     []spdxRef      `json:"externalRefs"`
	Comment          string         `json:"comment,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	spdxDocumentID = "SPDXRef-DOCUMENT"
	spdxNone       = "NOASSERTION"
)

// writeSBOM writes the software bill of materials of a binary: the modules that
// are linked into it, and Go's standard library.
func writeSBOM(file string, b program) error {
	data, err := json.MarshalIndent(newSBOM(b), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

func newSBOM(b program) spdxDocument {
	sum := fmt.Sprintf("%x", sha256.Sum256(b.data))
	name := b.release.fileName(b.platform.String())
	root := modulePackage(b.info.Main.Path, b.info.Main.Version)
	root.LicenseDeclared, root.Purpose = "Apache-2.0", "APPLICATION"
	root.Checksums = []spdxChecksum{{Algorithm: "SHA256", Value: sum}}
	doc := spdxDocument{
		SPDXVersion:       "SPDX-2.3",
		DataLicense:       "CC0-1.0",
		SPDXID:            spdxDocumentID,
		Name:              name,
		DocumentNamespace: fmt.Sprintf("https://%s/spdx/%s-%s", b.info.Main.Path, name, sum),
		CreationInfo: spdxCreation{
			Created:  b.release.time.Format("2006-01-02T15:04:05Z"),
			Creators: []string{"Tool: portolan-release"},
		},
		Packages:      []spdxPackage{root},
		Relationships: []spdxRelationship{{spdxDocumentID, "DESCRIBES", root.SPDXID}},
	}
	add := func(p spdxPackage) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, spdxRelationship{root.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	add(modulePackage("stdlib", strings.TrimPrefix(b.info.GoVersion, "go")))
	for _, m := range b.info.Deps { // sorted by path
		add(dependency(m))
	}
	return doc
}

func dependency(m *debug.Module) spdxPackage {
	if m.Replace != nil {
		m = m.Replace
	}
	p := modulePackage(m.Path, m.Version)
	if m.Sum != "" {
		p.Comment = "go.sum: " + m.Sum
	}
	return p
}

func modulePackage(path, version string) spdxPackage {
	return spdxPackage{
		Name: path, SPDXID: "SPDXRef-" + spdxID(path+"-"+version), VersionInfo: version,
		DownloadLocation: spdxNone, LicenseConcluded: spdxNone, LicenseDeclared: spdxNone, CopyrightText: spdxNone,
		ExternalRefs: []spdxRef{{
			Category: "PACKAGE-MANAGER",
			Type:     "purl",
			Locator:  "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B"),
		}},
	}
}

// spdxID replaces what an identifier may not have.
func spdxID(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, text)
}
