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
		config := configuration(&b, configField, t.New)
		then := &strictyaml.Schema{Properties: map[string]*strictyaml.Schema{configField: config}}
		lacks := func(s *strictyaml.Schema) bool { return s.OneOf != nil }
		if config.Required != nil || slices.ContainsFunc(config.AllOf, lacks) {
			then.Required = []string{configField}
		} else {
			config.AllowNull()
		}
		item.AllOf = append(item.AllOf, &strictyaml.Schema{
			If: &strictyaml.Schema{
				Properties: map[string]*strictyaml.Schema{typeField: {Const: t.Name}},
				Required:   []string{typeField},
			},
			Then: then,
		})
	}
	return root
}

// The fields of files from which a schema is built.
var (
	apiVersionField = strictyaml.FieldName[document]("APIVersion")
	kindField       = strictyaml.FieldName[document]("Kind")
	servingField    = strictyaml.FieldName[document]("Serving")
	tlsField        = strictyaml.FieldName[Serving]("TLS")
	insecureField   = strictyaml.FieldName[Serving]("Insecure")
	signalsField    = strictyaml.FieldName[document]("Signals")
	profilesField   = strictyaml.FieldName[document]("Profiles")
	policiesField   = strictyaml.FieldName[Profile]("Policies")
	resourcesField  = strictyaml.FieldName[Profile]("ManagedResources")
	resourceField   = strictyaml.FieldName[ManagedResource]("Name")
	pathField       = strictyaml.FieldName[Profile]("Path")
	typeField       = strictyaml.FieldName[Policy]("Type")
	nameField       = strictyaml.FieldName[Policy]("Name")
	configField     = strictyaml.FieldName[Policy]("Config")
)

// policyOf returns the schema of a policy in the schema of a file.
func policyOf(root *strictyaml.Schema) *strictyaml.Schema {
	return root.Properties[profilesField].Items.Properties[policiesField].Items
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
	root.Properties[apiVersionField].Enum = []any{APIVersion}
	root.Properties[kindField].Enum = []any{Kind}
	root.Require(servingField)
	root.Properties[servingField].AnyOf = []*strictyaml.Schema{
		{Required: []string{tlsField}, Properties: map[string]*strictyaml.Schema{tlsField: {Type: strictyaml.SchemaTypes{"object"}}}},
		{Required: []string{insecureField}, Properties: map[string]*strictyaml.Schema{insecureField: {Const: true}}},
	}
	root.Properties[signalsField].Items, root.Properties[signalsField].MaxItems = b.signal(), maxSignals
	profile := root.Properties[profilesField].Items
	profile.Properties[policiesField].MaxItems = maxPolicies
	profile.Properties[pathField].Pattern, profile.Properties[pathField].MaxLength = profilePath.String(), maxPath
	profile.Properties[resourcesField].Items.Properties[resourceField].Pattern = fields.Pattern("key")
	policyOf(root).Properties[nameField].Pattern = "^$|" + policyName.String()
	kind := policyOf(root).Properties[typeField]
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
