package rules

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// schema describes the fields of objects in expressions: with their names in YAML, and without
// those that snapshot.TrimPod and TrimNode remove, so that a rule that reads these is rejected.
type schema struct {
	*types.Registry
	structs map[string]*structType
	byGo    map[reflect.Type]*structType
	trimmed map[reflect.Type][]string
}

type structType struct {
	name    string
	cel     *types.Type
	fields  map[string]*structField
	removed []string // the fields that policies do not see
}

type structField struct {
	index []int
	cel   *types.Type
	// As in JSON, an empty field with omitEmpty is not there, nor is a zero one with
	// omitZero.
	omitEmpty, omitZero bool
}

func newSchema() (*schema, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	s := &schema{
		Registry: registry,
		structs:  map[string]*structType{},
		byGo:     map[reflect.Type]*structType{},
		trimmed:  trimmed(),
	}
	for _, root := range []any{corev1.Pod{}, corev1.Node{}, usage{}} {
		s.structOf(reflect.TypeOf(root))
	}
	return s, nil
}

// trimmed returns the fields that snapshot.TrimPod and TrimNode remove, by the type that has them.
// "only" precedes those that they keep. Kind and apiVersion are not removed, but may be missing
// depending on the source of an object; and so may the resources in a pod's status, if the pod is
// not being resized.
func trimmed() map[reflect.Type][]string {
	fields := map[reflect.Type][]string{
		reflect.TypeFor[metav1.TypeMeta]():   {"kind", "apiVersion"},
		reflect.TypeFor[metav1.ObjectMeta](): {"managedFields"},
		reflect.TypeFor[corev1.PodSpec](): {
			"ephemeralContainers", "dnsConfig", "hostAliases", "readinessGates", "securityContext",
			"imagePullSecrets", "evictionResponders",
		},
		reflect.TypeFor[corev1.Container](): {
			"only", "name", "image", "ports", "resources", "restartPolicy",
		},
		reflect.TypeFor[corev1.PodStatus](): {
			"only", "phase", "conditions", "nominatedNodeName", "startTime",
			"resourceClaimStatuses",
		},
		reflect.TypeFor[corev1.PodCondition]():  {"lastProbeTime"},
		reflect.TypeFor[corev1.NodeCondition](): {"lastHeartbeatTime"},
		reflect.TypeFor[corev1.NodeStatus](): {
			"addresses", "volumesInUse", "volumesAttached", "config",
		},
		reflect.TypeFor[metav1.ManagedFieldsEntry](): {"only"},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[corev1.VolumeSource]()) {
		switch f.Name {
		case "HostPath", "EmptyDir", "NFS", "CSI", "PersistentVolumeClaim", "Ephemeral", "Image":
		default:
			fields[f.Type.Elem()] = []string{"only"}
		}
	}
	return fields
}

func (s *schema) isTrimmed(t reflect.Type, name string) bool {
	fields := s.trimmed[t]
	if len(fields) > 0 && fields[0] == "only" {
		return !slices.Contains(fields[1:], name)
	}
	return slices.Contains(fields, name)
}

// structOf adds the type before its fields, because types may be recursive.
func (s *schema) structOf(t reflect.Type) *structType {
	if known := s.byGo[t]; known != nil {
		return known
	}
	name := t.Name()
	if t.PkgPath() != reflect.TypeFor[usage]().PkgPath() {
		name = "v1." + name
	}
	st := &structType{name: name, cel: types.NewObjectType(name), fields: map[string]*structField{}}
	s.byGo[t], s.structs[name] = st, st
	s.addFields(st, t, t, nil)
	return st
}

// addFields adds the fields of t, which is the struct or is embedded in it.
func (s *schema) addFields(st *structType, outer, t reflect.Type, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			s.addFields(st, outer, f.Type, at)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		if s.isTrimmed(outer, name) || s.isTrimmed(t, name) {
			st.removed = append(st.removed, name)
			continue
		}
		st.fields[name] = &structField{
			index:     at,
			cel:       s.typeOf(f.Type),
			omitEmpty: strings.Contains(options, "omitempty"),
			omitZero:  strings.Contains(options, "omitzero"),
		}
	}
}

func (s *schema) typeOf(t reflect.Type) *types.Type {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return apiservercel.QuantityType
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return types.TimestampType
	case reflect.TypeFor[intstr.IntOrString]():
		return types.DynType
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.typeOf(t.Elem())
	case reflect.Bool:
		return types.BoolType
	case reflect.String:
		return types.StringType
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return types.IntType
	case reflect.Float32, reflect.Float64:
		return types.DoubleType
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return types.BytesType
		}
		return types.NewListType(s.typeOf(t.Elem()))
	case reflect.Map:
		return types.NewMapType(s.typeOf(t.Key()), s.typeOf(t.Elem()))
	case reflect.Struct:
		return s.structOf(t).cel
	}
	return types.DynType
}

func (s *schema) FindStructType(name string) (*types.Type, bool) {
	if st, ok := s.structs[name]; ok {
		return types.NewTypeTypeWithParam(st.cel), true
	}
	return s.Registry.FindStructType(name)
}

func (s *schema) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	st, ok := s.structs[name]
	if !ok {
		return s.Registry.FindStructFieldType(name, field)
	}
	f, ok := st.fields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: f.cel}, true
}
