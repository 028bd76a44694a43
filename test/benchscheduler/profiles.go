package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// profileSeconds is how long profiles take.
const profileSeconds = 3

// profiling are profiles that are being taken. A nil profiling takes none.
type profiling struct{ done chan error }

// startProfiles takes profiles of what kube-scheduler and Outboard spend, in processor time and memory, while they place pods.
func (p *playing) startProfiles(ctx context.Context, round int) *profiling {
	if p.profiles == "" {
		return nil
	}
	var group errgroup.Group
	take := func(client *http.Client, url, process string) {
		for _, kind := range []string{"profile", "allocs"} {
			group.Go(func() error {
				if err := p.takeProfile(ctx, client, url+"/debug/pprof/"+kind, fmt.Sprintf("%s.%s-%d", process, kind, round)); err != nil {
					return fmt.Errorf("profile of %s: %w", process, err)
				}
				return nil
			})
		}
	}
	take(p.scheduler.Client(), p.scheduler.URL(), "kube-scheduler")
	if p.admin != "" {
		take(http.DefaultClient, p.admin, "outboard")
	}
	t := &profiling{make(chan error, 1)}
	go func() { t.done <- group.Wait() }()
	return t
}

func (t *profiling) wait() error {
	if t == nil {
		return nil
	}
	return <-t.done
}

// takeProfile writes a profile to the file that is named after the arm and what is profiled.
func (p *playing) takeProfile(ctx context.Context, client *http.Client, url, of string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?seconds=%d", url, profileSeconds), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	name := fmt.Sprintf("%d-%d-%d-%s.%s.pprof", p.setting.nodes, p.setting.percentage, p.setting.templates, p.arm.name, of)
	file, err := os.Create(filepath.Join(p.profiles, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}
