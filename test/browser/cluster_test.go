package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/test/stage"
)

// TestCluster plays the example of shared GPUs with the real kube-scheduler. Every view shows what the data says, follows a bind without a
// reload, and recovers when Outboard restarts.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	set, err := stage.Set(ctx, stage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Stop(); err != nil {
			t.Error(err)
		}
	}()
	example, err := stage.ReadExample(filepath.Join(set.Root, "examples", "gpu-sharing"))
	if err != nil {
		t.Fatal(err)
	}
	play, err := set.Play(ctx, example)
	if err != nil {
		t.Fatal(err)
	}
	last := len(example.Pods) - 1
	for _, pod := range example.Pods[:last] {
		if _, err := set.Place(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}
	admin := play.Outboard.Admin
	b := open(t)
	b.size(1280, 900, "light")

	b.visit(admin + "/ui/#/gpus")
	units := data[ui.Units](t, admin+ui.UnitsPath+"?resource=nvidia.com/gpu-memory")
	shown := func() int64 {
		var free int64
		units = data[ui.Units](t, admin+ui.UnitsPath+"?resource=nvidia.com/gpu-memory")
		at := 0
		for run := 0; run < len(units.Capacity); run += 2 {
			for range units.Capacity[run+1] {
				free += max(0, units.Capacity[run]-units.Used[at])
				at++
			}
		}
		return free
	}
	free := shown()
	b.until(fmt.Sprintf(`document.querySelector('.sum').innerText.replaceAll(',', '').includes('%d %s free')`, free, units.Unit))
	for _, n := range units.Nodes {
		b.visit(admin + "/ui/#/gpus?table=1")
		b.until(fmt.Sprintf(`[...document.querySelectorAll('tbody th')].some(e => e.innerText === %q)`, n))
	}
	b.visit(admin + "/ui/#/waiting")
	b.until(`document.body.innerText.includes('No pod waits.')`)
	value[bool](b, `window.kept = true`)

	// The last pod fits nowhere. The view shows the pod without a reload, with its reason and what would let it run.
	if _, err := set.Place(ctx, example.Pods[last]); err != nil {
		t.Fatal(err)
	}
	name := example.Pods[last].Name
	b.until(fmt.Sprintf(`window.kept && document.querySelector('tbody')?.innerText.includes(%q) && document.querySelector('tbody').innerText.includes('TooLarge')`, name))
	b.until(`!document.querySelector('tbody').innerText.includes('…')`)
	waits := data[ui.Waiting](t, admin+ui.WaitingPath+"?limit=10")
	if len(waits.Rows) != 1 || waits.Rows[0].Nearest == nil {
		t.Fatalf("the data: %+v", waits)
	}
	text := value[string](b, `document.querySelector('tbody').innerText.replaceAll(',', '')`)
	for _, want := range append([]string{waits.Rows[0].Nearest.Node, fmt.Sprintf("has %d needs %d", waits.Rows[0].Nearest.Have, waits.Rows[0].Nearest.Want)}, waits.Rows[0].Requests...) {
		if !strings.Contains(text, want) {
			t.Errorf("the view lacks %q:\n%s", want, text)
		}
	}
	explained := data[struct {
		Remedies []struct {
			Text string `json:"text"`
		} `json:"remedies"`
	}](t, admin+"/explain?pod="+name)
	if len(explained.Remedies) == 0 {
		t.Fatalf("the explanation: %+v", explained)
	}
	if want := strings.ReplaceAll(explained.Remedies[0].Text, ",", ""); want == "" || !strings.Contains(text, want) {
		t.Errorf("the view lacks %q:\n%s", want, text)
	}
	value[bool](b, `document.querySelector('tbody a').click(), true`)
	for _, r := range explained.Remedies {
		b.until(fmt.Sprintf(`document.querySelector('main ul.plain')?.innerText.includes(%q)`, r.Text))
	}

	// What a pod holds is shown where it is held, and a pod that ends makes room.
	held := data[ui.Held](t, admin+ui.HeldPath)
	b.visit(admin + "/ui/#/held")
	b.until(fmt.Sprintf(`document.querySelectorAll('tbody tr').length === %d`, len(held.Rows)))
	for _, pod := range example.Pods[:last] {
		if !slices.ContainsFunc(held.Rows, func(r ui.HeldRow) bool { return r.Pod == pod.Name }) {
			t.Errorf("%s holds nothing", pod.Name)
		}
		b.until(fmt.Sprintf(`document.querySelector('tbody').innerText.includes(%q)`, pod.Name))
	}
	b.visit(admin + "/ui/#/gpus")
	value[bool](b, `window.kept = true`)
	if out, err := set.Kubectl(ctx, "delete", "pod", "whole", "--grace-period=0", "--force").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.until(fmt.Sprintf(`window.kept && !document.querySelector('.sum').innerText.replaceAll(',', '').includes('%d %s free')`, free, units.Unit))
	b.until(fmt.Sprintf(`document.querySelector('.sum').innerText.replaceAll(',', '').includes('%d %s free')`, shown(), units.Unit))

	b.visit(admin + "/ui/#/health")
	b.until(`document.querySelector('main').innerText.includes('Everything is well: 1 replica ready, and no call has failed')`)
	b.until(`[...document.querySelectorAll('tbody tr')].some(tr => tr.innerText.includes('filter') && !tr.innerText.includes('never'))`)

	// The page of a pod on a node shows what the decisions and the ledgers say, and the views without data say so.
	placed := example.Pods[0].Name
	doc := data[explain.Document](t, admin+"/explain?pod="+placed)
	if doc.Node == "" || len(doc.Holds) != 1 || len(doc.Decisions) == 0 {
		t.Fatalf("%s: %+v", placed, doc)
	}
	b.visit(admin + "/ui/#/pod/default/" + placed)
	for _, want := range []string{doc.Node, fmt.Sprintf("%d %s of GPU %s", doc.Holds[0].Amount, units.Unit, doc.Holds[0].Unit), "bound to " + doc.Node, doc.Annotation} {
		b.until(fmt.Sprintf(`document.querySelector('main').innerText.replaceAll(',', '').includes(%q)`, strings.ReplaceAll(want, ",", "")))
	}
	for _, d := range doc.Decisions {
		for _, n := range d.Top {
			b.until(fmt.Sprintf(`[...document.querySelectorAll('.matrix tr')].some(tr => tr.innerText.includes(%q) && tr.innerText.includes('%d'))`, n.Node, n.Total))
		}
	}
	if all := data[ui.Signals](t, admin+ui.SignalsPath); len(all.Signals) != 0 {
		t.Errorf("signals: %+v", all)
	}
	b.visit(admin + "/ui/#/signals")
	b.until(`document.querySelector('main').innerText.includes('The configuration has no signals.')`)

	b.visit(admin + "/ui/#/try")
	manifest, err := os.ReadFile(filepath.Join(set.Root, "examples", "gpu-sharing", "pods.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(manifest), "\n---\n")
	quoted, _ := json.Marshal(first)
	value[bool](b, fmt.Sprintf(`(e => { e.value = %s; e.dispatchEvent(new Event('input')); document.querySelector('button.primary').click(); return true })(document.getElementById('manifest'))`, quoted))
	b.until(`/It fits on \d of \d nodes? now/.test(document.querySelector('main').innerText) && /would get [\d,]+ MiB of GPU \d/.test(document.querySelector('main').innerText)`)

	showSignals(t, b, set, play.Outboard)

	b.expect("net::ERR_CONNECTION_REFUSED")
	b.expect("net::ERR_CONNECTION_RESET")
	b.expect("net::ERR_EMPTY_RESPONSE")
	b.expect("503")
	if err := play.Outboard.Stop(); err != nil {
		t.Fatal(err)
	}
	b.until(`document.body.classList.contains('stale') && document.getElementById('notices').innerText.includes('no connection')`)
	if err := play.Outboard.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.until(`!document.body.classList.contains('stale') && document.getElementById('notices').innerText === ''`)
}

// showSignals adds signals to the configuration of a service that runs. The view follows: values, a node without one, an error, and values
// that become stale when their file is gone.
func showSignals(t *testing.T, b *tab, set *stage.Stage, o *stage.Outboard) {
	t.Helper()
	loads := func(text string) {
		t.Helper()
		if err := set.WriteFile("load.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	loads("small: 10\nlarge: 20\n")
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	const policies = "  policies:\n"
	changed := strings.Replace(string(text), policies, policies+"  - {type: Utilization, weight: 1, config: {cpu: {signal: load, unit: Percent}, whenStale: Reject}}\n", 1) +
		"signals:\n- {name: load, interval: 1s, timeout: 1s, maxAge: 5s, file: {path: load.yaml}}\n- {name: price, file: {path: prices.yaml}}\n"
	if err := set.WriteFile(filepath.Base(o.ConfigFile), []byte(changed)); err != nil {
		t.Fatal(err)
	}
	b.visit(o.Admin + "/ui/#/signals")
	b.until(`document.querySelectorAll('tbody tr').length === 2`)
	value[bool](b, `window.kept = true`)
	row := func(name, says string) string {
		return fmt.Sprintf(`window.kept && /%s/.test([...document.querySelectorAll('tbody tr')].find(tr => tr.querySelector('.name').textContent === %q).innerText.replaceAll(/\s+/g, ' '))`, says, name)
	}
	b.until(row("load", `^load 2 1 node without 0 .*Utilization \/gpu-sharing, when stale: Reject$`))
	b.until(row("price", `^price .*prices\.yaml.* 0 0 – – no policy$`))
	loads("small: 10\nlarge: 20\nmixed: 30\n")
	b.until(row("load", `^load 3 0 (now|\d+ s) (now|\d+ s) .*Utilization`))
	all := data[ui.Signals](t, o.Admin+ui.SignalsPath).Signals
	if len(all) != 2 || all[0].Values != 3 || all[0].Missing != 0 || all[1].Error == "" {
		t.Errorf("signals: %+v", all)
	}
	if err := os.Remove(filepath.Join(set.Dir(), "load.yaml")); err != nil {
		t.Fatal(err)
	}
	b.until(row("load", `^load .*load\.yaml.* 3 3 `))
	if n := value[int](b, `document.querySelectorAll('td .bad').length`); n != 1 {
		t.Errorf("%d cells are marked, want that of the stale values", n)
	}
}

// data returns what the address responds.
func data[T any](t *testing.T, address string) T {
	t.Helper()
	var v T
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", address, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return v
}
