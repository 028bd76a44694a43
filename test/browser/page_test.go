package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/ui"
)

//go:embed axe/axe.min.js
var axe string

func serve(t *testing.T, f *fixture) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// paths are the views, by name.
func (f *fixture) paths() map[string]string {
	return map[string]string{
		"waiting": "waiting", "owner": "waiting?owner=" + f.pods[0].Owner, "gpus": "gpus?node=gpu-h100-0011&unit=0", "table": "gpus?table=1", "pools": "gpus?resource=licenses",
		"pod": "pod/" + f.pods[0].Pod, "placed": "pod/" + f.placed(), "unknown": "pod/default/nobody",
		"try": "try", "held": "held", "signals": "signals", "health": "health",
	}
}

// Each view, wide and small, light and dark, passes the rules of axe-core and is no wider than the window.
func TestAccessible(t *testing.T) {
	f := cluster()
	at := serve(t, f)
	b := open(t)
	for name, path := range f.paths() {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 320} {
				b.size(width, 800, scheme)
				b.visit(at + "/ui/#/" + path)
				if name == "try" {
					value[bool](b, `document.querySelector('button.primary').click(), true`)
					b.until(`document.querySelector('.matrix')`)
				}
				where := fmt.Sprintf("%s, %s, %d pixels", name, scheme, width)
				if w := value[int64](b, `document.documentElement.scrollWidth`); w > width {
					t.Errorf("%s: the page is %d pixels wide", where, w)
				}
				value[bool](b, axe+`;true`)
				found := value[string](b, `axe.run({ resultTypes: ['violations'] }).then(r => JSON.stringify(r.violations.map(v => [v.id, v.help, ...v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? ''))])))`)
				var violations [][]string
				if err := json.Unmarshal([]byte(found), &violations); err != nil {
					t.Fatal(err)
				}
				for _, v := range violations {
					t.Errorf("%s: %s", where, strings.Join(v, "\n\t"))
				}
			}
		}
	}
}

// The page shows new data without a reload, says when there is none, and goes on when there is again.
func TestFollows(t *testing.T) {
	f := cluster()
	b := open(t)
	b.expect("503")
	at := serve(t, f)
	b.visit(at + "/ui/#/waiting")
	owners := func() int { return ui.Group(f.rows(), ui.Query{Limit: 500}).Owners }
	before := owners()
	rows := func(n int) string { return fmt.Sprintf(`document.querySelectorAll('tbody tr').length === %d`, n) }
	b.until(rows(before) + ` && document.activeElement === document.body`)
	value[bool](b, `document.querySelectorAll('tbody a')[3].focus(), true`)
	b.until(`!document.querySelector('tbody').innerText.includes('…')`) // all changes with which pods would fit are known
	if !value[bool](b, `document.activeElement === document.querySelectorAll('tbody a')[3]`) {
		t.Error("the row that has the focus lost it when its text changed")
	}
	value[bool](b, `window.kept = [document.body, document.querySelectorAll('tbody tr')[3]], true`)
	f.change(func(f *fixture) {
		first := f.pods[0].Owner
		f.pods = slices.DeleteFunc(f.pods, func(p ui.WaitingRow) bool { return p.Owner == first })
	})
	b.until(rows(before - 1))
	if !value[bool](b, `window.kept[0] === document.body && window.kept[1].isConnected && window.kept[1].contains(document.activeElement)`) {
		t.Error("the row that has the focus was made again, or lost it")
	}
	b.visit(at + "/ui/#/health")
	b.until(`/4\d s ago/.test(document.body.innerText)`)
	b.until(`/5\d s ago/.test(document.body.innerText)`) // although the data is the same
	b.visit(at + "/ui/#/waiting")
	b.until(rows(before - 1))
	f.change(func(f *fixture) { f.broken = http.StatusServiceUnavailable })
	b.until(`document.body.classList.contains('stale') && /No data for \d+ s: 503: busy/.test(document.getElementById('notices').textContent)`)
	if n := value[int](b, `document.querySelectorAll('tbody tr').length`); n != before-1 {
		t.Errorf("%d rows are left of the last data, want %d", n, before-1)
	}
	f.change(func(f *fixture) { f.broken, f.pods = 0, nil })
	b.until(`!document.body.classList.contains('stale') && document.getElementById('notices').textContent === '' && /No pod waits/.test(document.querySelector('main').textContent)`)
}

// States that a cluster rarely has say what they mean.
func TestStates(t *testing.T) {
	none := func(f *fixture) {
		f.pods, f.held, f.signals = nil, ui.Held{Rows: []ui.HeldRow{}, Findings: []audit.Finding{}}, ui.Signals{Signals: []ui.Signal{}}
		f.overview.Resources, f.units, f.replica = []ui.Resource{}, nil, newWorld().handlers("a")
	}
	for name, tt := range map[string]struct {
		change func(*fixture)
		path   string
		says   string
	}{
		"no waiting pod":    {none, "waiting", "No pod waits."},
		"no allocated unit": {none, "gpus", "No policy of the configuration allocates GPUs"},
		"nothing held":      {none, "held", "No pod holds anything."},
		"no signal":         {none, "signals", "The configuration has no signals."},
		"no such pod":       {none, "pod/default/nobody", "Outboard does not know this pod."},
		"no GPU": {func(f *fixture) {
			f.units[gpuMemory] = ui.Units{Resource: f.units[gpuMemory].Resource, Groups: []string{}, Nodes: []ui.NodeUnits{}}
		}, "gpus", "No node has GPU memory."},
		"nothing selected":   {func(*fixture) {}, "waiting?find=zebra", "No waiting pod is selected."},
		"a replica is away":  {func(f *fixture) { f.overview.Replicas[1] = ui.Replica{Name: "b", Error: "connection refused"} }, "waiting", "Replica b does not respond (connection refused)"},
		"not synced":         {func(f *fixture) { f.overview.Replicas[0].Checks[1].Error = "pods are not read" }, "waiting", "is not ready: cluster: pods are not read"},
		"two configurations": {func(f *fixture) { f.overview.Replicas[1].Configuration = "0000" }, "health", "The replicas have different configurations"},
		"a certificate ends": {func(f *fixture) { f.overview.Replicas[0].Certificates[0].NotAfter = noon.AddDate(0, 0, 3) }, "health", "the serving certificate ends on 2026-05-04"},
		"a warning":          {func(f *fixture) { f.overview.Replicas[0].Warnings = []string{"the disk is slow"} }, "health", "the disk is slow"},
		"all well":           {func(*fixture) {}, "health", "Everything is well: 2 replicas ready."},
		"ledgers and pods": {func(f *fixture) {
			f.held.Findings = []audit.Finding{{Kind: "Orphan", Resource: gpuMemory, Node: "gpu-h100-0001", Unit: "3"}}
		}, "held", "found 1 difference"},
		"never audited":         {func(f *fixture) { f.held.Audited = time.Time{} }, "held", "The first audit has not ended."},
		"held, without a claim": {func(f *fixture) { f.held.Rows[0].Unclaimed, f.held.Rows[0].Unit = true, "" }, "held", "1 pod without a claim"},
		"held, before the unit is known": {func(f *fixture) {
			f.late, f.held.Rows[0].Amount, f.held.Rows[0].Since = true, 12345, time.Time{}
		}, "held", "12,345 GiB"},
		"what the pod says": {func(f *fixture) {
			f.explain["a/b"] = explain.Document{Pod: "a/b", Known: true, Created: noon, Unschedulable: "0/4 nodes are available: 4 no tape drive.",
				Now: []explain.Profile{{Profile: "/", Refused: "pod a/b has schedulerName \"x\""}}}
		}, "pod/a/b", "4 no tape drive"},
		"unmanaged": {func(f *fixture) {
			f.explain["a/b"] = explain.Document{Pod: "a/b", Known: true, Now: []explain.Profile{{Profile: "/", Unmanaged: true}}}
		}, "pod/a/b", "does not manage this pod"},
		"markup in a name":     {func(f *fixture) { f.pods[0].Text = `<img src=x onerror=alert(1)>` }, "waiting?owner=" + cluster().pods[0].Owner, "<img src=x onerror=alert(1)>"},
		"a pod that is placed": {func(*fixture) {}, "pod/" + cluster().placed(), "chosen by kube-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster()
			f.change(tt.change)
			b := open(t)
			b.visit(serve(t, f) + "/ui/#/" + tt.path)
			text, _ := json.Marshal(tt.says)
			b.until(fmt.Sprintf(`document.body.innerText.includes(%s)`, text))
		})
	}
}

// Every view is reached and used with keys alone.
func TestKeys(t *testing.T) {
	f := cluster()
	b := open(t)
	b.size(1280, 900, "light")
	b.visit(serve(t, f) + "/ui/#/waiting")
	title := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelector('h1').textContent === %q`, want))
	}
	for keys, want := range map[string]string{"gu": "GPU memory", "gt": "Try a pod", "gh": "Who holds what", "gs": "Signals", "ge": "Health", "gw": "Waiting"} {
		b.press(keys)
		title(want)
	}
	b.press("gw")
	title("Waiting")
	b.until(`document.querySelectorAll('tbody tr').length > 3`)
	b.press("jjk")
	if at := value[int](b, `[...document.querySelectorAll('tbody tr')].findIndex(tr => tr.contains(document.activeElement))`); at != 0 {
		t.Errorf("j, j and k lead to row %d, want 0", at)
	}
	b.press(kb.Enter)
	title("Waiting: " + f.pods[0].Owner)
	b.until(`document.querySelector('tbody tr .name').textContent !== ''`)
	b.press("j" + kb.Enter)
	title(f.pods[0].Pod)
	b.press(kb.Escape)
	title("Waiting: " + f.pods[0].Owner)
	b.press("/")
	b.until(`document.activeElement.id === 'find'`)
	value[bool](b, `document.activeElement.value = '', true`) // the protocol types the slash although the page prevents that
	b.press("gpu-h100-0003" + kb.Enter)
	title("GPU memory")
	b.until(`document.querySelector('.selected').textContent.includes('gpu-h100-0003, GPU 0')`)
	value[bool](b, `document.querySelector('section[aria-label=H100] canvas').focus(), true`)
	b.press(kb.ArrowRight + kb.ArrowDown)
	b.until(`document.querySelector('.selected').textContent.includes('gpu-h100-0003, GPU 5')`)
	b.press(kb.Escape)
	b.until(`document.querySelector('.selected').hidden`)
	b.press("?")
	b.until(`document.getElementById('keys').open`)
}

// Every control can be reached with the tabulator key and shows that it has the focus.
func TestFocusIsVisible(t *testing.T) {
	f := cluster()
	at := serve(t, f)
	b := open(t)
	for name, path := range f.paths() {
		b.visit(at + "/ui/#/" + path)
		seen := map[string]bool{}
		for range 25 {
			b.press(kb.Tab)
			found := value[[]string](b, `(() => { const e = document.activeElement, s = getComputedStyle(e); return [e === document.body ? '' : e.tagName + ' ' + (e.id || e.textContent.slice(0, 30)), s.outlineStyle] })()`)
			if found[0] == "" {
				break
			}
			seen[found[0]] = true
			if found[1] == "none" {
				t.Errorf("%s: nothing shows that %s has the focus", name, found[0])
			}
		}
		if len(seen) < 8 {
			t.Errorf("%s: only %q can be reached", name, slices.Collect(func(yield func(string) bool) {
				for s := range seen {
					if !yield(s) {
						return
					}
				}
			}))
		}
	}
}
