package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The part of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/) that a list of modules needs.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string          `json:"SPDXID"`
		Name             string          `json:"name"`
		VersionInfo      string          `json:"versionInfo"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		ExternalRefs     []spdxReference `json:"externalRefs"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// sbom lists the modules in the binary and the version of Go, as SPDX in JSON.
func (b binary) sbom() ([]byte, error) {
	const document = "SPDXRef-DOCUMENT"
	d := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: document, Name: b.name,
		DocumentNamespace: "https://outboard.dev/spdx/" + b.digest(),
		CreationInfo:      spdxCreation{Created: b.created().Format(time.RFC3339), Creators: []string{"Tool: outboard-image"}},
	}
	add := func(name, version string) string {
		p := spdxPackage{
			SPDXID: fmt.Sprintf("SPDXRef-Package-%d", len(d.Packages)), Name: name, VersionInfo: version, DownloadLocation: "NOASSERTION",
			ExternalRefs: []spdxReference{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: "pkg:golang/" + name + "@" + version}},
		}
		d.Packages = append(d.Packages, p)
		return p.SPDXID
	}
	var main string
	for i, m := range b.modules() {
		id := add(m.Path, m.Version)
		if i == 0 {
			main = id
			d.Relationships = append(d.Relationships, spdxRelationship{document, "DESCRIBES", main})
			continue
		}
		d.Relationships = append(d.Relationships, spdxRelationship{main, "DEPENDS_ON", id})
	}
	std := add("stdlib", strings.TrimPrefix(b.info.GoVersion, "go"))
	d.Relationships = append(d.Relationships, spdxRelationship{main, "DEPENDS_ON", std})
	return json.MarshalIndent(d, "", " ")
}
