package doctor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"outboard.dev/outboard/schedplugin"
)

// nowhere is the address of an API server that does not run. kube-scheduler does not connect before it has read its configuration.
const nowhere = "http://127.0.0.1:1"

// load does what kube-scheduler --config FILE --write-config-to does, except that it writes nothing: it loads, defaults and
// validates the file, and creates the scheduler with its profiles, plugins and extenders. It returns the error with which
// kube-scheduler does not start.
func load(t *testing.T, data []byte) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	o := options.NewOptions()
	o.ConfigFile, o.Master = file, nowhere
	o.SecureServing, o.Authentication, o.Authorization = nil, nil, nil // not in the file, and slow
	var plugins []app.Option
	if bytes.Contains(data, []byte("name: "+schedplugin.Name)) {
		plugins = append(plugins, app.WithPlugin(schedplugin.Name, plugin)) // kube-scheduler is outboard-scheduler then
	}
	_, _, err := app.Setup(ctx, o, plugins...)
	return err
}

// extension is a plugin with the extension points of Outboard's.
type extension interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.BindPlugin
}

// stub is a plugin of which only the name is called.
type stub struct{ extension }

func (stub) Name() string { return schedplugin.Name }

func plugin(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return stub{}, nil }
