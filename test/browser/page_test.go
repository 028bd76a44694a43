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
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/ui"
)

//go:embed axe/axe.min.js
var axe string

// browse serves the fixture at the address, and opens a tab. The tab is closed first, because a page whose server is gone writes errors.
func browse(t *testing.T, f *fixture) (b *tab, address string) {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return open(t), s.URL
}

// paths are the views, by name.
func (f *fixture) paths() map[string]string {
	return map[string]string{
		"waiting": "waiting", "owner": "waiting?owner=" + f.pods[0].Owner, "gpus": "gpus", "node": "node/gpu-t4-0001?unit=0", "table": "gpus?table=1", "pools": "gpus?resource=licenses",
		"pod": "pod/" + f.pods[0].Pod, "placed": "pod/" + f.placed(), "unknown": "pod/default/nobody", "found": "find?text=train", "owners": "held?by=owner", "teams": "held?by=namespace",
		"try": "try", "held": "held", "signals": "signals", "health": "health",
	}
}

// Each view, wide and small, light and dark, passes the rules of axe-core and is no wider than the window.
func TestAccessible(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
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
	b, at := browse(t, f)
	b.expect("503")
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

// Without data, the page says so in every view, and not that everything is well: nobody knows that.
func TestStale(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.expect("503")
	b.visit(at + "/ui/#/health")
	const well = `document.querySelector('main').innerText.includes('Everything is well')`
	b.until(well)
	f.change(func(f *fixture) { f.broken = http.StatusServiceUnavailable })
	b.until(`document.body.classList.contains('stale')`)
	if value[bool](b, well) {
		t.Error("Health says that everything is well")
	}
	if n := value[int](b, `document.querySelectorAll('main .good').length`); n > 0 || !value[bool](b, `document.querySelector('main').innerText.includes('cluster: was ok')`) {
		t.Errorf("%d green texts in Health:\n%s", n, value[string](b, `document.querySelector('main').innerText`))
	}
	for _, name := range []string{"waiting", "gpus", "try", "held", "signals", "health"} {
		value[bool](b, fmt.Sprintf(`document.querySelector('nav a[href="#/%s"]').click(), true`, name))
		b.until(fmt.Sprintf(`document.querySelector('nav [aria-current]').hash === '#/%s'`, name))
		if !value[bool](b, `document.body.classList.contains('stale') && document.getElementById('notices').innerText.includes('No data for') && !`+well) {
			t.Errorf("%s looks as if its data were fresh:\n%s", name, value[string](b, `document.body.innerText`))
		}
	}
	f.change(func(f *fixture) { f.broken = 0 })
	b.until(`!document.body.classList.contains('stale') && ` + well)
}

// States that a cluster rarely has say what they mean.
func TestStates(t *testing.T) {
	none := func(f *fixture) {
		f.pods, f.held, f.signals = nil, ui.Held{Rows: []ui.HeldRow{}, Findings: []ui.HeldFinding{}}, ui.Signals{Signals: []ui.Signal{}}
		f.overview.Resources, f.units, f.replica = []ui.Resource{}, nil, newWorld().handlers("a")
	}
	for name, tt := range map[string]struct {
		change func(*fixture)
		path   string
		says   string
	}{
		"no waiting pod":    {none, "waiting", "No pod waits."},
		"no allocated unit": {none, "gpus", "No policy of the configuration allocates GPUs"},
		"a kind without a name": {func(f *fixture) {
			u := f.units[gpuMemory]
			u.Groups = append([]string{""}, u.Groups[1:]...)
			f.units[gpuMemory] = u
		}, "gpus", "64 GPUs on 16 nodes"},
		"no such resource": {none, "gpus?resource=example.com/gone", "No node has example.com/gone."},
		"nothing held":     {none, "held", "No pod holds anything."},
		"no signal":        {none, "signals", "The configuration has no signals."},
		"no such pod":      {none, "pod/default/nobody", "Outboard does not know this pod."},
		"no GPU": {func(f *fixture) {
			units := fetch[ui.Units](f.replica, ui.UnitsPath+"?resource=example.com/gone")
			units.Resource = f.units[gpuMemory].Resource
			f.units[gpuMemory] = units
		}, "gpus", "No node has GPU memory."},
		"nothing selected":   {func(*fixture) {}, "waiting?find=zebra", "No waiting pod is selected."},
		"a replica is away":  {func(f *fixture) { f.overview.Replicas[1] = ui.Replica{Name: "b", Error: "connection refused"} }, "waiting", "Replica b does not respond (connection refused)"},
		"not synced":         {func(f *fixture) { f.overview.Replicas[0].Checks[1].Error = "pods are not read" }, "waiting", "is not ready: cluster: pods are not read"},
		"two configurations": {func(f *fixture) { f.overview.Replicas[1].Configuration = "0000" }, "health", "The replicas have different configurations"},
		"a certificate ends": {func(f *fixture) {
			c := &f.overview.Replicas[0].Certificates[0]
			c.NotAfter, c.Renewal = noon.AddDate(0, 0, 3), noon.AddDate(0, 0, -1)
		}, "health", "the certificate serving ends in 3 days"},
		"another caller's certificate ends": {func(f *fixture) {
			f.overview.Replicas[0].Certificates = []ui.Certificate{{Use: "caller", Subject: "kube-scheduler-batch", NotAfter: noon.AddDate(0, 0, 2)}}
		}, "health", "the certificate caller kube-scheduler-batch ends in 2 days"},
		"a wrong path": {func(f *fixture) {
			f.overview.Replicas[1].Unserved = []ui.Unserved{{Reason: "path", Calls: 7, Last: noon.Add(-5 * time.Second), Example: "/outbord/filter"}}
		}, "health", "such as /outbord/filter: 7 calls so far. The latest was 5 s ago. Correct urlPrefix"},
		"no TLS, of two replicas": {func(f *fixture) {
			for i := range f.overview.Replicas {
				f.overview.Replicas[i].Unserved = []ui.Unserved{{Reason: "plaintext", Calls: 2, Last: noon.Add(-5 * time.Second), Example: "10.0.0.7"}}
			}
		}, "health", "1 thing is not well:"},
		"no TLS, of one replica": {func(f *fixture) {
			f.overview.Replicas = f.overview.Replicas[:1]
			f.overview.Replicas[0].Unserved = []ui.Unserved{{Reason: "plaintext", Calls: 2, Last: noon.Add(-5 * time.Minute), Example: "10.0.0.7"}}
		}, "health", "The latest was 5 min ago. Begin urlPrefix"},
		"the schedulers and the policies": {func(*fixture) {}, "health", "extender /"},
		"a row of the audit": {func(f *fixture) {
			r := f.held.Rows[0]
			f.held.Findings = []ui.HeldFinding{{Finding: audit.Finding{Kind: audit.Leaked, Resource: r.Resource, Node: r.Node, Unit: r.Unit, Holders: []audit.Holder{{UID: types.UID(r.UID)}}}}}
		}, "held", "agrees"},
		"shares by namespace": {func(*fixture) {}, "held?by=namespace", "29\u00a0%"},
		"what begins so":      {func(*fixture) {}, "find?text=train-91", "Names that begin with train-91"},
		"nothing begins so":   {func(*fixture) {}, "find?text=zebra", "No pod and no node has a name that begins with zebra."},
		"a warning":           {func(f *fixture) { f.overview.Replicas[0].Warnings = []string{"the disk is slow"} }, "health", "the disk is slow"},
		"all well":            {func(*fixture) {}, "health", "Everything is well: 2 replicas ready, and no call has failed"},
		"ledgers and pods": {func(f *fixture) {
			f.held.Findings = []ui.HeldFinding{{Finding: audit.Finding{Kind: "Orphan", Resource: gpuMemory, Node: "gpu-h100-0001", Unit: "3"}}}
		}, "held", "found 1 difference"},
		"never audited":               {func(f *fixture) { f.held.Audited = time.Time{} }, "held", "The first audit has not ended."},
		"held, without an allocation": {func(f *fixture) { f.held.Rows[0].Unallocated, f.held.Rows[0].Unit = true, "" }, "held", "1 pod without an allocation"},
		"held, before the unit is known": {func(f *fixture) {
			f.late, f.held.Rows[0].Amount, f.held.Rows[0].Since = true, 12345, time.Time{}
		}, "held", "12,345 GiB"},
		"what the pod says": {func(f *fixture) {
			f.explain["a/b"] = explain.Document{Pod: "a/b", Known: true, Created: noon, Unschedulable: "0/4 nodes are available: 4 no tape drive.",
				Now: []explain.Profile{{Profile: "/", Refused: "pod a/b has schedulerName \"x\""}}}
		}, "pod/a/b", "4 no tape drive"},
		"a search that did not end": {func(f *fixture) {
			f.explain[f.pods[0].Pod] = explain.Document{Pod: f.pods[0].Pod, Known: true, Change: "searching for changes: not complete after 2s", Now: []explain.Profile{{Profile: "/", Error: "searching for changes: not complete after 2s"}}}
		}, "waiting", "searching for changes: not complete after 2s"},
		"unmanaged": {func(f *fixture) {
			f.explain["a/b"] = explain.Document{Pod: "a/b", Known: true, Now: []explain.Profile{{Profile: "/", Unmanaged: true}}}
		}, "pod/a/b", "does not manage this pod"},
		"markup in a name": {func(f *fixture) { f.pods[0].Text = `<img src=x onerror=alert(1)>` }, "waiting?owner=" + cluster().pods[0].Owner, "<img src=x onerror=alert(1)>"},
		"no such node":     {none, "node/gone", "No node is named gone."},
		"a node without GPUs": {func(f *fixture) {
			f.node = &ui.Node{Name: "cpu", Status: "Ready,SchedulingDisabled", Taints: []string{"a=b:NoSchedule"}, Resources: []ui.NodeResource{}, Signals: []ui.NodeSignal{}, Rows: []ui.HeldRow{}}
		}, "node/cpu", "Ready,SchedulingDisabled"},
		"a device plugin that is down": {func(f *fixture) {
			n := fetch[ui.Node](f.replica, ui.NodePath+"?name=gpu-h100-0003")
			n.Resources[0].Reported.Allocatable = 0
			f.node = &n
		}, "node/gpu-h100-0003", "640 GiB\t0 GiB\t"},
		"the signals of a node": {func(*fixture) {}, "node/gpu-h100-0003", "Signal load"},
		"a pod that is placed":  {func(*fixture) {}, "pod/" + cluster().placed(), "chosen by kube-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster()
			f.change(tt.change)
			b, at := browse(t, f)
			b.visit(at + "/ui/#/" + tt.path)
			text, _ := json.Marshal(tt.says)
			b.until(fmt.Sprintf(`document.body.innerText.includes(%s)`, text))
		})
	}
}

// Every view is reached and used with keys alone.
func TestKeys(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	b.visit(at + "/ui/#/waiting")
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
	row := func() {
		t.Helper()
		for range 40 {
			if b.press(kb.Tab); value[bool](b, `document.activeElement === document.querySelector('tbody a')`) {
				b.press(kb.Enter)
				return
			}
		}
		t.Fatal("the first row is not reached")
	}
	row()
	title("Waiting: " + f.pods[0].Owner)
	b.until(`document.querySelector('tbody tr .name')`)
	row()
	title(f.pods[0].Pod)
	b.press(kb.Escape)
	title("Waiting: " + f.pods[0].Owner)
	b.press("/")
	b.until(`document.activeElement.id === 'find'`)
	value[bool](b, `document.activeElement.value = '', true`) // the protocol types the slash although the page prevents that
	b.press("gpu-h100-0003" + kb.Enter)
	title("gpu-h100-0003")
	b.visit(at + "/ui/#/gpus?table=1&order=name")
	b.until(`document.querySelector('tbody a')`)
	row()
	title("gpu-a100-0000")
}

// The navigation marks the view that is shown. The pages of pods and search results are in none of the views: a pod that is placed does not
// wait. An address that names no view shows the first one.
func TestNavigation(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	paths := f.paths()
	for _, tt := range [][2]string{
		{paths["waiting"], "Waiting"}, {paths["owner"], "Waiting"}, {paths["gpus"], "GPUs"}, {paths["pools"], "GPUs"}, {paths["held"], "Who holds what"},
		{paths["owners"], "Who holds what"}, {paths["try"], "Try a pod"}, {paths["signals"], "Signals"}, {paths["health"], "Health"},
		{paths["pod"], ""}, {paths["placed"], ""}, {paths["node"], ""}, {paths["unknown"], ""}, {paths["found"], ""},
		{"", "Waiting"}, {"nothing", "Waiting"}, {"constructor", "Waiting"}, {"pod/default/100%", ""},
	} {
		b.visit(at + "/ui/")
		b.until(`document.querySelector('nav [aria-current]')`)
		value[string](b, fmt.Sprintf(`location.hash = '#/%s'`, tt[0])) // as a click on a link, after which another view is no longer marked
		b.until(fmt.Sprintf(`document.querySelector('main h1') && !document.querySelector('[aria-busy]') && [...document.querySelectorAll('nav [aria-current=page]')].map(a => a.firstChild.textContent).join() === %q`, tt[1]))
	}
}

// The squares and their legend follow a change between light and dark, and walls that are gone do not listen for one: each has all its units.
func TestScheme(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	b.visit(at + "/ui/#/gpus")
	const drawn = `['.legend li:nth-child(3) canvas', '.group canvas'].map(s => document.querySelector(s).toDataURL())`
	b.until(`document.querySelectorAll('.group canvas').length === 3`)
	value[bool](b, `window.light = `+drawn+`, window.listeners = 0, (add => { MediaQueryList.prototype.addEventListener = function (...a) { listeners++; return add.apply(this, a) } })(MediaQueryList.prototype.addEventListener), true`)
	for range 2 {
		b.press("gw")
		b.until(`document.querySelector('h1').textContent === 'Waiting'`)
		b.press("gu")
		b.until(`document.querySelectorAll('.group canvas').length === 3`)
	}
	if n := value[int](b, `listeners`); n != 0 {
		t.Errorf("%d more listeners after two visits", n)
	}
	b.size(1280, 900, "dark")
	b.until(`document.querySelectorAll('.group canvas').length === 3 && ` + drawn + `.every((d, i) => d !== light[i])`)
}

// The focus and the place stay while a view follows new data, also on the page of a pod, whose scores change.
func TestFocusStays(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 600, "light")
	b.visit(at + "/ui/#/pod/" + f.pods[0].Pod)
	b.until(`document.querySelectorAll('.matrix tbody a').length > 5`)
	value[bool](b, `document.querySelectorAll('.matrix tbody a')[5].focus(), window.kept = [document.activeElement, scrollY], true`)
	for range 3 {
		f.mu.Lock()
		requests := f.requests
		f.mu.Unlock()
		f.change(func(*fixture) {})
		deadline := time.Now().Add(time.Minute)
		for seen := false; !seen; time.Sleep(50 * time.Millisecond) {
			f.mu.Lock()
			seen = f.requests >= requests+3 || time.Now().After(deadline)
			f.mu.Unlock()
		}
	}
	if !value[bool](b, `kept[0] === document.activeElement && kept[1] === scrollY && scrollY > 0`) {
		t.Errorf("the focus is now at %s", value[string](b, `document.activeElement.outerHTML.slice(0, 200) + ' at ' + scrollY`))
	}
}

// Calls that failed are seen while they are of the last minute, and the page says why it is refused.
func TestFailures(t *testing.T) {
	f := cluster()
	f.overview.Context = ""
	b, at := browse(t, f)
	b.expect("421")
	b.visit(at + "/ui/#/health")
	b.until(`document.querySelector('main').innerText.includes('Everything is well')`)
	f.change(func(f *fixture) {
		c := &f.overview.Replicas[0].Profiles[0].Calls[0]
		c.Calls, c.Failed = 20, 6
		for i := range c.Durations {
			c.Durations[i].Count = 20
		}
	})
	b.until(`document.querySelector('main').innerText.includes('6 of 20 filter calls of profile / failed') && /filter\t20\t6\t[\d.]+ µs\t[\d.]+ µs/.test(document.querySelector('main').innerText)`)
	f.change(func(f *fixture) { f.overview.Replicas[0].Profiles[0].Calls[0].Failed = 0 })
	b.until(`document.querySelector('main').innerText.includes('Everything is well') && !document.querySelector('nav .bad')`)
	b.visit(value[string](b, `location.href.replace('health', 'waiting')`))
	f.change(func(f *fixture) { f.broken = http.StatusMisdirectedRequest })
	b.until(`document.getElementById('notices').textContent.includes('421: busy')`)
	if text := value[string](b, `document.getElementById('notices').textContent`); strings.Contains(text, "still running") {
		t.Errorf("a refusal is not a lost connection: %s", text)
	}
}

// A link shows what the view shows: the size of the pod, the order, and the table.
func TestLinks(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	b.visit(at + "/ui/#/gpus")
	value[bool](b, `(e => { e.value = 30; e.dispatchEvent(new Event('input')) })(document.getElementById('size')), (e => { e.value = 'name'; e.dispatchEvent(new Event('change')) })(document.getElementById('order')), document.getElementById('as-table').click(), true`)
	first := `document.querySelector('h1').innerText + document.querySelector('.sum').innerText + document.querySelector('tbody').innerText`
	shown := value[string](b, first)
	b.visit(value[string](b, `location.href`))
	if again := value[string](b, first); again != shown || !strings.Contains(shown, "of 30 GiB") {
		t.Errorf("the link shows\n%s\nnot\n%s", again, shown)
	}
}

// The size of the pod is set and cleared by keys and by mouse, on any screen, and a link has it, also that there is none.
func TestSize(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	shown := func(need, text string) {
		t.Helper()
		is := fmt.Sprintf(`new URLSearchParams(location.hash.split('?')[1]).get('need') === %q && document.getElementById('size').value === %q`, need, text)
		says := `document.querySelector('.sum').innerText.includes('pods of') === false`
		if text != "" {
			says = fmt.Sprintf(`document.querySelector('.sum').innerText.includes('of %s GiB')`, text)
		}
		b.until(is + " && " + says)
		b.visit(value[string](b, `location.href`)) // the same again by the link
		b.until(is + " && " + says)
	}
	for _, width := range []int64{1280, 320} {
		b.size(width, 800, "light")
		b.visit(at + "/ui/#/gpus")
		usual := len(value[string](b, `document.getElementById('size').value`))

		for range 40 {
			if value[bool](b, `document.activeElement.id === 'size'`) {
				break
			}
			b.press(kb.Tab)
		}
		b.press(kb.End + strings.Repeat(kb.Backspace, usual) + "37" + kb.ArrowUp)
		shown("38", "38")
		value[bool](b, `document.getElementById('size').focus(), true`)
		b.press(kb.End + kb.Backspace + kb.Backspace)
		shown("0", "")
		b.click("#size")
		b.press("56")
		shown("56", "56")
		b.click("form.controls button")
		b.until(`document.activeElement.id === 'size'`)
		shown("0", "")
	}
}

// The order is that of all waiting pods, although the page reads only some of them, and the page says how many it does not show.
func TestManyWait(t *testing.T) {
	f := cluster()
	last := f.pods[0]
	last.Since = noon.Add(-time.Minute)
	for i := range 620 {
		last.Owner, last.Pod = fmt.Sprintf("team-z/Job/last-%d", i), fmt.Sprintf("team-z/last-%d-0", i)
		f.pods = append(f.pods, last)
	}
	for i := range 99 {
		last.Pod = fmt.Sprintf("team-z/last-619-%d", 1+i)
		f.pods = append(f.pods, last)
	}
	b, at := browse(t, f)
	b.size(1280, 900, "light")
	b.visit(at + "/ui/#/waiting")
	all := ui.Group(f.rows(), ui.Query{}).Total
	first := func(name string) string {
		return fmt.Sprintf(`document.querySelector('tbody .name')?.textContent === %q`, name)
	}
	says := func(text string) string {
		return fmt.Sprintf(`document.querySelector('main').innerText.includes(%q)`, text)
	}
	b.until(says(fmt.Sprintf("50 of %d owners are shown. Show more", all)) + ` && !(` + first("last-619") + `)`)
	value[bool](b, `(e => { e.value = 'pods'; e.dispatchEvent(new Event('change')); return true })(document.getElementById('waiting-sort'))`)
	b.until(first("last-619") + ` && document.querySelector('tbody td').textContent === '100' && ` + says("the longest wait is 3 h"))
	for _, n := range []int{200, 500} {
		value[bool](b, `[...document.querySelectorAll('main a')].find(a => a.textContent === 'Show more').click(), true`)
		b.until(fmt.Sprintf(`document.querySelectorAll('tbody tr').length === %d`, n))
	}
	b.until(first("last-619") + ` && ` + says(fmt.Sprintf("500 of %d owners are shown. Select a reason or a part of a name to see the others.", all)))
}

// A page that nobody sees does not search for the changes with which pods would fit.
func TestHidden(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.visit(at + "/ui/#/waiting")
	b.until(`!document.querySelector('tbody').innerText.includes('…')`)
	value[bool](b, `(() => {
		window.asked = 0
		window.fetch = (fetch => (path, ...rest) => { asked += path.startsWith('/explain'); return fetch(path, ...rest) })(window.fetch)
		Object.defineProperty(document, 'hidden', { configurable: true, value: true })
		Date.now = (now => () => now() + 61e3)(Date.now) // so that what is known is too old
		performance.now = (now => () => now() + 3600e3)(performance.now.bind(performance))
		return true
	})()`)
	b.until(`document.querySelector('main').innerText.includes('the longest wait is 4 h')`) // it was drawn again
	if n := value[int](b, `asked`); n > 0 {
		t.Errorf("%d searches", n)
	}
	value[bool](b, `delete document.hidden`)
	b.until(`asked > 0`)
}

// The questions of docs/page.md have their answers after as many clicks as it says.
func TestQuestions(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.size(1280, 1200, "light")
	shows := func(selector, text string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, selector, text))
	}
	b.visit(at + "/ui/")
	shows("tbody", "NoFreeSeat")
	shows("tbody", "with 40 GiB of aliyun.com/gpu-mem instead of 64 GiB") // so it would not fit with 60
	if badges := value[int](b, `document.querySelectorAll('nav .badge.bad').length`); badges != 0 {
		t.Errorf("%d badges although everything is well", badges)
	}
	b.click("tbody tr a")
	shows("h1", f.pods[0].Owner)
	shows("tbody", f.pods[0].Pod[len("team-b/"):])
	b.click("tbody tr a")
	shows("h1", f.pods[0].Pod)
	shows(".matrix", "0 of 4 seats")

	b.visit(at + "/ui/")
	b.click(`nav a[href="#/gpus"]`)
	b.until(`document.querySelector('section[aria-label=H100] canvas')`)
	gpu := value[[]float64](b, `(c => {
		const box = c.getBoundingClientRect()
		for (let y = 4; y < box.height; y += 8) for (let x = 4; x < box.width; x += 8) {
			c.dispatchEvent(new MouseEvent('mousemove', { clientX: box.left + x, clientY: box.top + y }))
			if (document.querySelector('.tip b')?.textContent === 'gpu-h100-0017, GPU 3') return [box.left + x, box.top + y]
		}
		return []
	})(document.querySelector('section[aria-label=H100] canvas'))`)
	if len(gpu) == 0 {
		t.Fatal("the GPU is not on the wall")
	}
	b.clickAt(gpu[0], gpu[1])
	shows("h1", "gpu-h100-0017")
	for _, r := range f.held.Rows {
		if r.Node == "gpu-h100-0017" && r.Unit == "3" {
			b.until(fmt.Sprintf(`[...document.querySelectorAll('tr.at')].some(e => e.innerText.includes(%q) && e.innerText.includes('GPU 3'))`, r.Pod))
		}
	}

	f.change(func(f *fixture) { f.overview.Replicas[0].Warnings = []string{"the disk is slow"} })
	shows("nav .badge.bad", "1")
	b.click(`nav a[href="#/health"]`)
	shows("main", "the disk is slow")
}

// The search finds a pod by the beginning of its name in any namespace.
func TestSearch(t *testing.T) {
	f := cluster()
	b, at := browse(t, f)
	b.visit(at + "/ui/#/waiting")
	_, name, _ := strings.Cut(f.pods[0].Pod, "/")
	value[bool](b, fmt.Sprintf(`(document.getElementById('find').value = %q, document.getElementById('search').requestSubmit(), true)`, name))
	b.until(fmt.Sprintf(`document.querySelector('h1').textContent === %q`, f.pods[0].Pod))
}
