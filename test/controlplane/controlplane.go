package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/certs"
)

// Options say how to start a control plane. The zero value is a good choice.
type Options struct {
	// BinDir is the directory of the programs: etcd and kube-apiserver, and, for Kubectl,
	// kubectl. Default: the directory that KUBEBUILDER_ASSETS names, or kubernetes/bin of
	// the checkout that the working directory is in. If it has no kube-scheduler, as that
	// of envtest, StartScheduler takes that of the checkout.
	BinDir string

	// APIServerArgs are further arguments of kube-apiserver, such as
	// "--max-requests-inflight=10". A flag that takes one value overrides the
	// one set here. File names must be absolute.
	APIServerArgs []string

	// Controllers is whether a kube-controller-manager will run, so that pods have
	// service accounts, and nodes taints.
	Controllers bool
}

// ControlPlane is a running etcd and kube-apiserver, and the schedulers started
// with it. Its methods may be called concurrently.
type ControlPlane struct {
	dir      string
	binDir   string
	reaper   *reaper
	ca       *certs.Authority
	apiPort  *port
	apiArgs  []string
	admin    *User
	client   *http.Client // as admin, at the API server and the schedulers
	identity *User        // of kube-scheduler
	etcd     *Process
	// etcdClient calls etcd, whatever the host.
	etcdClient *http.Client

	mu         sync.Mutex
	stopped    bool
	apiserver  *Process
	processes  []*Process // all that were started
	ports      []*port
	schedulers int // number started, for their names
	users      int // number added, for their files

	stopOnce sync.Once
	stopErr  error
}

// Start starts etcd and kube-apiserver and returns when the API can be used:
// RBAC roles, the namespaces "default" and "kube-system" and the default
// priority classes are there. The context bounds the start only; each server is
// given three minutes at most. The error of a server that does not start contains
// the end of its log.
func Start(ctx context.Context, opts Options) (_ *ControlPlane, err error) {
	binDir, err := findBinaries(cmp.Or(opts.BinDir, os.Getenv("KUBEBUILDER_ASSETS")), "kubernetes", "etcd", "kube-apiserver")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	cp := &ControlPlane{binDir: binDir}
	cp.etcdClient = &http.Client{Transport: &http.Transport{DialContext: cp.dialEtcd}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("control plane: %w", err), cp.Stop())
		}
	}()
	cp.dir = filepath.Join(os.TempDir(), "outboard-controlplane-"+rand.Text())
	if cp.reaper, err = startReaper(cp.dir); err != nil {
		return nil, err
	}
	if err := cp.prepare(opts); err != nil {
		return nil, err
	}
	if err := cp.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := cp.startAPIServer(ctx); err != nil {
		return nil, err
	}
	return cp, nil
}

// prepare creates the keys, the users and the arguments of kube-apiserver.
func (cp *ControlPlane) prepare(opts Options) error {
	var err error
	if cp.ca, err = certs.NewAuthority(certs.AuthorityOptions{CommonName: "outboard-controlplane"}); err != nil {
		return err
	}
	if err := cp.ca.Pair().WriteFiles(cp.path("ca.crt"), cp.path("ca.key")); err != nil {
		return err
	}
	serving, err := cp.ca.Issue(certs.Request{CommonName: "localhost", Hosts: []string{loopback, "localhost", "10.0.0.1"}, Server: true})
	if err != nil {
		return err
	}
	if err := serving.WriteFiles(cp.path("server.crt"), cp.path("server.key")); err != nil {
		return err
	}
	if err := cp.prepareFrontProxy(); err != nil {
		return err
	}
	if cp.apiPort, err = cp.holdPort(); err != nil {
		return err
	}
	cp.apiArgs = cp.apiServerArgs(opts)
	if cp.admin, err = cp.AddUser("admin", "system:masters"); err != nil {
		return err
	}
	cp.admin.Config.QPS = -1 // no limit: tests create thousands of objects
	if cp.client, err = rest.HTTPClientFor(cp.admin.Config); err != nil {
		return err
	}
	cp.identity, err = cp.AddUser("system:kube-scheduler")
	return err
}

// frontProxy is who kube-apiserver says it is when it passes a request on to the server of
// an APIService.
const frontProxy = "front-proxy-client"

// prepareFrontProxy makes the keys for that. Their authority is one of its own: who has a
// certificate of it may say that it speaks for anybody.
func (cp *ControlPlane) prepareFrontProxy() error {
	ca, err := certs.NewAuthority(certs.AuthorityOptions{CommonName: "outboard-front-proxy"})
	if err != nil {
		return err
	}
	if err := ca.Pair().WriteFiles(cp.path("front-proxy-ca.crt"), cp.path("front-proxy-ca.key")); err != nil {
		return err
	}
	client, err := ca.Issue(certs.Request{CommonName: frontProxy, Client: true})
	if err != nil {
		return err
	}
	return client.WriteFiles(cp.path("front-proxy.crt"), cp.path("front-proxy.key"))
}

// HoldAddress returns an address of the loopback interface that no other process is given until the control plane is stopped. A server that
// names it can listen at it, also again after a restart.
func (cp *ControlPlane) HoldAddress() (string, error) {
	p, err := cp.holdPort()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", loopback, p.number), nil
}

// path returns the absolute name of a file in the work directory.
func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.dir, name) }

// holdPort holds a port until the control plane is stopped.
func (cp *ControlPlane) holdPort() (*port, error) {
	p, err := holdPort()
	if err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.ports = append(cp.ports, p)
	return p, nil
}

// etcdSocket is relative to the work directory, because the whole name of a
// socket is limited to about a hundred bytes.
const etcdSocket = "etcd.sock"

func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	const unused = "http://127.0.0.1:1" // etcd insists on an address to advertise
	var err error
	cp.etcd, err = cp.start(Command{
		Name: "etcd",
		Path: filepath.Join(cp.binDir, "etcd"),
		Dir:  cp.dir,
		Args: []string{
			"--data-dir=" + cp.path("etcd"),
			"--listen-client-urls=unix://" + etcdSocket,
			"--advertise-client-urls=" + unused,
			"--listen-peer-urls=unix://etcd-peer.sock",
			"--initial-advertise-peer-urls=" + unused,
			"--initial-cluster=default=" + unused,
			"--log-level=warn",
			// The data need not survive the machine.
			"--unsafe-no-fsync",
			// A new member elects itself after the timeout. Shorter intervals take more processor time while etcd has nothing to do.
			"--heartbeat-interval=50",
			"--election-timeout=250",
		},
	})
	if err != nil {
		return err
	}
	// The API server waits for the rest, but when it cannot connect it rests for a second.
	return cp.etcd.await(ctx, func(context.Context) error {
		_, err := os.Stat(cp.path(etcdSocket))
		return err
	})
}

// errNotFound is the error of a response with 404.
var errNotFound = errors.New("404 Not Found")

// getOK succeeds if GET url is answered with 200; the error has the answer.
func getOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	_, err = do(client, req)
	return err
}

func (cp *ControlPlane) apiServerArgs(opts Options) []string {
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback, // or a host without a route to anywhere is refused
		"--secure-port=" + strconv.Itoa(cp.apiPort.number),
		"--tls-cert-file=" + cp.path("server.crt"),
		"--tls-private-key-file=" + cp.path("server.key"),
		"--client-ca-file=" + cp.path("ca.crt"),
		"--requestheader-client-ca-file=" + cp.path("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + cp.path("front-proxy.crt"),
		"--proxy-client-key-file=" + cp.path("front-proxy.key"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=" + cp.apiPort.url(),
		"--service-account-key-file=" + cp.path("server.key"),
		"--service-account-signing-key-file=" + cp.path("server.key"),
		"--allow-privileged",
		"--endpoint-reconciler-type=none", // nobody needs the endpoints
	}
	if !opts.Controllers {
		// Nothing creates service accounts, and nothing takes the not-ready taint
		// off a node.
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	return append(args, opts.APIServerArgs...)
}

// startAPIServer starts kube-apiserver and waits until it can be used.
func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	p, err := cp.start(Command{
		Name: "kube-apiserver",
		Path: filepath.Join(cp.binDir, "kube-apiserver"),
		Args: cp.apiArgs,
		Dir:  cp.dir,
	})
	if err != nil {
		return err
	}
	cp.mu.Lock()
	cp.apiserver = p
	cp.mu.Unlock()
	return p.await(ctx, func(ctx context.Context) error {
		// What comes after /readyz follows shortly after it says that it is ready.
		for _, path := range []string{
			"/readyz",
			"/api/v1/namespaces/default",
			"/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
		} {
			if err := getOK(ctx, cp.client, cp.apiPort.url()+path); err != nil {
				return err
			}
		}
		return nil
	}, cp.etcd)
}

// Stop ends all servers at once and removes the temporary directory. It can be
// called more than once, and returns the same each time.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() { cp.stopErr = cp.stop() })
	return cp.stopErr
}

func (cp *ControlPlane) stop() error {
	cp.mu.Lock()
	cp.stopped = true
	processes, ports := cp.processes, cp.ports
	cp.mu.Unlock()
	for _, p := range processes {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range processes {
		<-p.done
	}
	for _, p := range ports {
		p.release()
	}
	cp.etcdClient.CloseIdleConnections()
	if cp.client != nil {
		utilnet.CloseIdleConnectionsFor(cp.client.Transport)
	}
	var err error
	if cp.reaper != nil {
		err = cp.reaper.finish()
	}
	return err
}

// AdminConfig returns a client configuration for a member of system:masters,
// who may do everything, without a limit on the rate of requests. The caller
// may change it.
func (cp *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(cp.admin.Config) }

// Kubeconfig returns the name of the kubeconfig file for the same user as AdminConfig.
func (cp *ControlPlane) Kubeconfig() string { return cp.admin.Kubeconfig }

// KubectlPath returns the name of the kubectl program.
func (cp *ControlPlane) KubectlPath() string { return filepath.Join(cp.binDir, "kubectl") }

// Kubectl returns the command "kubectl args..." for the same user as AdminConfig,
// ready to run. It is killed when ctx ends.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cp.KubectlPath(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig())
	return cmd
}

// Dir returns the absolute name of the work directory.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Etcd returns the etcd process.
func (cp *ControlPlane) Etcd() *Process { return cp.etcd }

// APIServer returns the kube-apiserver process, the latest one if it was restarted.
func (cp *ControlPlane) APIServer() *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.apiserver
}

// RestartAPIServer kills kube-apiserver, unless it has ended already, and starts
// it again with the same address and data. It returns when the API can be used.
// It must not be called twice at the same time.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	cp.APIServer().Kill()
	if err := cp.startAPIServer(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}
