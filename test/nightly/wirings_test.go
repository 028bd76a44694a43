package nightly

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring/doctor"
	"outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
)

// wiring is a configuration of kube-scheduler beside one of Outboard. Both are a correct one with changes: pairs of a text and what
// replaces it. In the texts, URL is Outboard's address, HOST the same without the scheme, and ca, client and key are files.
type wiring struct {
	name     string
	outboard []string // changes of the configuration of Outboard
	changes  []string // changes of the configuration of kube-scheduler
	images   bool     // begin with the configurations for all pods, not with those for GPUs
	pod      string   // the resource that the pod requests, if not aliyun.com/gpu-mem of a GPU
	// works says that every call arrives that the configuration of kube-scheduler asks for, and for a GPU filter and bind.
	works bool
	// besides are findings of severity ERROR although every call arrives: about what happens at other times.
	besides []string
}

const schedulerHeader = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
leaderElection: {leaderElect: false}
profiles:
- schedulerName: NAME
`

const tlsOfScheduler = "  enableHTTPS: true\n  tlsConfig:\n    caFile: ca\n    certFile: client\n    keyFile: key\n"

const bothResources = "  managedResources:\n  - name: aliyun.com/gpu-mem\n  - name: aliyun.com/gpu-count\n"

const onlyServerTLS = "serving:\n  tls: {certFile: x, keyFile: x}\n"

const splitPath = "- path: /my_scheduler_extension/my_new_priorities/image_score\n  verb: Prioritize\n"

const gpuWiring = schedulerHeader + `extenders:
- urlPrefix: URL/gpu
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  bindVerb: bind
  preemptVerb: preempt
  nodeCacheCapable: true
  httpTimeout: 3s
` + bothResources + tlsOfScheduler

const gpuOutboard = theater.OutboardHeader + theater.TLSOfOutboard + `profiles:
- path: /gpu
  managedResources: [{name: aliyun.com/gpu-mem}, {name: aliyun.com/gpu-count}]
  policies: [{type: GPUMemory}]
`

const imageWiring = schedulerHeader + `extenders:
- urlPrefix: URL/images
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  nodeCacheCapable: true
  ignorable: true
  httpTimeout: 1s
` + tlsOfScheduler

const imageOutboard = theater.OutboardHeader + theater.TLSOfOutboard + `profiles:
- path: /images
  policies: [{type: ImageLocality}]
`

// plain makes Outboard serve plain HTTP, and kube-scheduler call it so.
var plain = struct{ outboard, scheduler []string }{[]string{theater.TLSOfOutboard, "serving: {insecure: true}\n"}, []string{tlsOfScheduler, ""}}

func changed(lists ...[]string) []string { return slices.Concat(lists...) }

var wirings = []wiring{
	// GPUs, over mutual TLS.
	{name: "correct", works: true},
	{name: "localhost", changes: []string{"URL", "https://localhost:PORT"}, works: true},
	{name: "server name", changes: []string{"    caFile", "    serverName: localhost\n    caFile"}, works: true},
	{name: "another server name", changes: []string{"    caFile", "    serverName: outboard.example\n    caFile"}},
	{name: "CA as data", changes: []string{"caFile: ca", "caData: CADATA"}, works: true},
	{name: "certificate as data", changes: []string{"certFile: client", "certData: CLIENTDATA", "keyFile: key", "keyData: KEYDATA"}, works: true},
	{name: "slash at the end", changes: []string{"/gpu\n", "/gpu/\n"}, works: true},
	{name: "in quotes", changes: []string{"urlPrefix: URL/gpu", `urlPrefix: "URL/gpu"`, "filterVerb: filter", "filterVerb: 'filter'"}, works: true},
	{name: "yes", changes: []string{"nodeCacheCapable: true", "nodeCacheCapable: yes"}, works: true},
	{name: "no prioritize", changes: []string{"  prioritizeVerb: prioritize\n  weight: 1\n", ""}, works: true},
	{name: "no preempt", changes: []string{"  preemptVerb: preempt\n", ""}, works: true},
	{name: "large weight", changes: []string{"weight: 1", "weight: 100"}, works: true},
	{name: "long timeout", changes: []string{"3s", "30s"}, works: true},
	{name: "resources ignored by kube-scheduler", works: true,
		outboard: []string{"gpu-mem}", "gpu-mem, ignoredByScheduler: true}", "gpu-count}", "gpu-count, ignoredByScheduler: true}"},
		changes:  []string{"gpu-mem\n", "gpu-mem\n    ignoredByScheduler: true\n", "gpu-count\n", "gpu-count\n    ignoredByScheduler: true\n"}},
	{name: "scheduler names with this one", outboard: []string{"- path: /gpu\n", "- path: /gpu\n  schedulerNames: [default-scheduler, NAME]\n"}, works: true},
	{name: "path is /", outboard: []string{"path: /gpu", "path: /"}, changes: []string{"URL/gpu", "URL"}, works: true},
	{name: "foreign extender without a path", changes: []string{"extenders:\n", "extenders:\n" + othersExtender("FOREIGN")}, works: true},
	{name: "foreign extender with a path", changes: []string{"extenders:\n", "extenders:\n" + othersExtender("FOREIGN/scheduler")}, works: true},
	{name: "foreign extender without TLS on localhost", changes: []string{"extenders:\n", "extenders:\n" + othersExtender("http://localhost:FOREIGNPORT/api")}, works: true},
	{name: "anchor", changes: []string{"tlsConfig:", "tlsConfig: &tls", "    keyFile: key\n", "    keyFile: key\n- " + strings.TrimPrefix(othersExtender("FOREIGN"), "- ") + "  tlsConfig: *tls\n"}, works: true},
	{name: "https without enableHTTPS, with a CA", changes: []string{"  enableHTTPS: true\n", ""}, works: true},
	{name: "query in a verb", changes: []string{"filterVerb: filter", "filterVerb: filter?x=1"}, works: true},
	{name: "foreign extender with a query", changes: []string{"extenders:\n", "extenders:\n" + othersExtender("FOREIGN/?x=1")}, works: true},
	{name: "foreign extender twice", changes: []string{"extenders:\n", "extenders:\n" + othersExtender("FOREIGN") + othersExtender("FOREIGN")}, works: true},
	{name: "insecure", changes: []string{"caFile: ca", "insecure: true"}, works: true, besides: []string{"UnverifiedServer"}},
	{name: "no CA", changes: []string{"    caFile: ca\n", ""}, works: true, besides: []string{"UnverifiedServer"}},

	{name: "http to TLS", changes: []string{"URL", "http://HOST", tlsOfScheduler, ""}},
	{name: "http to TLS with enableHTTPS", changes: []string{"URL", "http://HOST"}},
	{name: "another path", changes: []string{"URL/gpu", "URL/gpushare-scheduler"}},
	{name: "no path", changes: []string{"URL/gpu", "URL"}},
	{name: "path with the verb", changes: []string{"URL/gpu", "URL/gpu/filter"}},
	{name: "another port", changes: []string{"URL", "https://127.0.0.1:1"}},
	{name: "filter is predicates", changes: []string{"filterVerb: filter", "filterVerb: predicates"}},
	{name: "filter is /filter", changes: []string{"filterVerb: filter", "filterVerb: /filter"}},
	{name: "query", changes: []string{"URL/gpu", "URL/gpu?x=1"}},
	{name: "prioritize is priorities", changes: []string{"prioritizeVerb: prioritize", "prioritizeVerb: priorities"}},
	{name: "bind is binding", changes: []string{"bindVerb: bind", "bindVerb: binding"}},
	{name: "no bind", changes: []string{"  bindVerb: bind\n", ""}},
	{name: "no filter", changes: []string{"  filterVerb: filter\n", ""}},
	{name: "no verb", changes: []string{"  filterVerb: filter\n  prioritizeVerb: prioritize\n  weight: 1\n  bindVerb: bind\n  preemptVerb: preempt\n", ""}},
	{name: "key of another certificate", changes: []string{"keyFile: key", "keyFile: OTHER.key"}},
	{name: "certificate without key", changes: []string{"    keyFile: key\n", ""}},
	{name: "no client certificate", changes: []string{"    certFile: client\n    keyFile: key\n", ""}},
	{name: "client of another name", changes: []string{"certFile: client", "certFile: OTHER.crt", "keyFile: key", "keyFile: OTHER.key"}},
	{name: "client of a stranger", changes: []string{"certFile: client", "certFile: STRANGE.crt", "keyFile: key", "keyFile: STRANGE.key"}},
	{name: "client certificate has ended", changes: []string{"certFile: client", "certFile: ENDED.crt", "keyFile: key", "keyFile: ENDED.key"}},
	{name: "CA of a stranger", changes: []string{"caFile: ca", "caFile: STRANGER.crt"}},
	{name: "scheduler names without this one", outboard: []string{"- path: /gpu\n", "- path: /gpu\n  schedulerNames: [outboard-scheduler]\n"}},
	{name: "only one resource", changes: []string{"  - name: aliyun.com/gpu-count\n", ""}, pod: "aliyun.com/gpu-count"},
	{name: "no resources", changes: []string{bothResources, ""}, pod: "cpu"},
	{name: "another resource", changes: []string{bothResources, "  managedResources: [{name: example.com/gpu}]\n"}},

	// GPUs, over plain HTTP.
	{name: "plain", outboard: plain.outboard, changes: plain.scheduler, works: true},
	{name: "plain localhost", outboard: plain.outboard, changes: changed(plain.scheduler, []string{"URL", "http://localhost:PORT"}), works: true},
	{name: "plain, enableHTTPS is false", outboard: plain.outboard, changes: []string{tlsOfScheduler, "  enableHTTPS: false\n"}, works: true},
	{name: "https to plain", outboard: plain.outboard, changes: []string{"URL", "https://HOST"}},
	{name: "plain, another path", outboard: plain.outboard, changes: changed(plain.scheduler, []string{"URL/gpu", "URL/gpushare-scheduler"})},
	{name: "plain, filter is /predicates", outboard: plain.outboard, changes: changed(plain.scheduler, []string{"filterVerb: filter", "filterVerb: predicates/gpu"})},
	{name: "plain, another host", outboard: plain.outboard, changes: changed(plain.scheduler, []string{"URL", "http://outboard.invalid:PORT"})},

	// All pods, which fail silently, because the extender is ignorable.
	{name: "images", images: true, works: true},
	{name: "images, strict", images: true, changes: []string{"ignorable: true", "ignorable: false"}, works: true},
	{name: "images, only filter", images: true, changes: []string{"  prioritizeVerb: prioritize\n  weight: 1\n", ""}, works: true},
	{name: "images, only prioritize", images: true, changes: []string{"  filterVerb: filter\n", ""}, works: true},
	{name: "images, server TLS only", images: true, outboard: []string{theater.TLSOfOutboard, onlyServerTLS}, works: true},
	{name: "images, TLS without enableHTTPS and CA", images: true, outboard: []string{theater.TLSOfOutboard, onlyServerTLS}, changes: []string{tlsOfScheduler, ""}},
	{name: "images, whole nodes", images: true, outboard: []string{"serving:", "clientConnection: {enabled: false}\nserving:"}, changes: []string{"  filterVerb: filter\n", "", "nodeCacheCapable: true", "nodeCacheCapable: false"}, works: true},
	{name: "images, names without a cluster", images: true, outboard: []string{"serving:", "clientConnection: {enabled: false}\nserving:"}},
	{name: "images, split path", images: true, outboard: []string{"- path: /images\n", splitPath}, works: true,
		changes: []string{"URL/images", "URL/my_scheduler_extension", "  filterVerb: filter\n", "", "prioritizeVerb: prioritize", "prioritizeVerb: my_new_priorities/image_score"}},
	{name: "images, split path, plain on localhost", images: true, outboard: changed(plain.outboard, []string{"- path: /images\n", splitPath}), works: true,
		changes: changed(plain.scheduler, []string{"URL/images", "http://localhost:PORT/my_scheduler_extension", "  filterVerb: filter\n", "", "prioritizeVerb: prioritize", "prioritizeVerb: my_new_priorities/image_score"})},
	{name: "images, split at another place", images: true, outboard: []string{"- path: /images\n", splitPath}, works: true,
		changes: []string{"URL/images", "URL", "  filterVerb: filter\n", "", "prioritizeVerb: prioritize", "prioritizeVerb: my_scheduler_extension/my_new_priorities/image_score"}},
	{name: "images, split path with a typo", images: true, outboard: []string{"- path: /images\n", splitPath},
		changes: []string{"URL/images", "URL/my_scheduler_extension", "  filterVerb: filter\n", "", "prioritizeVerb: prioritize", "prioritizeVerb: my_new_priorities/image-score"}},
	{name: "images, http to TLS", images: true, changes: []string{"URL", "http://HOST", tlsOfScheduler, ""}},
	{name: "images, another path", images: true, changes: []string{"URL/images", "URL/image"}},
	{name: "images, no path", images: true, changes: []string{"URL/images", "URL"}},
	{name: "images, key of another certificate", images: true, changes: []string{"keyFile: key", "keyFile: OTHER.key"}},
	{name: "images, CA of a stranger", images: true, changes: []string{"caFile: ca", "caFile: STRANGER.crt"}},
	{name: "images, priorities only", images: true, changes: []string{"prioritizeVerb: prioritize", "prioritizeVerb: priorities", "  filterVerb: filter\n", ""}},
	{name: "images, all in JSON-like YAML", images: true, works: true,
		changes: []string{tlsOfScheduler, "  enableHTTPS: true\n  tlsConfig: {\"caFile\": \"ca\", \"certFile\": \"client\", \"keyFile\": \"key\"}\n"}},
}

// othersExtender is an extender of others, which passes all nodes.
func othersExtender(url string) string {
	return "- urlPrefix: " + url + "\n  filterVerb: filter\n  nodeCacheCapable: true\n  httpTimeout: 3s\n  ignorable: true\n"
}

// TestWirings compares what doctor says with what happens: with the real kube-scheduler and Outboard, a pod gets a node and every
// call arrives, or not. doctor must have an error exactly if not.
func TestWirings(t *testing.T) {
	th := theater.Open(t)
	// The pods need GPUs as only the nodes with small scores have them.
	small := theater.GPUs("small", 32, 8)
	small.Images = map[string]int64{theater.Nginx: 1 << 20}
	large := []controlplane.NodeSpec{theater.GPUs("large-1", 64, 16), theater.GPUs("large-2", 64, 16)}
	for i := range large {
		large[i].CPU, large[i].Memory = "8", "16Gi"
	}
	th.Nodes(small, large[0], large[1])
	files := strangers(th)
	other, _ := impostor(t, httptest.NewServer)
	replace := strings.NewReplacer("FOREIGNPORT", other[strings.LastIndexByte(other, ':')+1:], "FOREIGN", other,
		"OTHER.", files+"/other.", "STRANGE.", files+"/strange.", "STRANGER.", files+"/stranger.", "ENDED.", files+"/ended.")
	for i, w := range wirings {
		t.Run(w.name, func(t *testing.T) {
			tryWiring(th.Parallel(t), w, fmt.Sprintf("wiring-%d", i), replace)
		})
	}
}

// strangers writes certificates that do not belong to Outboard and its kube-scheduler.
func strangers(th *theater.Theater) (dir string) {
	th.T.Helper()
	dir = th.T.TempDir()
	stranger, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		th.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stranger.crt"), stranger.Pair().Cert, 0o600); err != nil {
		th.T.Fatal(err)
	}
	now := time.Now()
	for name, issue := range map[string]func() (certs.Pair, error){
		"other": func() (certs.Pair, error) {
			return th.Authority().Issue(certs.Request{CommonName: "other", Client: true})
		},
		"strange": func() (certs.Pair, error) {
			return stranger.Issue(certs.Request{CommonName: "kube-scheduler", Client: true})
		},
		"ended": func() (certs.Pair, error) {
			return th.Authority().Issue(certs.Request{CommonName: "kube-scheduler", Client: true, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-time.Minute)})
		},
	} {
		pair, err := issue()
		if err == nil {
			err = pair.WriteFiles(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		}
		if err != nil {
			th.T.Fatal(err)
		}
	}
	return dir
}

// with returns the text with the changes, each of which must be possible.
func with(t *testing.T, text string, changes []string) string {
	t.Helper()
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("there is no %q in\n%s", changes[i], text)
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return text
}

func tryWiring(th *theater.Theater, w wiring, name string, replace *strings.Replacer) {
	th.T.Helper()
	ours, pod := gpuOutboard, theater.GPUPod(name, 12)
	if w.images {
		ours, pod = imageOutboard, controlplane.PodSpec{Name: name, Image: "nginx"}
	}
	switch w.pod {
	case "":
	case "cpu":
		pod = controlplane.PodSpec{Name: name}
	default:
		pod = controlplane.PodSpec{Name: name, Resources: map[string]string{w.pod: "1"}}
	}
	pod.SchedulerName = name
	o := th.Outboard(strings.ReplaceAll(with(th.T, ours, w.outboard), "NAME", name))
	defer o.Kill()
	scheduler := texts(th, o, w, name, replace)
	findings := slices.DeleteFunc(findingsOf(th, o, scheduler), func(f doctor.Finding) bool {
		return f.Severity != doctor.Error || slices.Contains(w.besides, f.Code)
	})
	running, err := th.StartScheduler(th.Ctx, controlplane.SchedulerOptions{Config: scheduler})
	if err != nil {
		th.T.Fatal(err)
	}
	defer running.Kill()
	place := th.Stage.Place
	if w.works {
		place = th.Place
	}
	placed, err := place(th.Ctx, pod.Pod())
	if err != nil {
		th.T.Fatal(err)
	}
	if w.works {
		// The metric of a bind call changes after the pod is bound.
		th.Eventually("all calls have arrived", func() bool { return placed.Waiting != "" || len(missing(th, o, w, scheduler)) == 0 })
	}
	missing := missing(th, o, w, scheduler)
	works := placed.Waiting == "" && len(missing) == 0
	saw := fmt.Sprintf("the pod waits because of %q; calls without success: %v", placed.Waiting, missing)
	if works != w.works {
		th.T.Errorf("it works: %t, and the table says %t: %s\n%s", works, w.works, saw, scheduler)
	}
	if (len(findings) > 0) == works {
		th.T.Errorf("it works: %t, and doctor has %d errors: %s\n%s\n%v", works, len(findings), saw, scheduler, findings)
	}
}

// texts returns the configuration of kube-scheduler.
func texts(th *theater.Theater, o *stage.Outboard, w wiring, name string, replace *strings.Replacer) string {
	th.T.Helper()
	theirs := gpuWiring
	if w.images {
		theirs = imageWiring
	}
	scheduler := replace.Replace(with(th.T, theirs, w.changes))
	host := strings.TrimPrefix(strings.TrimPrefix(o.URL, "https://"), "http://")
	return strings.NewReplacer("NAME", name, "URL/", o.URL+"/", "URL\n", o.URL+"\n", "HOST", host, "PORT", host[strings.LastIndexByte(host, ':')+1:],
		"File: ca\n", "File: "+o.CAFile+"\n", "File: client\n", "File: "+o.CertFile+"\n", "File: key\n", "File: "+o.KeyFile+"\n",
		`"ca"`, `"`+o.CAFile+`"`, `"client"`, `"`+o.CertFile+`"`, `"key"`, `"`+o.KeyFile+`"`,
		"CADATA", data(th, o.CAFile), "CLIENTDATA", data(th, o.CertFile), "KEYDATA", data(th, o.KeyFile)).Replace(scheduler)
}

func data(th *theater.Theater, file string) string {
	th.T.Helper()
	if file == "" {
		return ""
	}
	data, err := os.ReadFile(file)
	if err != nil {
		th.T.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(data)
}

// findingsOf returns what doctor says about the configuration of a kube-scheduler that calls o.
func findingsOf(th *theater.Theater, o *stage.Outboard, scheduler string) []doctor.Finding {
	th.T.Helper()
	c, err := config.Load(o.ConfigFile, config.Types{Policies: standard.Types(), Signals: signals.Types()})
	if err != nil {
		th.T.Fatal(err)
	}
	_, c.Serving.Address, _ = strings.Cut(o.URL, "://") // in the file, the port is 0
	findings, _, err := doctor.Check(doctor.Input{
		File: "scheduler.yaml", Data: []byte(scheduler), Config: c, ConfigFile: o.ConfigFile, ReadFile: os.ReadFile, ReadConfigFile: os.ReadFile, Now: time.Now(),
	})
	if err != nil {
		th.T.Fatal(err)
	}
	return findings
}

// missing returns the verbs of which Outboard has answered no call: of those that the configuration of kube-scheduler names, and of
// those that a pod with a GPU needs. kube-scheduler calls preempt for other pods.
func missing(th *theater.Theater, o *stage.Outboard, w wiring, scheduler string) (verbs []string) {
	th.T.Helper()
	for _, verb := range []string{"filter", "prioritize", "bind"} {
		needed := strings.Contains(scheduler, "  "+verb+"Verb: ") || !w.images && verb != "prioritize"
		if needed && !answered(th, o, verb) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// answered reports whether Outboard has answered a call of the verb.
func answered(th *theater.Theater, o *stage.Outboard, verb string) bool {
	th.T.Helper()
	return slices.ContainsFunc(strings.Split(th.Get(o.Admin+"/metrics"), "\n"), func(line string) bool {
		return strings.HasPrefix(line, `outboard_request_duration_seconds_count{outcome="success"`) && strings.Contains(line, `verb="`+verb+`"`)
	})
}
