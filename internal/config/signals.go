package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/signal"
)

// maxSignals bounds the number of signals.
const maxSignals = 200

// Signal is a named source of numbers that is read in the background. In a file, the field that the
// source's type names holds the configuration of the source.
type Signal struct {
	signal.Settings
	// Type is the source's type.
	Type signal.Type
	// Config is the configuration of the source, with its defaults.
	Config strictyaml.Value
	// Spec is the source, built from Config.
	signal.Spec

	written strictyaml.Value // the whole, with defaults
}

// signals builds the signals of c.
func (l *loader) signals(c *Config, written []strictyaml.Value) {
	at := field.NewPath("signals")
	if n := len(written); n > maxSignals {
		l.report(field.ErrorList{field.TooMany(at, n, maxSignals)})
		return
	}
	names := fields.Unique{}
	for i := range written {
		s := l.signal(at.Index(i), written[i], !c.ClientConnection.Enabled)
		l.report(names.Add(at.Index(i).Child("name"), s.Name))
		c.Signals = append(c.Signals, s)
	}
}

// signal decodes and validates one signal. Its Spec is the zero value unless it has exactly one
// source.
func (l *loader) signal(at *field.Path, written strictyaml.Value, noCluster bool) (s Signal) {
	s.SetDefaults()
	file := reflect.New(l.signalStruct()).Elem()
	file.Field(0).Set(reflect.ValueOf(s.Settings))
	l.undecoded = append(l.undecoded, errorsIn(written.Decode(file.Addr().Interface()))...)
	s.Settings = file.Field(0).Interface().(signal.Settings)
	var errs field.ErrorList
	var given []signal.Type
	for i, t := range l.types.Signals {
		config := file.Field(i + 1).Interface().(strictyaml.Value)
		if config.IsZero() {
			continue
		}
		given = append(given, t)
		s.Type = t
		s.Spec, s.Config = build(l, at.Child(t.Name), config, t.New, "")
		file.Field(i + 1).Set(reflect.ValueOf(s.Config))
		if noCluster && t.NeedsCluster {
			errs = append(errs, field.Forbidden(at.Child(t.Name), "needs an API server, but clientConnection.enabled is false"))
		}
	}
	minTimeout := time.Duration(0)
	switch len(given) {
	case 0:
		errs = append(errs, field.Required(at, "must have a source: "+sourceNames(l.types.Signals)))
	case 1:
		minTimeout = given[0].MinTimeout
	default:
		errs = append(errs, field.Forbidden(at.Child(given[1].Name), "a signal has one source, but this one has "+given[0].Name))
		s.Spec = signal.Spec{}
	}
	l.report(append(errs, s.Validate(at, minTimeout)...))
	var err error
	if s.written, err = strictyaml.Encode(file.Interface()); err != nil {
		panic(err) // settings are strings and numbers, and the rest has been encoded
	}
	return s
}

// signalStruct is the type of a signal in a file: the settings, and a field for the
// configuration of each type of source.
func (l *loader) signalStruct() reflect.Type {
	all := []reflect.StructField{{Name: "Settings", Type: reflect.TypeFor[signal.Settings](), Anonymous: true}}
	for i, t := range l.types.Signals {
		all = append(all, reflect.StructField{
			Name: fmt.Sprintf("Source%d", i), Type: reflect.TypeFor[strictyaml.Value](), Tag: reflect.StructTag(fmt.Sprintf("json:%q", t.Name)),
		})
	}
	return reflect.StructOf(all)
}

// sourceNames lists the names of types, such as "file, nodes or cluster".
func sourceNames(types []signal.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}
