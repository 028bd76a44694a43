package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/snapshot"
)

const ledgersPath = "/apis/outboard.dev/v1alpha1/ledgers"

// write sends a Ledger as a faulty client does, and returns the API server's response.
func (th *theater) write(client rest.Interface, name, spec string) error {
	th.t.Helper()
	old := new(ledger.Object)
	data, err := client.Get().AbsPath(ledgersPath, name).DoRaw(th.ctx)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, old); err != nil {
			th.t.Fatal(err)
		}
	case !apierrors.IsNotFound(err):
		th.t.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"apiVersion":"outboard.dev/v1alpha1","kind":"Ledger","metadata":{"name":%q,"resourceVersion":%q},"spec":%s}`, name, old.ResourceVersion, spec)
	request := client.Post().AbsPath(ledgersPath)
	if old.ResourceVersion != "" {
		request = client.Put().AbsPath(ledgersPath, name)
	}
	return request.SetHeader("Content-Type", "application/json").Body(body).Do(th.ctx).Error()
}

// The API server itself rejects a ledger that allocates more than there is, from any client.
func TestAPIServerGuardsLedgers(t *testing.T) {
	th := open(t)
	client := th.Client.Discovery().RESTClient()
	unit := func(capacity int, claims string) string {
		return fmt.Sprintf(`{"resource":"gpu","node":"n","units":[{"name":"0","capacity":%d,"claims":[%s]}]}`, capacity, claims)
	}
	claim := func(pod string, amount int) string { return fmt.Sprintf(`{"pod":%q,"amount":%d}`, pod, amount) }
	both := claim("a", 6) + "," + claim("b", 4)
	const past = "claims may not grow past capacity"
	for _, step := range []struct{ name, spec, refused string }{
		{"a new ledger that is overcommitted", unit(9, both), past},
		{"a new ledger, used up", unit(10, both), ""},
		{"one more claim of 1", unit(10, both+","+claim("c", 1)), past},
		{"a claim that grows", unit(10, claim("a", 7)+","+claim("b", 4)), past},
		{"hardware shrinks", unit(8, both), ""},
		{"overcommitted, one more", unit(8, both+","+claim("c", 1)), past},
		{"overcommitted, another pod for one that leaves, more than it", unit(8, claim("a", 6)+","+claim("c", 5)), past},
		{"overcommitted, less", unit(8, claim("a", 6)+","+claim("b", 3)), ""},
		{"hardware is gone", unit(0, claim("a", 6)+","+claim("b", 3)), ""},
		{"and back", unit(16, claim("a", 6)+","+claim("b", 3)), ""},
		{"a second unit that is overcommitted", `{"resource":"gpu","node":"n","units":[{"name":"0","capacity":16},{"name":"1","capacity":1,"claims":[{"pod":"c","amount":2}]}]}`, past},
		{"the same unit twice", `{"resource":"gpu","node":"n","units":[{"name":"0","capacity":16},{"name":"0","capacity":16}]}`, "Duplicate value"},
		{"the same pod twice", unit(16, claim("a", 6)+","+claim("a", 3)), "Duplicate value"},
		{"a claim of nothing", unit(16, claim("a", 0)), "greater than or equal to 1"},
		{"a claim of less than nothing", unit(16, claim("a", 17)+","+claim("b", -5)), "greater than or equal to 1"},
		{"a negative capacity", unit(-1, ""), "greater than or equal to 0"},
		{"another resource", `{"resource":"other","node":"n"}`, "cannot change its resource or node"},
		{"another node", `{"resource":"gpu","node":"m"}`, "cannot change its resource or node"},
		{"no node", `{"resource":"gpu"}`, "cannot change its resource or node"},
		{"more units than it can hold", `{"resource":"gpu","node":"n","units":[` + units(snapshot.MaxLedgerUnits+1) + `]}`, "must have at most 64 items"},
		{"as many units as it can hold", `{"resource":"gpu","node":"n","units":[` + units(snapshot.MaxLedgerUnits) + `]}`, ""},
	} {
		err := th.write(client, "by-hand", step.spec)
		if step.refused == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s: %v, want it rejected: %s", step.name, err, step.refused)
		}
	}
}

func units(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"%d","capacity":1}`, i)
	}
	return strings.Join(list, ",")
}
