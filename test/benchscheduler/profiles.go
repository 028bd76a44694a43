package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// profileSeconds is how long a CPU profile takes.
const profileSeconds = 3

// profiling are CPU profiles that are being taken. A nil profiling takes none.
type profiling struct{ done chan error }

// startProfiles takes CPU profiles of kube-scheduler and Outboard while they place pods.
func (p *playing) startProfiles(ctx context.Context, round int) *profiling {
	if p.profiles == "" {
		return nil
	}
	t := &profiling{make(chan error, 1)}
	go func() {
		scheduler := make(chan error, 1)
		go func() {
			scheduler <- p.takeProfile(ctx, p.scheduler.Client(), p.scheduler.URL(), "kube-scheduler", round)
		}()
		var err error
		if p.admin != "" {
			err = p.takeProfile(ctx, http.DefaultClient, p.admin, "outboard", round)
		}
		t.done <- errors.Join(<-scheduler, err)
	}()
	return t
}

func (t *profiling) wait() error {
	if t == nil {
		return nil
	}
	return <-t.done
}

func (p *playing) takeProfile(ctx context.Context, client *http.Client, url, process string, round int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", url, profileSeconds), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("profile of %s: %w", process, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile of %s: %s", process, resp.Status)
	}
	name := fmt.Sprintf("%d-%d-%d-%s-%d.%s.pprof", p.setting.nodes, p.setting.percentage, p.setting.templates, p.arm.name, round, process)
	file, err := os.Create(filepath.Join(p.profiles, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}
