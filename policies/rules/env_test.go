package rules

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// asksServer are the functions that request authorization from an API server.
var asksServer = regexp.MustCompile(` (authorizer|pathcheck|resourcecheck|groupcheck|decision)_`)

// The functions are those of Kubernetes 1.37, with the same overloads.
func TestDialectIsKubernetes(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	theirs := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).NewExpressionsEnv()
	ours, want := overloads(c.env), overloads(theirs)
	if len(want) < 200 {
		t.Fatalf("Kubernetes has %d overloads", len(want))
	}
	for _, id := range want {
		if !slices.Contains(ours, id) && !asksServer.MatchString(id) {
			t.Errorf("Kubernetes has %s", id)
		}
	}
	for _, id := range ours {
		if !slices.Contains(want, id) && id != "quantity quantity_to_quantity" {
			t.Errorf("Kubernetes has no %s", id)
		}
	}
}

func overloads(env *cel.Env) []string {
	all := map[string]bool{}
	for name, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			all[name+" "+o.ID()] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
