package configmap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"outboard.dev/outboard/internal/content"
	"outboard.dev/outboard/internal/source/configmap"
	"outboard.dev/outboard/signal"
)

var limits = signal.Limits{Values: 2, Bytes: 100}

func source(t *testing.T, data map[string]string, c configmap.Config) (*configmap.Source, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "cost"}, Data: data})
	c.Namespace = "ops"
	s, err := configmap.New(client.CoreV1().ConfigMaps(c.Namespace), c)
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func TestRead(t *testing.T) {
	data := map[string]string{
		"cost.csv": "node,cost\nn1,0.5\n", "cost.yaml": "n1: 0.5", "items.json": `{"hosts": [{"name": "n1", "cost": 0.5}]}`,
	}
	for _, text := range []string{
		`{"name": "cost", "dataKey": "cost.yaml", "format": "YAML"}`,
		`{"name": "cost", "dataKey": "cost.csv", "format": "CSV", "key": "node", "value": "cost"}`,
		`{"name": "cost", "dataKey": "items.json", "format": "JSON", "items": "{.hosts[*]}", "key": "{.name}", "value": "{.cost}"}`,
	} {
		var c configmap.Config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if errs := c.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
		}
		s, client := source(t, data, c)
		samples, err := s.Read(t.Context(), limits)
		if got, want := fmt.Sprint(samples), fmt.Sprint([]signal.Sample{{Key: "n1", Number: 0.5}}); err != nil || got != want {
			t.Errorf("read %s, %v, want %s", got, err, want)
		}
		for _, action := range client.Actions() {
			if action.GetVerb() != "get" {
				t.Errorf("the request is %s, which needs another permission", action.GetVerb())
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for want, tc := range map[string]struct {
		text string
		c    configmap.Config
	}{
		`configMap ops/none: configmaps "none" not found`:            {"", configmap.Config{Name: "none", DataKey: "a"}},
		`configMap ops/cost has no key "b" in its data`:              {"n1: 1", configmap.Config{Name: "cost", DataKey: "b"}},
		`configMap ops/cost, key "a": YAML: document:1: must not be`: {"", configmap.Config{Name: "cost", DataKey: "a"}},
		signal.ErrTooMany.Error():                                    {"a: 1\nb: 1\nc: 1", configmap.Config{Name: "cost", DataKey: "a"}},
		signal.ErrTooLong.Error():                                    {"a: 1" + strings.Repeat(" ", 100), configmap.Config{Name: "cost", DataKey: "a"}},
	} {
		s, _ := source(t, map[string]string{"a": tc.text}, tc.c)
		if samples, err := s.Read(t.Context(), limits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, error %v; want one with %q", samples, err, want)
		}
	}
}

// getter never responds.
type getter struct{}

func (getter) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestReadEndsWithItsContext(t *testing.T) {
	s, err := configmap.New(getter{}, configmap.Config{Namespace: "ops", Name: "cost", DataKey: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Read(ctx, limits); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestWrongPath(t *testing.T) {
	if _, err := configmap.New(getter{}, configmap.Config{Document: content.Document{Value: "load"}}); err == nil {
		t.Error("New accepts a path without braces")
	}
}
