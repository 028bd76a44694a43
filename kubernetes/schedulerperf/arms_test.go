package schedulerperf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// arm is one way to configure kube-scheduler.
type arm struct {
	name             string
	extender, plugin bool
	shortlist        int // of the plugin: its shortlist
}

// arms begin with what the others are compared with.
var arms = []arm{
	{name: "stock"},
	{name: "extender", extender: true},
	{name: "plugin", plugin: true},
	{name: "plugin-8", plugin: true, shortlist: 8},
}

// profile has policies that filter, score and count every pod.
var profile = map[string]any{"policies": []any{
	map[string]any{"type": "ImageLocality"},
	map[string]any{"type": "PodLimit", "config": map[string]any{"max": 1000, "selector": map[string]any{}}},
}}

// configure adds the arm to a KubeSchedulerConfiguration.
func (a arm) configure(scheduler map[string]any, address string) {
	if a.extender {
		scheduler["extenders"] = []any{map[string]any{
			"urlPrefix": "http://" + address, "filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind", "weight": 1,
			"nodeCacheCapable": true, "httpTimeout": "30s",
		}}
	}
	if !a.plugin {
		return
	}
	profiles, _ := scheduler["profiles"].([]any)
	if len(profiles) == 0 {
		profiles = []any{map[string]any{}}
	}
	for _, p := range profiles {
		p := p.(map[string]any)
		enabled := map[string]any{"enabled": []any{map[string]any{"name": "Outboard"}}}
		plugins, _ := p["plugins"].(map[string]any)
		if plugins == nil {
			plugins = map[string]any{}
		}
		plugins["multiPoint"] = enabled
		own := maps.Clone(profile)
		args := map[string]any{
			"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration", "admin": map[string]any{"address": "127.0.0.1:0"}, "profiles": []any{own},
		}
		if a.shortlist > 0 {
			plugins["postFilter"], own["shortlist"] = enabled, a.shortlist
		}
		others, _ := p["pluginConfig"].([]any)
		p["plugins"], p["pluginConfig"] = plugins, append(others, map[string]any{"name": "Outboard", "args": args})
	}
	scheduler["profiles"] = profiles
}

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// An outboardProcess is a running `outboard serve`.
type outboardProcess struct {
	command *exec.Cmd
	log     *os.File
}

// startOutboard starts the program with the addresses for calls and for administration, and returns when it is ready.
func startOutboard(program, dir string, address [2]string, cluster *rest.Config) (*outboardProcess, error) {
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "outboard.dev/v1alpha1", "kind": "OutboardConfiguration",
		"serving":          map[string]any{"address": address[0], "insecure": true, "shutdownDelay": "0s"},
		"admin":            map[string]any{"address": address[1]},
		"clientConnection": map[string]any{"kubeconfig": filepath.Join(dir, "kubeconfig"), "qps": 5000}, // as kube-scheduler's there
		"profiles":         []any{profile},
	})
	if err != nil {
		return nil, err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{
		Server: cluster.Host, TLSServerName: cluster.ServerName, InsecureSkipTLSVerify: cluster.Insecure,
		CertificateAuthority: cluster.CAFile, CertificateAuthorityData: cluster.CAData,
	}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		Token: cluster.BearerToken, ClientCertificate: cluster.CertFile, ClientKey: cluster.KeyFile, ClientCertificateData: cluster.CertData, ClientKeyData: cluster.KeyData,
	}
	kubeconfig.Contexts["c"], kubeconfig.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "c"
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "kubeconfig")); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "outboard.yaml"), config, 0o600); err != nil {
		return nil, err
	}
	p := &outboardProcess{command: exec.Command(program, "serve", "--config", filepath.Join(dir, "outboard.yaml"))}
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var last []byte
	for ctx.Err() == nil {
		response, err := http.Get("http://" + address[1] + "/readyz")
		if err == nil {
			last, err = io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return p, nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, err = p.stop()
	log, _ := os.ReadFile(p.log.Name()) // the first error matters more
	return nil, errors.Join(fmt.Errorf("outboard is not ready after a minute: %s\n%s", last, log), err)
}

// stop ends the process, and returns its processor time. The error has its log if it has ended before, or with an error.
func (p *outboardProcess) stop() (time.Duration, error) {
	defer p.log.Close()
	err := p.command.Process.Signal(os.Interrupt)
	if waited := p.command.Wait(); err == nil {
		err = waited
	}
	if err != nil {
		log, _ := os.ReadFile(p.log.Name()) // the first error matters more
		err = fmt.Errorf("outboard serve: %w\n%s", err, log)
	}
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime(), err
}
