package config

import (
	"errors"
	"reflect"
	"slices"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
)

// Schema returns the JSON Schema of configuration files with policies and signals of the given
// types, for a program that serves calls. Fields, their types and their defaults are those of the
// Go types, and the other rules those of their tags (see package policy/fields). A file that loads
// is valid by the schema. Not every file that is valid by the schema loads.
//
// describe documents the fields; nil omits descriptions.
func Schema(types Types, describe strictyaml.Describe) *strictyaml.Schema {
	if describe == nil {
		describe = func(reflect.Type, string) string { return "" }
	}
	b := schemaBuilder{types: types, describe: describe}
	root := b.document()
	root.Draft = "http://json-schema.org/draft-07/schema#"
	root.Title = Kind
	item := policyOf(root)
	for _, t := range types.Policies {
		config := configuration(&b, "config", t.New)
		then := &strictyaml.Schema{Properties: map[string]*strictyaml.Schema{"config": config}}
		lacks := func(s *strictyaml.Schema) bool { return s.OneOf != nil }
		if config.Required != nil || slices.ContainsFunc(config.AllOf, lacks) {
			then.Required = []string{"config"}
		} else {
			config.AllowNull()
		}
		item.AllOf = append(item.AllOf, &strictyaml.Schema{
			If: &strictyaml.Schema{
				Properties: map[string]*strictyaml.Schema{"type": {Const: t.Name}},
				Required:   []string{"type"},
			},
			Then: then,
		})
	}
	return root
}

// policyOf returns the schema of a policy in the schema of a file.
func policyOf(root *strictyaml.Schema) *strictyaml.Schema {
	return root.Properties["profiles"].Items.Properties["policies"].Items
}

type schemaBuilder struct {
	types    Types
	describe strictyaml.Describe
}

// document returns the schema of a file. The configurations of
// policies may be anything.
func (b *schemaBuilder) document() *strictyaml.Schema {
	d := document{Process: &Default().Process}
	root := strictyaml.SchemaOf(&d, b.describe)
	root.Properties["apiVersion"].Enum = []any{APIVersion}
	root.Properties["kind"].Enum = []any{Kind}
	root.Require("serving")
	root.Properties["serving"].AnyOf = []*strictyaml.Schema{
		{Required: []string{"tls"}, Properties: map[string]*strictyaml.Schema{"tls": {Type: strictyaml.SchemaTypes{"object"}}}},
		{Required: []string{"insecure"}, Properties: map[string]*strictyaml.Schema{"insecure": {Const: true}}},
	}
	root.Properties["signals"].Items, root.Properties["signals"].MaxItems = b.signal(), maxSignals
	profile := root.Properties["profiles"].Items
	profile.Properties["policies"].MaxItems = maxPolicies
	profile.Properties["path"].Pattern, profile.Properties["path"].MaxLength = profilePath.String(), maxPath
	profile.Properties["managedResources"].Items.Properties["name"].Pattern = fields.Pattern("key")
	policyOf(root).Properties["name"].Pattern = "^$|" + policyName.String()
	kind := policyOf(root).Properties["type"]
	for _, t := range b.types.Policies {
		kind.Enum = append(kind.Enum, t.Name)
	}
	return root
}

// signal returns the schema of a signal.
func (b *schemaBuilder) signal() *strictyaml.Schema {
	s := Signal{}
	s.SetDefaults()
	l := loader{types: b.types}
	file := reflect.New(l.signalStruct())
	file.Elem().Field(0).Set(reflect.ValueOf(s.Settings))
	schema := strictyaml.SchemaOf(file.Interface(), b.describe)
	sources := map[string][]any{}
	for _, t := range b.types.Signals {
		source := configuration(b, t.Name, t.New)
		source.AllowNull()
		schema.Properties[t.Name] = source
		sources[t.Name] = []any{nil}
	}
	schema.RequireOne(sources, false)
	return schema
}

// errNotDecoded ends create after it has revealed the type of its configuration.
var errNotDecoded = errors.New("not decoded")

// configuration returns the schema of the configuration that create decodes, with its defaults, as
// far as its Go type defines it. It is the schema of an empty mapping if create decodes nothing.
// name is the field that has the configuration.
func configuration[T any](b *schemaBuilder, name string, create func(func(any) error) (T, error)) *strictyaml.Schema {
	var into any = &struct{}{}
	_, _ = create(func(decoded any) error {
		into = decoded
		return errNotDecoded
	})
	schema := strictyaml.SchemaOf(into, b.describe)
	t := reflect.TypeOf(into).Elem()
	schema.SetDescription(b.describe(t, ""), t.Name(), name)
	return schema
}
