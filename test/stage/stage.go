// Package stage sets up Outboard as a user does: a real control plane, `outboard serve` as a
// separate process with the permissions of the manifests, and configurations that refer to one
// another. Tests and the demo use it.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/certs"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/test/controlplane"
)

// identity is the user Outboard runs as.
const identity = "outboard"

// Options configure a stage. The zero value is usable.
type Options struct {
	// Outboard is the binary. Default: what [Build] builds.
	Outboard string
	// ControlPlane is passed on.
	ControlPlane controlplane.Options
	// Pool gives the control planes, unless it is nil, and then ControlPlane must be the zero value.
	Pool *Pool
}

// Stage is a control plane with everything needed to run Outboard with it.
type Stage struct {
	*ground
	// Root is the directory of the checkout.
	Root string

	binary  string
	binDir  string // of the control planes' programs, unless pool is set; see controlplane.Options
	pool    *Pool
	mu      sync.Mutex
	stopped bool
	started int
	others  []*ground
}

// ground is a control plane on which Outboard is installed, but does not run.
type ground struct {
	*controlplane.ControlPlane
	// Client is an administrator's.
	Client kubernetes.Interface

	root       string
	kubeconfig string
	authority  *certs.Authority
	// checkpoint is the state at the beginning of each stage; nil without a Pool.
	checkpoint *controlplane.Checkpoint
}

// Set starts a control plane, or takes one from the Pool. Stop the stage.
func Set(ctx context.Context, o Options) (_ *Stage, err error) {
	s := &Stage{binary: o.Outboard, binDir: o.ControlPlane.BinDir, pool: o.Pool}
	if s.Root, err = moduleRoot(ctx); err != nil {
		return nil, err
	}
	if s.binary == "" {
		if s.binary, err = Build(ctx); err != nil {
			return nil, err
		}
	}
	if o.Pool != nil {
		s.ground, err = o.Pool.take(ctx, s.Root)
	} else {
		s.ground, err = newGround(ctx, s.Root, o.ControlPlane)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newGround starts a control plane and installs Outboard.
func newGround(ctx context.Context, root string, o controlplane.Options) (*ground, error) {
	g, err := startGround(ctx, root, o)
	if err != nil {
		return nil, err
	}
	if err := g.admit(ctx); err != nil {
		return nil, errors.Join(err, g.ControlPlane.Stop())
	}
	return g, nil
}

// startGround starts a control plane without Outboard.
func startGround(ctx context.Context, root string, o controlplane.Options) (*ground, error) {
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return &ground{ControlPlane: cp, Client: client, root: root}, nil
}

// Permissions are the manifests in deploy/ with the permissions of Outboard, whatever its policies.
func Permissions() []string {
	return []string{"outboard.yaml", "allocations.yaml", "unhealthy-gpus.yaml", "devices.yaml"}
}

// admit creates Outboard's identity, with all permissions that policies need.
func (g *ground) admit(ctx context.Context) (err error) {
	if g.authority, err = certs.NewAuthority(certs.AuthorityOptions{}); err != nil {
		return err
	}
	user, err := g.AddUser(identity)
	if err != nil {
		return err
	}
	g.kubeconfig = user.Kubeconfig
	err = g.defineLedgers(ctx)
	for _, manifest := range Permissions() {
		err = errors.Join(err, g.Grant(ctx, manifest, identity))
	}
	return err
}

// defineLedgers installs the Ledger CRD, and returns when the API server serves it.
func (g *ground) defineLedgers(ctx context.Context) error {
	manifest, err := os.ReadFile(filepath.Join(g.root, "deploy", "chart", "crds", "ledgers.yaml"))
	if err != nil {
		return err
	}
	definition, err := yaml.YAMLToJSON(manifest)
	if err != nil {
		return err
	}
	client := g.Client.Discovery().RESTClient()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if err := client.Post().AbsPath(path).Body(definition).SetHeader("Content-Type", "application/json").Do(ctx).Error(); err != nil {
		return fmt.Errorf("defining ledgers: %w", err)
	}
	for {
		err := client.Get().AbsPath("/apis", ledger.GroupVersion.String(), ledger.Resource.Resource).Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ledgers are not served: %w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Grant gives the user the roles of a manifest in deploy/.
func (g *ground) Grant(ctx context.Context, manifest, user string) error {
	data, err := os.ReadFile(filepath.Join(g.root, "deploy", manifest))
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: "stage-" + strings.TrimSuffix(manifest, ".yaml")}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		// A ClusterRole and a Role differ only in their kind and namespace.
		role := new(rbacv1.ClusterRole)
		if err := yaml.Unmarshal(doc, role); err != nil {
			continue
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}
		switch role.Kind {
		case "ClusterRole":
			_, err = g.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
			if err == nil {
				_, err = g.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
			}
		case "Role":
			_, err = g.Client.RbacV1().Roles(role.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: role.ObjectMeta, Rules: role.Rules}, metav1.CreateOptions{})
			if err == nil {
				_, err = g.Client.RbacV1().RoleBindings(role.Namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("granting %s %s: %w", role.Kind, role.Name, err)
		}
	}
	return nil
}

// Outboard is a running `outboard serve`.
type Outboard struct {
	*controlplane.Process
	// URL is the address of the service, without a path; Admin is its admin address as a URL.
	URL, Admin string
	// Files are the certificate files that kube-scheduler needs; "" without TLS.
	CAFile, CertFile, KeyFile string

	// ConfigFile is the file the service reads and watches.
	ConfigFile string

	stage  *Stage
	config map[string]any
	starts int
}

// StartOutboard starts `outboard serve` with the configuration, in which it replaces what depends
// on the environment: addresses, certificate files, the kubeconfig unless the configuration names
// one, and the log format. It returns when the service is ready.
func (s *Stage) StartOutboard(ctx context.Context, config string) (*Outboard, error) {
	address, err := s.HoldAddress()
	if err != nil {
		return nil, err
	}
	return s.StartOutboardAt(ctx, config, address)
}

// StartOutboardAt is StartOutboard with the address of the service.
func (s *Stage) StartOutboardAt(ctx context.Context, config, address string) (*Outboard, error) {
	s.mu.Lock()
	s.started++
	o := &Outboard{stage: s, ConfigFile: filepath.Join(s.Dir(), fmt.Sprintf("outboard-%d.yaml", s.started))}
	s.mu.Unlock()
	if err := yaml.Unmarshal([]byte(config), &o.config); err != nil {
		return nil, fmt.Errorf("outboard's configuration: %w", err)
	}
	serving := section(o.config, "serving")
	serving["address"] = address
	admin, err := s.HoldAddress()
	if err != nil {
		return nil, err
	}
	section(o.config, "admin")["address"] = admin
	section(o.config, "log")["format"] = "JSON"
	if connection := section(o.config, "clientConnection"); connection["kubeconfig"] == nil || connection["kubeconfig"] == "" {
		connection["kubeconfig"] = s.kubeconfig
	}
	if _, ok := serving["tls"]; ok {
		if err := o.issue(section(serving, "tls")); err != nil {
			return nil, err
		}
	}
	return o, o.Start(ctx)
}

func section(in map[string]any, name string) map[string]any {
	found, ok := in[name].(map[string]any)
	if !ok {
		found = map[string]any{}
		in[name] = found
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// issue writes the certificates of both sides, unless the configuration names existing files: then
// kube-scheduler's are ca.crt, client.crt and client.key in the same directory.
func (o *Outboard) issue(tls map[string]any) error {
	if cert, _ := tls["certFile"].(string); filepath.IsAbs(cert) && exists(cert) {
		dir := filepath.Dir(cert)
		o.CAFile, o.CertFile, o.KeyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
		return nil
	}
	dir, err := os.MkdirTemp(o.stage.Dir(), "tls-")
	if err != nil {
		return err
	}
	client := config.SchedulerClient
	if allowed, ok := tls["allowedClients"].([]any); ok && len(allowed) > 0 {
		client = fmt.Sprint(allowed[0])
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	o.CAFile, o.CertFile, o.KeyFile = file("ca.crt"), file("client.crt"), file("client.key")
	tls["certFile"], tls["keyFile"] = file("server.crt"), file("server.key")
	if _, ok := tls["clientCAFile"]; ok {
		tls["clientCAFile"] = o.CAFile
	}
	serverPair, err := o.stage.authority.Issue(certs.Request{CommonName: "outboard", Hosts: []string{"127.0.0.1", "localhost"}, Server: true})
	if err != nil {
		return err
	}
	clientPair, err := o.stage.authority.Issue(certs.Request{CommonName: client, Client: true})
	if err != nil {
		return err
	}
	return errors.Join(
		serverPair.WriteFiles(file("server.crt"), file("server.key")),
		clientPair.WriteFiles(o.CertFile, o.KeyFile),
		os.WriteFile(o.CAFile, o.stage.authority.Pair().Cert, 0o600),
	)
}

// Authority signs the certificates of kube-scheduler and Outboard.
func (s *Stage) Authority() *certs.Authority { return s.authority }

// Binary is the path of the command.
func (s *Stage) Binary() string { return s.binary }

// SetBinary changes the command for later starts.
func (s *Stage) SetBinary(path string) { s.binary = path }

// Start starts the service again after it has ended, at the same addresses.
func (o *Outboard) Start(ctx context.Context) error {
	text, err := yaml.Marshal(o.config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.ConfigFile, text, 0o600); err != nil {
		return err
	}
	o.starts++
	name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(o.ConfigFile), ".yaml"), o.starts)
	o.Process, err = o.stage.StartProcess(controlplane.Command{
		Name: name, Path: o.stage.binary, Args: []string{"serve", "--config", o.ConfigFile},
	})
	if err != nil {
		return err
	}
	scheme := "http"
	if o.CAFile != "" {
		scheme = "https"
	}
	o.URL, o.Admin = scheme+"://"+section(o.config, "serving")["address"].(string), "http://"+section(o.config, "admin")["address"].(string)
	return o.await(ctx)
}

// await returns when the service is ready.
func (o *Outboard) await(ctx context.Context) error {
	for {
		if o.ready(ctx) {
			return nil
		}
		select {
		case <-o.Done():
			return fmt.Errorf("outboard ended: %s", o.Log())
		case <-ctx.Done():
			o.dump()
			return fmt.Errorf("outboard is not ready: %w: %s", context.Cause(ctx), o.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (o *Outboard) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.Admin+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// dump ends a process that hangs, and makes it log its goroutines.
func (o *Outboard) dump() {
	if err := syscall.Kill(o.PID(), syscall.SIGQUIT); err != nil {
		return // it has ended by itself
	}
	select {
	case <-o.Done():
	case <-time.After(5 * time.Second):
	}
}

// moduleRoot returns the directory of the checkout.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "outboard.dev/outboard").Output()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build builds the binary into bin/ of the checkout. Concurrent builds are safe: each replaces the file
// atomically.
func Build(ctx context.Context) (string, error) {
	return build(ctx, "", "outboard")
}

// BuildScheduler builds kube-scheduler with the plugin into kubernetes/bin/.
func BuildScheduler(ctx context.Context) (string, error) {
	return build(ctx, "kubernetes", "kube-scheduler-outboard")
}

// build builds a program of the module in the folder as make does, so that nothing is compiled or linked twice.
func build(ctx context.Context, module, program string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "kubernetes", "build"), program)
	cmd.Dir = filepath.Join(root, module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return filepath.Join(cmd.Dir, "bin", program), nil
}
