package app

import (
	_ "embed"
	"encoding/json"
	"io"
	"reflect"
	"strings"

	"outboard.dev/outboard/internal/config"
)

// writeSchema writes the JSON Schema of configuration files.
func writeSchema(w io.Writer, types config.Types) error {
	var texts map[string]string
	if err := json.Unmarshal(descriptions, &texts); err != nil {
		return err
	}
	return writeJSON(w, config.Schema(types, func(structure reflect.Type, field string) string {
		if text, ok := texts[descriptionKey(structure, field)]; ok {
			return text
		}
		return swaggerDoc(structure, field)
	}))
}

// descriptions are the comments of the types of configurations that come with Outboard, by
// descriptionKey. TestDescriptions writes them.
//
//go:embed descriptions.json
var descriptions []byte

// descriptionKey is package.Type.Field, or package.Type if field is "".
func descriptionKey(structure reflect.Type, field string) string {
	return strings.TrimSuffix(structure.PkgPath()+"."+structure.Name()+"."+field, ".")
}

// swaggerDoc returns the description of a field, or of the type if field is "", from the method
// SwaggerDoc that types of Kubernetes have.
func swaggerDoc(structure reflect.Type, field string) string {
	documented, ok := reflect.Zero(structure).Interface().(interface{ SwaggerDoc() map[string]string })
	if !ok {
		return ""
	}
	name := ""
	if f, ok := structure.FieldByName(field); ok {
		name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	}
	return documented.SwaggerDoc()[name]
}
