// Command render renders the chart of Outboard, as helm template does. Without -o it prints the
// manifests; with -o it writes one file for each template, with everything on that the chart can
// create, which are the manifests in deploy/.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

// everything are the values of the manifests in deploy/.
const everything = "service.nodePort=32766,certificates.source=CertManager,setSchedulerName.enabled=true," +
	"monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true"

// more are values with files that the default preset does not need.
var more = []string{"preset=gpu-sharing", "preset=utilization",
	"config=apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- path: /\n  policies:\n  - type: ResourceClaims\n,scheduler.enabled=false"}

// header is the first line of each file in deploy/ that the chart is the source of.
const header = "# Generated from deploy/chart: change it there, and run make generate.\n"

func main() {
	chart := flag.String("chart", "../chart", "directory of the chart")
	set := flag.String("set", "", "values, as in helm template --set")
	namespace := flag.String("namespace", "outboard-system", "namespace of the release")
	version := flag.String("kubernetes", "v1.37.0", "version of the cluster")
	output := flag.String("o", "", "write the manifests of deploy/ to this directory")
	flag.Parse()
	if err := run(*chart, *set, *namespace, *version, *output); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(chart, set, namespace, version, output string) error {
	if output != "" {
		files, err := manifests(chart, version)
		if err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(output, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	values, err := strvals.Parse(set)
	if err != nil {
		return err
	}
	files, err := render(chart, values, namespace, version)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			fmt.Printf("---\n%s", files[name])
		}
	}
	return nil
}

// manifests returns the generated files of deploy/ by name: those of the default preset, and
// permissions that only other presets need.
func manifests(chart, version string) (map[string]string, error) {
	all := map[string]string{}
	for _, set := range append([]string{everything}, more...) {
		values, err := strvals.Parse(set)
		if err != nil {
			return nil, err
		}
		files, err := render(chart, values, "outboard-system", version)
		if err != nil {
			return nil, err
		}
		delete(files, "NOTES.txt")
		for name, text := range files {
			if _, ok := all[name]; !ok {
				all[name] = header + text
			}
		}
	}
	return all, nil
}

// render returns what the templates render to, by file name, without those that are empty.
func render(chart string, values map[string]any, namespace, version string) (map[string]string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	kubernetes, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kubernetes
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "outboard", Namespace: namespace, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for path, text := range rendered {
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(filepath.Base(path), "_") {
			files[filepath.Base(path)] = strings.TrimSuffix(text, "\n---") + "\n"
		}
	}
	return files, nil
}
