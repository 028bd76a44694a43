// Command hostile runs a caller that uses as much memory and time as possible against `outboard
// serve`, with its default limits and a cluster of 5,000 nodes and 30,000 pods. It prints how much
// memory the process used, how many goroutines stay, and how long the calls of an honest caller
// took, with and without the hostile one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/test/measure"
)

type options struct {
	outboard string
	phase    time.Duration
	large    bool
	only     string
	attack   string
	files    string
}

// most is how many MiB the process may use before it is ended.
const most = 3072

func main() {
	var o options
	flag.StringVar(&o.outboard, "outboard", "bin/outboard", "the binary")
	flag.DurationVar(&o.phase, "for", 20*time.Second, "how long the honest caller calls alone, and during each attack")
	flag.BoolVar(&o.large, "large", false, "with pods and nodes that are as large as Outboard keeps them")
	flag.StringVar(&o.only, "only", "", "only the attacks whose names contain the text")
	flag.StringVar(&o.attack, "attack", "", "attack this address and this admin address, separated by a comma, and nothing else (what the command starts itself)")
	flag.StringVar(&o.files, "files", "", "the directory with the certificates, with -attack")
	flag.Parse()
	measure.Main("hostile", func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	if o.attack != "" {
		address, admin, _ := strings.Cut(o.attack, ",")
		c, err := newCaller(o.files, hostileName)
		if err != nil {
			return err
		}
		return attackWith(target{address, admin, c}, o.only)
	}
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeCertificates(dir); err != nil {
		return err
	}
	honest, err := newCaller(dir, honestName)
	if err != nil {
		return err
	}
	podText, nodeText := 0, 0
	if o.large {
		podText, nodeText = largePod, largeNode
	}
	api, err := serveCluster(podText, nodeText)
	if err != nil {
		return err
	}
	defer api.Close()
	p, err := start(ctx, o, dir, "http://"+api.Addr().String())
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.ready(); err != nil {
		return err
	}
	fmt.Printf("%d MiB when ready\n", p.memory("VmRSS"))
	ended := p.watch()
	chosen, err := trials.Matching(attacks, o.only, func(a attack) string { return a.name })
	if err != nil {
		return err
	}
	if len(chosen) > 1 {
		chosen = append(chosen, attack{name: allTogether})
	}
	table := trials.NewTable(os.Stdout, "attack", "names", "calls alone", "during it", "failed",
		"p50 alone", "during it", "p99 alone", "during it", "most memory", "goroutines after")
	failed := 0
	for _, a := range chosen {
		fmt.Fprintln(os.Stderr, a.name)
		r, err := o.measure(ctx, p, honest, a, dir)
		if err != nil {
			return err
		}
		for i, n := range sizes {
			alone, during := &r.alone[i], &r.during[i]
			failed += alone.failed + during.failed
			table.Row(a.name, n, len(alone.took), len(during.took), alone.failed+during.failed,
				alone.quantile(0.5), during.quantile(0.5), alone.quantile(0.99), during.quantile(0.99),
				fmt.Sprintf("%d MiB", r.memory), r.goroutines)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 || ended() != "" {
		return fmt.Errorf("%d honest calls failed%s", failed, ended())
	}
	return nil
}

// allTogether is the name of all attacks together.
const allTogether = "all of them"

// result is what one attack did to the calls of the honest caller.
type result struct {
	alone, during [len(sizes)]calls
	memory        int // MiB at most, during the attack
	goroutines    int // some time after it
}

// measure has the honest caller call alone, and during the attack.
func (o *options) measure(ctx context.Context, p *process, honest *caller, a attack, dir string) (r result, err error) {
	name := a.name
	if name == allTogether {
		name = o.only
	}
	callFor(p, honest, o.phase, &r.alone)
	p.forgetMost()
	stop, err := startAttack(ctx, name, p.address+","+p.admin, dir)
	if err != nil {
		return r, err
	}
	time.Sleep(time.Second) // until they are many
	callFor(p, honest, o.phase, &r.during)
	stop()
	r.memory = p.memory("VmHWM")
	time.Sleep(3 * time.Second)
	r.goroutines, err = p.goroutines()
	return r, err
}

// sizes are the numbers of nodes in honest calls.
var sizes = [...]int{500, 5000}

// startAttack starts the hostile caller in its own process, which runs only on processors that are
// idle, as it would run on another machine. stop ends it.
func startAttack(ctx context.Context, only, target, dir string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	attacker := exec.CommandContext(ctx, "chrt", "--idle", "0", self, "--attack", target, "--only", only, "--files", dir)
	attacker.Stderr = os.Stderr
	return func() {
		_ = attacker.Process.Kill()
		_ = attacker.Wait() // it was killed
	}, attacker.Start()
}

// A process is a running outboard serve.
type process struct {
	command *exec.Cmd
	address string
	admin   string
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func start(ctx context.Context, o options, dir, api string) (*process, error) {
	serving, err := freeAddress()
	admin, err2 := freeAddress()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "outboard.yaml")
	err = errors.Join(os.WriteFile(kubeconfig, fmt.Appendf(nil, `
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, api), 0o600), os.WriteFile(config, fmt.Appendf(nil, `
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving:
  address: %[1]q
  tls: {certFile: %[4]s/server.crt, keyFile: %[4]s/server.key, clientCAFile: %[4]s/ca.crt, allowedClients: [kube-scheduler, hostile]}
admin: {address: %[2]q, pprof: true}
clientConnection: {kubeconfig: %[3]q}
log: {level: Error}
profiles:
- policies: [{type: ImageLocality}, {type: PodLimit, config: {max: 100, selector: {matchLabels: {app: web}}}}]
`, serving, admin, kubeconfig, dir), 0o600))
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.CommandContext(ctx, o.outboard, "serve", "--config", config), address: serving, admin: "http://" + admin}
	p.command.Stderr = os.Stderr
	p.command.Env = append(os.Environ(), "GOMEMLIMIT=921MiB", "GOGC=50") // as in deploy/
	return p, p.command.Start()
}

func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // it was killed
}

func (p *process) ready() error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		response, err := http.Get(p.admin + "/readyz")
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	return errors.New("outboard is not ready after two minutes")
}

// memory returns a field of the process's status in MiB; 0 when it has ended.
func (p *process) memory(field string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return kib / 1024
		}
	}
	return 0
}

// goroutines returns how many goroutines the process has.
func (p *process) goroutines() (n int, err error) {
	response, err := http.Get(p.admin + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = fmt.Fscanf(response.Body, "goroutine profile: total %d", &n)
	return n, err
}

func (p *process) alive() bool { return p.memory("VmRSS") > 0 }

// forgetMost makes VmHWM begin again.
func (p *process) forgetMost() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.command.Process.Pid), []byte("5"), 0) // without it, VmHWM is that of all attacks
}

// watch ends the process when it uses too much memory, so that the machine stays usable. ended
// reports whether it did.
func (p *process) watch() (ended func() string) {
	began, after := time.Now(), make(chan time.Duration, 1)
	go func() {
		for p.alive() {
			if p.memory("VmHWM") > most {
				_ = p.command.Process.Kill()
				_, _ = p.command.Process.Wait() // it was killed
				after <- time.Since(began)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() string {
		select {
		case d := <-after:
			return fmt.Sprintf(" (ended after %s)", d.Round(100*time.Millisecond))
		default:
			return ""
		}
	}
}

// calls are how long calls took, and how many of them failed.
type calls struct {
	took   []time.Duration
	failed int
}

// callFor calls as kube-scheduler does, one call after the other, with each size in turn.
func callFor(p *process, by *caller, d time.Duration, results *[len(sizes)]calls) {
	client := by.client(5 * time.Second)
	defer client.CloseIdleConnections()
	for until := time.Now().Add(d); time.Now().Before(until) && p.alive(); {
		for i, n := range sizes {
			c := &results[i]
			body := honest(len(c.took), n)
			began := time.Now()
			answer, err := post(client, p.address, "filter", body)
			c.took = append(c.took, time.Since(began))
			if err != nil || !strings.Contains(answer, `"Error":""`) {
				if c.failed++; c.failed == 1 {
					fmt.Printf("the first call that failed: %v, %.300q\n", err, answer)
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func (c *calls) quantile(q float64) time.Duration {
	if len(c.took) == 0 {
		return 0
	}
	slices.Sort(c.took)
	return trials.Quantile(c.took, q).Round(10 * time.Microsecond)
}
