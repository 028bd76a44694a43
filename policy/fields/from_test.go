package fields_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/policy/fields"
)

// A node declares something in the annotation or in the label that the configuration names, and in nothing else.
func TestFrom(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{"a": "1", "both": "2, 3 ,,", "": "4"},
		Labels:      map[string]string{"l": "5", "both": "6_7", "": "8"},
	}}
	for _, tt := range []struct {
		from *fields.From
		want string
	}{
		{nil, " false"},
		{&fields.From{Annotation: "a"}, `1 true annotation a ["1"]`},
		{&fields.From{Annotation: "l"}, " false"},
		{&fields.From{Annotation: "both"}, `2, 3 ,, true annotation both ["2" "3" "" ""]`},
		{&fields.From{Label: "a"}, " false"},
		{&fields.From{Label: "l"}, `5 true label l ["5"]`},
		{&fields.From{Label: "both"}, `6_7 true label both ["6" "7"]`},
	} {
		text, declared := tt.from.Of(node)
		got := fmt.Sprint(text, " ", declared)
		if declared {
			got += fmt.Sprintf(" %s %q", tt.from, slices.Collect(tt.from.Items(text)))
		}
		if got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.from, got, tt.want)
		}
	}
}
