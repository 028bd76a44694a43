package rules

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/snapshot"
)

// Expressions know exactly the fields that a trimmed object keeps.
func TestSchemaKnowsWhatIsKept(t *testing.T) {
	s, err := newSchema()
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	fill(reflect.ValueOf(&pod).Elem(), 0)
	// A volume has one source.
	all := reflect.ValueOf(pod.Spec.Volumes[0].VolumeSource)
	for i := range all.NumField() {
		volume := corev1.Volume{Name: "x"}
		reflect.ValueOf(&volume.VolumeSource).Elem().Field(i).Set(all.Field(i))
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	pod.Spec.Volumes = pod.Spec.Volumes[1:]
	snapshot.TrimPod(&pod)
	var kept corev1.Volume
	for i, v := range pod.Spec.Volumes {
		kept.Name = v.Name
		reflect.ValueOf(&kept.VolumeSource).Elem().Field(i).Set(reflect.ValueOf(v.VolumeSource).Field(i))
	}
	pod.Spec.Volumes = []corev1.Volume{kept}
	var node corev1.Node
	fill(reflect.ValueOf(&node).Elem(), 0)
	snapshot.TrimNode(&node)
	for _, root := range []reflect.Value{reflect.ValueOf(pod), reflect.ValueOf(node)} {
		compared := compareFields(t, s, root.Type().Name(), root)
		if compared < 80 {
			t.Errorf("only %d fields of %s were compared", compared, root.Type())
		}
	}
}

func compareFields(t *testing.T, s *schema, path string, v reflect.Value) (compared int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return compareFields(t, s, path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			compared += compareFields(t, s, path+"[]", v.Index(i))
		}
	case reflect.Struct:
		if st := s.byGo[v.Type()]; st != nil {
			return compareStruct(t, s, path, st, v)
		}
	}
	return compared
}

func compareStruct(t *testing.T, s *schema, path string, st *structType, v reflect.Value) (compared int) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if f.Type != reflect.TypeFor[metav1.TypeMeta]() {
				compared += compareStruct(t, s, path, st, v.Field(i))
			}
			continue
		}
		_, known := st.fields[name]
		kept := !v.Field(i).IsZero()
		// The template of a claim has no managed fields.
		if strings.HasSuffix(path+"."+name, "volumeClaimTemplate.metadata.managedFields") {
			kept = false
		}
		if known != kept {
			t.Errorf("%s.%s: in the schema: %t, kept: %t", path, name, known, kept)
		}
		if compared++; known {
			compared += compareFields(t, s, path+"."+name, v.Field(i))
		}
	}
	return compared
}

// fill sets every field.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}
