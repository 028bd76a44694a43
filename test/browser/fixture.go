package browser

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/remedy"
	"outboard.dev/outboard/internal/ui"
)

// noon is the time at every replica of a fixture.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const gpuMemory = "aliyun.com/gpu-mem"

// A fixture serves the page with data that does not change by itself: the states that a cluster rarely has, and sizes that a test
// cannot give a real one. Its data has the types of package ui, so that the compiler finds what no longer agrees.
type fixture struct {
	mu       sync.Mutex
	overview ui.Overview
	units    map[string]ui.Units
	pods     []ui.WaitingRow // one for each waiting pod
	held     ui.Held
	signals  ui.Signals
	explain  map[string]explain.Document
	broken   int  // the status of responses with data; 0: they are good
	late     bool // the overview comes some time after the response to another request
	version  int
	requests int
	bytes    int
}

// change changes the data, and so its ETag.
func (f *fixture) change(how func(*fixture)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
	f.version++
}

func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, ui.Path) {
		ui.Handler().ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.broken != 0 {
		http.Error(w, "busy with other requests to the admin address", f.broken)
		return
	}
	for f.late && r.URL.Path == ui.OverviewPath {
		f.mu.Unlock()
		time.Sleep(300 * time.Millisecond) // in which the page shows the other data
		f.mu.Lock()
	}
	f.late = false
	etag := strconv.Quote(strconv.Itoa(f.version))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body, err := json.Marshal(f.data(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.bytes += len(body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (f *fixture) data(r *http.Request) any {
	q := r.URL.Query()
	switch r.URL.Path {
	case ui.OverviewPath:
		return f.overview
	case ui.UnitsPath:
		return f.units[q.Get("resource")]
	case ui.WaitingPath:
		limit, _ := strconv.Atoi(q.Get("limit"))
		return waiting(f.pods, q.Get("find"), q.Get("reason"), q.Get("owner"), limit)
	case ui.HeldPath:
		held := f.held
		held.Rows = []ui.HeldRow{}
		for _, row := range f.held.Rows {
			if (q.Get("node") == "" || q.Get("node") == row.Node) && (q.Get("resource") == "" || q.Get("resource") == row.Resource) &&
				strings.Contains(row.Namespace+"/"+row.Pod+" "+row.Node+" "+row.Owner, q.Get("find")) {
				held.Rows = append(held.Rows, row)
			}
		}
		held.Total = len(held.Rows)
		held.Rows = held.Rows[:min(500, len(held.Rows))]
		return held
	case ui.SignalsPath:
		return f.signals
	case ui.TryPath:
		return f.explain["try"]
	}
	pod := q.Get("namespace") + "/" + q.Get("pod")
	if doc, ok := f.explain[pod]; ok {
		return doc
	}
	return explain.Document{Pod: pod, Decisions: []*decision.Record{}}
}

func waiting(pods []ui.WaitingRow, find, reason, owner string, limit int) ui.Waiting {
	w := ui.Waiting{Pods: len(pods), Rows: []ui.WaitingRow{}}
	counts, owners := map[string]int{}, map[string]int{}
	all := map[string]bool{}
	for _, p := range pods {
		counts[p.Reason]++
		all[p.Owner] = true
		if reason != "" && p.Reason != reason || owner != "" && p.Owner != owner || !strings.Contains(p.Pod+" "+p.Owner, find) {
			continue
		}
		w.Shown++
		at, ok := owners[p.Owner]
		if !ok || owner != "" {
			owners[p.Owner] = len(w.Rows)
			w.Rows = append(w.Rows, p)
			continue
		}
		w.Rows[at].Pods++
	}
	w.Owners = len(all)
	for code, n := range counts {
		w.Reasons = append(w.Reasons, ui.Reason{Code: code, Pods: n})
	}
	slices.SortFunc(w.Reasons, func(a, b ui.Reason) int { return cmp.Or(b.Pods-a.Pods, strings.Compare(a.Code, b.Code)) })
	slices.SortStableFunc(w.Rows, func(a, b ui.WaitingRow) int { return a.Since.Compare(b.Since) })
	w.Rows = w.Rows[:min(limit, len(w.Rows))]
	return w
}

// model is a model of GPU with its nodes.
type model struct {
	name           string
	nodes, gpus    int
	memory         int64
	prefix         string
	sizes          []int64 // of pods
	fill, unwell   float64 // how much is allocated, and the share of unhealthy GPUs
	reservedOneOfN int
}

func generated(random *rand.Rand, models []model) (ui.Units, []ui.HeldRow) {
	u := ui.Units{Resource: ui.Resource{Resource: gpuMemory, Title: "GPU memory", Unit: "GiB"}}
	var rows []ui.HeldRow
	for group, m := range models {
		u.Groups = append(u.Groups, m.name)
		for n := range m.nodes {
			node := ui.NodeUnits{Node: fmt.Sprintf("%s-%04d", m.prefix, n), Group: group}
			busy := m.fill + 0.6*(random.Float64()-0.5)
			for g := range m.gpus {
				var used, reserved, flags int64
				for used < m.memory && random.Float64() < busy {
					size := min(m.sizes[random.IntN(len(m.sizes))], m.memory-used)
					used += size
					state := "running"
					if random.IntN(m.reservedOneOfN) == 0 {
						reserved, state = reserved+size, "bound"
					}
					team := random.IntN(6)
					rows = append(rows, ui.HeldRow{
						Resource: gpuMemory, Node: node.Node, Unit: strconv.Itoa(g), Namespace: fmt.Sprintf("team-%c", 'a'+team),
						Pod: fmt.Sprintf("train-%d-%05x", 40+team, random.IntN(1<<20)), UID: fmt.Sprintf("%08x", random.Uint32()),
						Owner: fmt.Sprintf("team-%c/Job/train-%d", 'a'+team, 40+team), Amount: size, State: state,
						Since: noon.Add(-time.Duration(random.IntN(40000)) * time.Second),
					})
				}
				if random.Float64() < m.unwell {
					flags = ui.Unhealthy
				}
				node.Units = append(node.Units, m.memory, used, reserved, flags)
			}
			u.Nodes = append(u.Nodes, node)
		}
	}
	return u, rows
}

// reasons are of waiting pods; the weights say how frequent they are.
var reasons = []struct {
	weight           int
	code, text, unit string
	want, have       int64
}{
	{12, "GPUMemory.InsufficientMemory", "Insufficient GPU memory of one GPU", "GiB", 24, 22},
	{5, "Licenses.NoFreeSeat", "No free seat of solver", "seats", 1, 0},
	{2, "GPUMemory.WrongModel", "The GPUs are of another model", "", 0, 0},
	{2, ui.NotAsked, "0/46 nodes are available: 40 node(s) had untolerated taint(s), 6 Insufficient cpu.", "", 0, 0},
	{1, ui.Gated, "example.com/quota", "", 0, 0},
}

func waitingPods(random *rand.Rand, owners, pods int) []ui.WaitingRow {
	var rows []ui.WaitingRow
	kinds := []string{"Job", "ReplicaSet", "StatefulSet"}
	for i := range pods {
		o := i % owners
		at := o * 7 % 22
		r := reasons[0]
		for _, x := range reasons {
			if r = x; at < x.weight {
				break
			}
			at -= x.weight
		}
		team := fmt.Sprintf("team-%c", 'a'+o%6)
		name := fmt.Sprintf("%s-%d", []string{"train", "embed", "eval", "notebook", "render"}[o%5], 10+o)
		row := ui.WaitingRow{
			Owner: team + "/" + kinds[o%3] + "/" + name, Pods: 1, Pod: fmt.Sprintf("%s/%s-%05x", team, name, i),
			Since: noon.Add(-time.Duration(30+o*o*37+random.IntN(20)) * time.Second), Requests: []string{"cpu: 8", fmt.Sprintf("%s: %d", gpuMemory, max(r.want, 8))},
			Reason: r.code, Text: r.text, Unit: r.unit,
		}
		if r.code != ui.NotAsked && r.code != ui.Gated {
			row.Rejected, row.Nodes, row.LastCall, row.Requeues = 46, 46, noon.Add(-20*time.Second), o%4
		}
		if r.want > 1 {
			row.Nearest = &decision.Miss{Node: fmt.Sprintf("gpu-h100-%04d", o%20), Have: r.have, Want: r.want}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b ui.WaitingRow) int { return a.Since.Compare(b.Since) })
	return rows
}

func replica(name string) ui.Replica {
	return ui.Replica{
		Name: name, Version: "v0.9.0", Started: noon.Add(-51 * time.Hour), Now: noon, Configuration: "3f9c21ab", Generation: 1897,
		Checks:       []ui.Check{{Name: "serving"}, {Name: "cluster"}, {Name: "signals"}},
		Certificates: []ui.Certificate{{Use: "serving", Subject: "outboard", NotAfter: noon.AddDate(0, 2, 0)}, {Use: "client CA", Subject: "outboard-ca", NotAfter: noon.AddDate(4, 0, 0)}},
		Profiles: []ui.Profile{{
			Path: "/", Policies: []ui.Policy{{Name: "GPUMemory", Type: "GPUMemory", Weight: 2}, {Name: "Utilization", Type: "Utilization", Weight: 1}, {Name: "Licenses", Type: "Licenses"}},
			Calls: []ui.Calls{{Verb: decision.Filter, Total: 48211, Last: noon.Add(-2 * time.Second)}, {Verb: decision.Prioritize, Total: 31877, Last: noon.Add(-4 * time.Second)}, {Verb: decision.Bind, Total: 8816, Failed: 3, Last: noon.Add(-4 * time.Second)}},
		}},
	}
}

// cluster is a fixture of the size of many real clusters.
func cluster() *fixture {
	random := rand.New(rand.NewPCG(1, 2))
	f := &fixture{units: map[string]ui.Units{}}
	u, rows := generated(random, []model{
		{"H100 80 GiB", 24, 8, 80, "gpu-h100", []int64{24, 40, 56, 80}, 0.72, 0.02, 9},
		{"A100 40 GiB", 16, 4, 40, "gpu-a100", []int64{8, 16, 24, 40}, 0.55, 0.01, 9},
		{"T4 16 GiB", 6, 1, 16, "gpu-t4", []int64{4, 8}, 0.5, 0, 9},
	})
	f.units[gpuMemory] = u
	f.units["solver"] = ui.Units{Resource: ui.Resource{Resource: "solver", Title: "Licenses"}, Groups: []string{"Licenses"}, Nodes: []ui.NodeUnits{
		{Node: "solver", Names: []string{"solver"}, Units: []int64{12, 12, 1, 0}}, {Node: "renderer", Names: []string{"renderer"}, Units: []int64{40, 17, 0, 0}},
	}}
	f.held = ui.Held{Audited: noon.Add(-20 * time.Second), Findings: []audit.Finding{}, Rows: rows}
	f.pods = waitingPods(random, 37, 312)
	f.signals = ui.Signals{Signals: []ui.Signal{
		{Signal: explain.Signal{Name: "load", Values: 46, Newest: noon.Add(-4 * time.Second)}, Oldest: noon.Add(-19 * time.Second), Ages: []int{4, 9, 6, 3, 2, 4, 5, 1, 0, 2, 3, 1, 0, 0, 2, 1, 1, 0, 1, 1}, Readers: []ui.Reader{{Profile: "/", Policy: "Utilization", WhenStale: "Neutral"}}},
		{Signal: explain.Signal{Name: "price", Values: 3, Stale: 1, Newest: noon.Add(-time.Hour), Error: "GET http://prices.internal/eu: 503 Service Unavailable"}, Oldest: noon.Add(-9 * time.Hour), Ages: []int{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, Missing: 4, Readers: []ui.Reader{}},
	}}
	one, two := replica("outboard-6d4f9-2xkqp"), replica("outboard-6d4f9-s8vlz")
	for _, r := range []*ui.Replica{&one, &two} {
		r.Nodes, r.Pods, r.Waiting = 46, 1204, 312
	}
	f.overview = ui.Overview{Context: "prod-eu", Replicas: []ui.Replica{one, two}, Resources: []ui.Resource{u.Resource, f.units["solver"].Resource}}
	f.explain = map[string]explain.Document{"try": tried()}
	for _, p := range f.pods {
		f.explain[p.Pod] = waits(p)
	}
	f.explain[rows[0].Namespace+"/"+rows[0].Pod] = runs(rows[0])
	return f
}

// large is a fixture at the limits of the page.
func large() *fixture {
	f := cluster()
	random := rand.New(rand.NewPCG(3, 4))
	u, rows := generated(random, []model{
		{"H100 80 GiB", 2000, 8, 80, "gpu-h100", []int64{24, 40, 56, 80}, 0.72, 0.02, 9},
		{"A100 40 GiB", 2000, 8, 40, "gpu-a100", []int64{8, 16, 24, 40}, 0.55, 0.01, 9},
		{"L4 24 GiB", 1000, 8, 24, "gpu-l4", []int64{4, 8}, 0.5, 0, 9},
	})
	f.units[gpuMemory], f.held.Rows = u, rows
	f.pods = waitingPods(random, 10000, 10000)
	for i := range f.overview.Replicas {
		f.overview.Replicas[i].Nodes, f.overview.Replicas[i].Pods, f.overview.Replicas[i].Waiting = 5000, 30000, 10000
	}
	return f
}

func opinions(memory int64, scores ...int64) []engine.PolicyOpinion {
	o := []engine.PolicyOpinion{{Policy: "GPUMemory", Weight: 2}, {Policy: "Utilization", Weight: 1}, {Policy: "Licenses"}}
	if memory >= 0 {
		o[0].Code, o[0].Text, o[0].Unit, o[0].Have, o[0].Want = "InsufficientMemory", "Insufficient GPU memory of one GPU", "GiB", memory, 24
	} else {
		o[0].Scored, o[0].Score = true, scores[0]
	}
	if len(scores) > 1 {
		o[1].Scored, o[1].Score = true, scores[1]
	}
	return o
}

func quantity(text string) *resource.Quantity { return new(resource.MustParse(text)) }

func waits(p ui.WaitingRow) explain.Document {
	remedies := []remedy.Remedy{
		{Kind: remedy.Request, Node: "gpu-h100-0017", Resource: gpuMemory, From: quantity("24"), To: quantity("22"), Next: quantity("23"), Smallest: true},
		{Kind: remedy.End, Node: "gpu-h100-0003", End: []remedy.Holder{{Namespace: "team-b", Name: "notebook-7"}}, Preemption: remedy.PriorityNotLower, Smallest: true},
	}
	doc := explain.Document{Pod: p.Pod, Known: true, Decisions: []*decision.Record{}, Now: []explain.Profile{{
		Profile: "/", Nodes: 46, MaxTotal: 300, Remedies: remedies, Pending: &explain.Pending{Since: p.Since, Requeues: p.Requeues, LastRequeued: noon.Add(-20 * time.Second)},
		Excluded: []explain.Exclusion{{Reason: "1 Insufficient cpu", Nodes: 3, Examples: []string{"gpu-t4-0001", "gpu-t4-0002", "gpu-t4-0004"}}},
	}}}
	for i := range 12 {
		doc.Now[0].Explanations = append(doc.Now[0].Explanations, engine.Explanation{Node: fmt.Sprintf("gpu-h100-%04d", i), Policies: opinions(int64(22-i), 0, int64(90-i*5))})
	}
	name := strings.SplitN(p.Pod, "/", 2)
	for i, replica := range []string{"outboard-6d4f9-2xkqp", "outboard-6d4f9-s8vlz"} {
		doc.Replicas = append(doc.Replicas, replica)
		doc.Decisions = append(doc.Decisions, &decision.Record{
			Time: noon.Add(-time.Duration(20+40*i) * time.Second), Replica: replica, Verb: decision.Filter, Profile: "/", Pod: decision.Pod{Namespace: name[0], Name: name[1]},
			Nodes: 46, Rejections: []decision.Rejection{{Policy: "GPUMemory", Code: "InsufficientMemory", Unit: "GiB", Nodes: 46, Nearest: []decision.Miss{{Node: "gpu-h100-0000", Have: 22, Want: 24}}}},
		})
	}
	return doc
}

func tried() explain.Document {
	doc := explain.Document{Pod: "default/try", Known: true, Decisions: []*decision.Record{}, Now: []explain.Profile{{Profile: "/", Nodes: 46, Fit: 3, MaxTotal: 300}}}
	for i := range 10 {
		x := engine.Explanation{Node: fmt.Sprintf("gpu-h100-%04d", i), Fits: i < 3}
		if x.Fits {
			score := int64(95 - 20*i)
			x.Total, x.Policies = 2*score+60, opinions(-1, score, 60)
		} else {
			x.Policies = opinions(int64(22-i), 0, 50)
		}
		doc.Now[0].Explanations = append(doc.Now[0].Explanations, x)
	}
	return doc
}

func runs(row ui.HeldRow) explain.Document {
	scored := func(node string, memory, load int64) decision.ScoredNode {
		return decision.ScoredNode{Node: node, Total: 2*memory + load, Scores: []decision.Score{{Policy: "GPUMemory", Score: memory, Weight: 2}, {Policy: "Utilization", Score: load, Weight: 1}}}
	}
	top := []decision.ScoredNode{scored(row.Node, 100, 50), scored("gpu-h100-0009", 90, 60), scored("gpu-a100-0002", 40, 90)}
	return explain.Document{
		Pod: row.Namespace + "/" + row.Pod, Known: true, Node: row.Node, Holds: []engine.Holding{{Resource: gpuMemory, Unit: row.Unit, Amount: row.Amount}},
		Placed: []explain.Placed{{Profile: "/", Placement: remedy.Placement{Node: row.Node, Fits: true, Total: 250, Flips: []remedy.Flip{{Policy: "Utilization", From: 1, To: 3, Node: "gpu-h100-0009"}}}}},
		Decisions: []*decision.Record{
			{Time: row.Since, Replica: "outboard-6d4f9-2xkqp", Verb: decision.Bind, Profile: "/", Bound: row.Node, Nodes: 1, Fit: 1},
			{Time: row.Since, Replica: "outboard-6d4f9-2xkqp", Verb: decision.Prioritize, Profile: "/", Nodes: 3, Fit: 3, Top: top, MaxTotal: 300, Chosen: &decision.ChosenNode{ScoredNode: top[0]}},
			{Time: row.Since, Replica: "outboard-6d4f9-2xkqp", Verb: decision.Filter, Profile: "/", Nodes: 46, Fit: 3, Rejections: []decision.Rejection{{Policy: "GPUMemory", Code: "InsufficientMemory", Unit: "GiB", Nodes: 43, Nearest: []decision.Miss{{Node: "gpu-h100-0002", Have: 22, Want: 24}}}}},
		},
	}
}
