package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
)

// replicaNames are the names of the replicas of a fixture. kube-scheduler has a connection to the first one.
var replicaNames = []string{"outboard-6d4f9-2xkqp", "outboard-6d4f9-s8vlz"}

// A fixture serves the page with the data of a world, as outboard ui merges it from two replicas. A test can change what it serves to
// states that a cluster rarely has.
type fixture struct {
	mu       sync.Mutex
	replica  http.Handler // with the whole world
	overview ui.Overview
	units    map[string]ui.Units
	pods     []ui.WaitingRow // one for each waiting pod
	held     ui.Held
	node     *ui.Node // nil: that of the world
	signals  ui.Signals
	explain  map[string]explain.Document // instead of that of the world, by pod
	broken   int                         // the status of responses with data; 0: they are good
	late     bool                        // the overview comes some time after the response to another request
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
	data := f.data(r)
	if data == nil {
		f.replica.ServeHTTP(w, r)
		return
	}
	body, err := json.Marshal(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.bytes += len(body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// rows returns the rows of the waiting pods.
func (f *fixture) rows() []*ui.WaitingRow {
	rows := make([]*ui.WaitingRow, len(f.pods))
	for i := range f.pods {
		rows[i] = &f.pods[i]
	}
	return rows
}

// data returns what the fixture responds itself, or nil.
func (f *fixture) data(r *http.Request) any {
	q := r.URL.Query()
	switch r.URL.Path {
	case ui.OverviewPath:
		o := f.overview
		o.Replicas = slices.Clone(o.Replicas)
		o.Judge()
		return o
	case ui.UnitsPath:
		if units, ok := f.units[q.Get("resource")]; ok {
			return units
		}
	case ui.WaitingPath:
		return ui.Group(f.rows(), ui.QueryOf(q))
	case ui.HeldPath:
		if q.Get("by") != "" {
			return nil
		}
		held := f.held
		held.Rows = slices.DeleteFunc(slices.Clone(f.held.Rows), func(row ui.HeldRow) bool {
			resource, node := q.Get("resource"), q.Get("node")
			return resource != "" && resource != row.Resource && !strings.HasPrefix(row.Resource, resource+"/") ||
				node != "" && node != row.Node && (row.Node != "" || node != row.Unit) ||
				!strings.Contains(row.Namespace+"/"+row.Pod+" "+row.Owner+" "+row.Node+" "+row.Unit, q.Get("find"))
		})
		held.Total = len(held.Rows)
		held.Rows = held.Rows[:min(500, len(held.Rows))]
		return held
	case ui.NodePath:
		if f.node != nil {
			return f.node
		}
	case ui.SignalsPath:
		return f.signals
	case ui.HistoryPath:
		return f.history()
	case explain.Path:
		pod := q.Get("namespace") + "/" + q.Get("pod")
		if doc, ok := f.explain[pod]; ok {
			return doc
		}
		f.mu.Unlock() // other requests do not wait for the search
		doc := fetch[explain.Document](f.replica, r.URL.String())
		f.mu.Lock()
		return replicas.Explanation([]replicas.Response[*explain.Document]{{Replica: replicaNames[0], Value: &doc}, {Replica: replicaNames[1], Value: &explain.Document{Pod: doc.Pod}}}, 20)
	}
	return nil
}

// history returns 20 hours in which GPUs fill up and pods wait for two hours.
func (f *fixture) history() ui.History {
	h := ui.History{Replica: replicaNames[0], Seconds: 120, Last: f.overview.Replicas[0].Now}
	for title, of := range map[string]func(hour float64) float64{
		"Calls":                           func(hour float64) float64 { return 400 + 300*math.Sin(hour/3) },
		"Failed calls":                    func(hour float64) float64 { return 0 },
		"Waiting pods":                    func(hour float64) float64 { return max(0, 40-20*math.Abs(hour-15)) },
		"aliyun.com/gpu-mem: % allocated": func(hour float64) float64 { return min(97, 40+4*hour) },
		"aliyun.com/gpu-mem: % free and too little": func(hour float64) float64 { return min(2.5, hour/4) },
	} {
		s := ui.Series{Title: title, Points: make([]float64, 600)}
		for i := range s.Points {
			s.Points[i] = of(float64(i) / 30)
		}
		h.Series = append(h.Series, s)
	}
	slices.SortFunc(h.Series, func(a, b ui.Series) int { return strings.Compare(a.Title, b.Title) })
	return h
}

// fetch returns the data that the handler responds.
func fetch[T any](h http.Handler, target string) (v T) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	if w.Code != http.StatusOK {
		panic(fmt.Sprintf("%s: %d %s", target, w.Code, w.Body))
	}
	must(json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

// serving returns a fixture with the data of the world.
func serving(w *world) *fixture {
	h := w.handlers(replicaNames[0])
	f := &fixture{replica: h, units: map[string]ui.Units{}, explain: map[string]explain.Document{}}
	w.now = noon.Add(-time.Minute)
	two := fetch[ui.Overview](h, ui.OverviewPath)
	w.lastMinute()
	w.now = noon
	one := fetch[ui.Overview](h, ui.OverviewPath)
	for i := range two.Replicas[0].Profiles {
		for j := range two.Replicas[0].Profiles[i].Calls {
			two.Replicas[0].Profiles[i].Calls[j] = ui.Calls{Verb: two.Replicas[0].Profiles[i].Calls[j].Verb}
		}
	}
	f.overview = *replicas.Overview([]replicas.Response[*ui.Overview]{{Replica: replicaNames[0], Value: &one}, {Replica: replicaNames[1], Value: &two}}, "prod-eu")
	for _, r := range f.overview.Resources {
		f.units[r.Resource] = fetch[ui.Units](h, ui.UnitsPath+"?resource="+r.Resource)
	}
	for _, r := range fetch[ui.Waiting](h, ui.WaitingPath+"?limit=500").Rows {
		f.pods = append(f.pods, fetch[ui.Waiting](h, ui.WaitingPath+"?limit=500&owner="+r.Owner).Rows...)
	}
	f.signals = fetch[ui.Signals](h, ui.SignalsPath)
	return f
}

// cluster is a fixture of the size of many real clusters.
func cluster() *fixture {
	w := newWorld()
	models := []model{
		{name: "H100", prefix: "gpu-h100", nodes: 24, gpus: 8, memory: 80, sizes: []int64{24, 40, 56, 80}},
		{name: "A100", prefix: "gpu-a100", nodes: 16, gpus: 4, memory: 40, sizes: []int64{8, 16, 24, 40}},
		{name: "T4", prefix: "gpu-t4", nodes: 6, gpus: 1, memory: 16, sizes: []int64{4, 8}, taints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}
	for _, m := range models {
		w.addNodes(m, 90)
	}
	// Jobs come and end for half a day.
	for job := 0; w.now.Before(noon.Add(-4 * time.Hour)); job++ {
		m := models[w.random.IntN(len(models))]
		t := template{namespace: team(job), kind: "Job", name: fmt.Sprintf("%s-%d", []string{"train", "embed", "eval", "tune"}[job%4], 40+job), gpu: m.sizes[w.random.IntN(len(m.sizes))], models: m.name}
		if job%9 == 0 && job < 90 {
			t.licenses = "renderer=1"
		} else if job%9 == 1 && job < 100 {
			t.licenses = "solver=1"
		}
		for i := range 1 + w.random.IntN(12) {
			w.tick(2 + w.random.IntN(60))
			pod := w.arrive(t, i*6151+job)
			if w.schedule(pod); w.pods[pod.Namespace+"/"+pod.Name].Spec.NodeName == "" {
				w.end(pod)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			if pod := w.pods[name]; w.random.IntN(130) == 0 {
				w.end(pod)
			}
		}
	}
	// Then pods come for which there is no room.
	for i, t := range []struct {
		pods int
		template
	}{
		{52, template{kind: "Job", name: "train-91", gpu: 72}}, {9, template{kind: "Job", name: "solve-12", cpu: 8, licenses: "solver=4"}},
		{15, template{kind: "StatefulSet", name: "serve", gpu: 160}}, {24, template{kind: "Job", name: "embed-46", gpu: 48}},
		{6, template{kind: "Job", name: "train-92", gpu: 40, models: "H200"}}, {12, template{kind: "ReplicaSet", name: "notebook-7f9c", gpu: 40, models: "A100"}},
		{20, template{kind: "Job", name: "render-5", cpu: 200}}, {8, template{kind: "Job", name: "tune-88", gpu: 64}}, {11, template{kind: "Job", name: "quota-3", gpu: 24, gate: "example.com/quota"}},
		{31, template{kind: "Job", name: "eval-61", gpu: 80}}, {2, template{kind: "Job", name: "solve-14", cpu: 8, licenses: "solver=2"}},
	} {
		t.namespace = team(i)
		for j := range t.pods {
			w.tick(5 + w.random.IntN(40))
			w.schedule(w.arrive(t.template, j*6151+i))
		}
		w.tick(300)
	}
	w.retry()
	f := serving(w)
	for _, name := range slices.Sorted(maps.Keys(w.loads)) {
		f.held.Rows = append(f.held.Rows, fetch[ui.Held](f.replica, ui.HeldPath+"?node="+name).Rows...)
	}
	pools := fetch[ui.Held](f.replica, ui.HeldPath+"?resource=licenses")
	f.held.Audited, f.held.Findings, f.held.Rows = pools.Audited, pools.Findings, append(f.held.Rows, pools.Rows...)
	return f
}

// placed returns a pod that several nodes fitted, as namespace/name.
func (f *fixture) placed() string {
	for _, row := range f.held.Rows {
		pod := row.Namespace + "/" + row.Pod
		if doc := fetch[explain.Document](f.replica, explain.Path+"?namespace="+row.Namespace+"&pod="+row.Pod); slices.ContainsFunc(doc.Decisions, func(d *decision.Record) bool { return len(d.Top) > 5 }) {
			return pod
		}
	}
	panic("no pod is placed where several nodes fitted")
}

func team(i int) string { return fmt.Sprintf("team-%c", 'a'+i%6) }

// large is a fixture at the limits of the page. Each node gets as many pods: to choose the nodes of 30,000 pods takes minutes.
func large() *fixture {
	w := newWorld()
	models := []model{
		{name: "H100", prefix: "gpu-h100", nodes: 2000, gpus: 8, memory: 80, sizes: []int64{24, 40, 56}},
		{name: "A100", prefix: "gpu-a100", nodes: 2000, gpus: 8, memory: 40, sizes: []int64{8, 16, 24}},
		{name: "L4", prefix: "gpu-l4", nodes: 1000, gpus: 8, memory: 24, sizes: []int64{4, 8}},
	}
	for _, m := range models {
		w.addNodes(m, 90)
	}
	for i := range 6 { // one pod for each node
		view := w.builder.View()
		for _, m := range models {
			for n := range m.nodes {
				t := template{namespace: team(n), kind: "Job", name: fmt.Sprintf("%s-%d", m.prefix, n/2), gpu: m.sizes[w.random.IntN(len(m.sizes))]}
				if pod := w.arrive(t, i*6151+n); w.bind(pod, view, view.Node(fmt.Sprintf("%s-%04d", m.prefix, n))) != nil {
					w.end(pod)
				}
			}
		}
	}
	w.schedule(w.arrive(template{namespace: "team-a", kind: "Job", name: "wait", gpu: 160}, 0))
	f := serving(w)
	for i := range 9999 { // more pods like the one that waits
		row := f.pods[0]
		row.Owner, row.Pod = fmt.Sprintf("%s/Job/wait-%d", team(i/20), i/20), fmt.Sprintf("%s/wait-%d-%d", team(i/20), i/20, i)
		f.pods = append(f.pods, row)
	}
	for i := range f.overview.Replicas {
		f.overview.Replicas[i].Waiting = len(f.pods)
	}
	f.held = fetch[ui.Held](f.replica, ui.HeldPath)
	return f
}
