package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// sbom lists the modules in the binary and the version of Go, as SPDX 2.3 in JSON
// (https://spdx.github.io/spdx-spec/v2.3/).
func (b binary) sbom() ([]byte, error) {
	const document = "SPDXRef-DOCUMENT"
	type object map[string]any
	var packages, relationships []object
	add := func(from, how, name, version string) (id string) {
		id = fmt.Sprintf("SPDXRef-Package-%d", len(packages))
		packages = append(packages, object{
			"SPDXID": id, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"externalRefs": []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + name + "@" + version}},
		})
		relationships = append(relationships, object{"spdxElementId": from, "relationshipType": how, "relatedSpdxElement": id})
		return id
	}
	modules := b.modules()
	main := add(document, "DESCRIBES", modules[0].Path, modules[0].Version)
	for _, m := range modules[1:] {
		add(main, "DEPENDS_ON", m.Path, m.Version)
	}
	add(main, "DEPENDS_ON", "stdlib", strings.TrimPrefix(b.info.GoVersion, "go"))
	return json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": document, "name": b.name,
		"documentNamespace": "https://outboard.dev/spdx/" + b.digest(),
		"creationInfo":      object{"created": b.created().Format(time.RFC3339), "creators": []string{"Tool: outboard-image"}},
		"packages":          packages, "relationships": relationships,
	}, "", " ")
}
