package rules

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/snapshot"
)

// Arithmetic has the values and the errors of CEL's interpreter, on nodes with and without numbers.
func TestArithmeticIsThatOfCEL(t *testing.T) {
	values := map[string]snapshot.Value{}
	var b snapshot.Builder
	for i, x := range []float64{0, 1, -1, 0.5, 3, 1 << 53, 1e300, -1e300, 5e-324, math.MaxFloat64} {
		name := fmt.Sprint("n", i)
		b.SetNode(policytest.Nodes(fmt.Sprintf("metadata: {name: %s, labels: {even: %q}}", name, fmt.Sprint(i%2 == 0)))[0])
		values[name] = snapshot.Value{Number: x, At: policytest.Now, Stale: i == 4}
	}
	b.SetNode(policytest.Nodes("metadata: {name: none}")[0])
	b.SetSignal(snapshot.NewSignal("a", values))
	values = map[string]snapshot.Value{"n0": {Number: 0, At: policytest.Now}, "n1": {Number: 1, At: policytest.Now}, "none": {Number: -2, At: policytest.Now}}
	b.SetSignal(snapshot.NewSignal("b", values))
	view := b.View()

	g := generator{rand.New(rand.NewPCG(3, 4))}
	failures, compiled := map[string]int{}, 0
	for range 15 {
		compiler, err := newCompiler()
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]*expression{}
		for range 15 {
			text, want := g.truth(4), types.BoolType
			if g.IntN(3) == 0 {
				text, want = g.number(4), types.DoubleType
			}
			e, errs := compiler.compile(field.NewPath("expression"), text, math.MaxUint8, want)
			if len(errs) == 0 && e.arithmetic != nil && e.whole == nil { // not a constant that fails, and not one part
				texts[text] = e
			}
		}
		compiled += len(texts)
		p := &rules{}
		p.arrange(compiler)
		c := &cycle{policy: p, view: view}
		for _, name := range p.signals {
			c.signals = append(c.signals, view.Signal(name))
		}
		for text, e := range texts {
			interpreted := *e
			interpreted.arithmetic = nil
			for row := range view.Rows() {
				n := view.At(row)
				got, gotErr := c.eval(e, 0, n)
				want, wantErr := c.eval(&interpreted, 0, n)
				if (gotErr == nil) != (wantErr == nil) || gotErr == nil && !same(got, want) || gotErr != nil && gotErr.Error() != wantErr.Error() {
					t.Fatalf("%s: %s: %v, %v, want %v, %v", text, n.Name, got, gotErr, want, wantErr)
				}
				if gotErr != nil {
					failures[gotErr.Error()]++
				}
			}
		}
	}
	if compiled < 200 || len(failures) < 3 {
		t.Errorf("%d expressions, failures %v", compiled, failures)
	}
}

func same(x, y ref.Val) bool {
	a, ok := x.(types.Double)
	b, ok2 := y.(types.Double)
	return ok && ok2 && (math.Float64bits(float64(a)) == math.Float64bits(float64(b)) || a != a && b != b) || x == y
}

type generator struct{ *rand.Rand }

func (g generator) pick(all ...string) string { return all[g.IntN(len(all))] }

func (g generator) truth(depth int) string {
	if depth == 0 {
		return g.pick(`"a" in signals`, `has(signals.b)`, `node.metadata.labels["even"] == "true"`, "true", "signals.a < 1", "2.0 >= signals.b")
	}
	x := g.truth(depth - 1)
	switch g.IntN(8) {
	case 0:
		return "!(" + x + ")"
	case 1:
		return fmt.Sprintf("(%s ? %s : %s)", x, g.truth(depth-1), g.truth(depth-1))
	case 2, 3:
		return fmt.Sprintf("(%s %s %s)", x, g.pick("&&", "||"), g.truth(depth-1))
	}
	right := g.number(depth - 1)
	operator := g.pick("<", "<=", ">", ">=", "==", "!=")
	if g.IntN(3) == 0 && operator[0] != '=' && operator[0] != '!' {
		right = g.pick("0", "1", "-3", "9007199254740992")
	}
	return fmt.Sprintf("(%s %s %s)", g.number(depth-1), operator, right)
}

func (g generator) number(depth int) string {
	if depth == 0 {
		return g.pick("signals.a", "signals.b", `signals["a"]`, `signals[?"b"].orValue(0.5)`, "signals.?a.orValue(-1.0)", "2.0", "0.0",
			"double(usage.pods)", `double(node.metadata.labels["even"] == "true" ? 1 : 0)`)
	}
	if g.IntN(5) == 0 {
		return fmt.Sprintf("(%s ? %s : %s)", g.truth(depth-1), g.number(depth-1), g.number(depth-1))
	}
	return fmt.Sprintf("(%s %s %s)", g.number(depth-1), g.pick("+", "-", "*", "/"), g.number(depth-1))
}
