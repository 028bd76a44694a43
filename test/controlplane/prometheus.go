package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// PrometheusOptions say how to start a Prometheus server.
type PrometheusOptions struct {
	// Config is the configuration, as YAML. File names must be absolute. Default:
	// nothing is scraped.
	Config string
	// Address is where it listens. Default: a free port of the loopback address.
	Address string
	// Args are further arguments.
	Args []string
}

// Prometheus is a running Prometheus server. It needs no control plane.
type Prometheus struct {
	*Process
	// Address is where it listens, as host:port.
	Address string
	reaper  *reaper
}

var listeningOn = regexp.MustCompile(`msg="Listening on" component=web address=(\S+)`)

// StartPrometheus starts a Prometheus server and returns when it answers queries. It
// lives no longer than this process, however that ends. The context bounds the start
// only.
func StartPrometheus(ctx context.Context, opts PrometheusOptions) (_ *Prometheus, err error) {
	binDir, err := findBinaries("", "test/prometheus", "prometheus")
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	dir := filepath.Join(os.TempDir(), "outboard-prometheus-"+rand.Text())
	p := &Prometheus{}
	if p.reaper, err = startReaper(dir); err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prometheus: %w", err), p.Stop())
		}
	}()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(opts.Config), 0o600); err != nil {
		return nil, err
	}
	address := opts.Address
	if address == "" {
		address = loopback + ":0"
	}
	p.Process, err = launch(p.reaper, Command{
		Name: "prometheus", Path: filepath.Join(binDir, "prometheus"), Dir: dir,
		Args: append([]string{
			"--config.file=" + config, "--web.listen-address=" + address,
			"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		}, opts.Args...),
	}, filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	return p, p.await(ctx, p.ready)
}

// ready finds out what its log says, which also has the address.
func (p *Prometheus) ready(context.Context) error {
	log := p.Log()
	listening := listeningOn.FindStringSubmatch(log)
	if listening == nil || !strings.Contains(log, "Server is ready to receive web requests") {
		return errors.New("it does not say that it is ready")
	}
	p.Address = listening[1]
	return nil
}

// Stop ends the server at once and removes its data and its log.
func (p *Prometheus) Stop() error {
	if p.Process != nil {
		p.Kill()
	}
	return p.reaper.finish()
}
