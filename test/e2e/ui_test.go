package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/ui"
)

// served starts outboard ui for the user of the kubeconfig, and returns the address that it prints.
func (th *theater) served(kubeconfig string) string {
	th.t.Helper()
	cmd := exec.CommandContext(th.ctx, th.Binary(), "ui", "--kubeconfig", kubeconfig)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(line, "http://")
	if err != nil || !found {
		th.t.Fatalf("outboard ui says %q (%v)", line, err)
	}
	address, _, _ = strings.Cut(address, ui.Path)
	return "http://" + address
}

// ask sends a request, and returns the response and its body.
func (th *theater) ask(req *http.Request) (*http.Response, []byte) {
	th.t.Helper()
	res, err := http.DefaultClient.Do(req.WithContext(th.ctx))
	if err != nil {
		th.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		th.t.Fatal(err)
	}
	return res, body
}

func (th *theater) request(method, address, body string) *http.Request {
	th.t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		th.t.Fatal(err)
	}
	return req
}

// browse checks what outboard ui serves: the page, and the data of all replicas, of which outboard-1 and outboard-2 respond and know the
// waiting pod web-1.
func (th *theater) browse(kubeconfig string) {
	th.t.Helper()
	t, at := th.t, th.served(kubeconfig)
	read := func(path string, into any) {
		t.Helper()
		res, body := th.ask(th.request(http.MethodGet, at+path, ""))
		if err := json.Unmarshal(body, into); res.StatusCode != http.StatusOK || err != nil {
			t.Fatalf("%s: %s, %v\n%s", path, res.Status, err, body)
		}
		if strings.Contains(string(body), ":null") {
			t.Errorf("%s: null in %s", path, body)
		}
		if res.Header.Get("Content-Security-Policy") == "" || res.Header.Get("ETag") == "" && path != ui.UnitsPath && !strings.HasPrefix(path, explain.Path) {
			t.Errorf("%s: headers %v", path, res.Header)
		}
	}
	var overview ui.Overview
	read(ui.OverviewPath, &overview)
	states := ""
	for _, r := range overview.Replicas {
		states += " " + r.Name
		if r.Error != "" {
			states += "!"
		}
	}
	if states != " outboard-1 outboard-2 outboard-3! outboard-4! outboard-5!" || len(overview.Resources) != 1 {
		t.Errorf("replicas%s, resources %v", states, overview.Resources)
	}
	var waiting ui.Waiting
	read(ui.WaitingPath, &waiting)
	if waiting.Pods != 1 || len(waiting.Rows) != 1 || waiting.Rows[0].Pod != "default/web-1" || waiting.Rows[0].Nearest == nil {
		t.Errorf("waiting: %+v", waiting)
	}
	var units ui.Units
	read(ui.UnitsPath+"?resource=aliyun.com/gpu-mem", &units)
	if len(units.Nodes) != 1 || len(units.Nodes[0].Units) != 8 {
		t.Errorf("units: %+v", units)
	}
	var held ui.Held
	read(ui.HeldPath, &held)
	var signals ui.Signals
	read(ui.SignalsPath, &signals)
	var doc explain.Document
	read("/explain?pod=web-1", &doc)
	if len(doc.Replicas) != 2 || len(deciders(doc.Decisions)) != 2 {
		t.Errorf("explanation: %+v", doc)
	}
	try := th.request(http.MethodPost, at+explain.TryPath, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}}")
	try.Header.Set("Content-Type", "application/yaml")
	res, body := th.ask(try)
	if err := json.Unmarshal(body, &doc); res.StatusCode != http.StatusOK || err != nil || len(doc.Now) != 1 || doc.Now[0].Fit != 1 {
		t.Errorf("try: %s, %v\n%s", res.Status, err, body)
	}
	other := th.request(http.MethodGet, at+ui.OverviewPath, "")
	other.Host = "example.com"
	if res, _ := th.ask(other); res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another Host: %s", res.Status)
	}
	if res, body := th.ask(th.request(http.MethodGet, at+"/", "")); res.StatusCode != http.StatusOK || !strings.Contains(string(body), "<title>Outboard</title>") {
		t.Errorf("the page: %s\n%s", res.Status, body)
	}
}
