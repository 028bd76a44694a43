// Command render renders the chart of Outboard, as helm template does. Without -o it prints the
// manifests; with -quickstart, these with all else that kubectl apply needs, and pods of an example;
// with -o it writes one file for each template, with everything on that the chart can create, which
// are the manifests in deploy/.
package main

import (
	"errors"
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
	"sigs.k8s.io/yaml"
)

// everything are the values of the manifests in deploy/.
const everything = "service.nodePort=32766,certificates.source=CertManager,setSchedulerName.enabled=true," +
	"monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true"

// more are values with files that the default preset does not need.
var more = []string{"preset=gpu-sharing", "preset=utilization",
	"config=apiVersion: outboard.dev/v1alpha1\nkind: OutboardConfiguration\nprofiles:\n- policies: [{type: ResourceClaims}]\n,scheduler.enabled=false"}

// header is the first line of each file in deploy/ that the chart is the source of.
const header = "# Generated from deploy/chart: change it there, and run make generate.\n"

func main() {
	chart := flag.String("chart", "../../deploy/chart", "directory of the chart")
	set := flag.String("set", "", "values, as in helm template --set")
	namespace := flag.String("namespace", "outboard-system", "namespace of the release")
	version := flag.String("kubernetes", "v1.37.0", "version of the cluster")
	preset := flag.String("quickstart", "", "print all of an installation with this preset, and the pods of its example")
	output := flag.String("o", "", "write the manifests of deploy/ to this directory")
	flag.Parse()
	if err := run(*chart, *set, *namespace, *version, *preset, *output); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(chart, set, namespace, version, preset, output string) error {
	if output != "" {
		files, err := manifests(chart, version)
		if err != nil {
			return err
		}
		for name, text := range files {
			path := filepath.Join(output, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				return err
			}
		}
		return nil
	}
	values, err := strvals.Parse(set)
	if err != nil {
		return err
	}
	if preset != "" {
		text, err := quickstart(chart, preset, values, version)
		if err == nil {
			_, err = os.Stdout.WriteString(text)
		}
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

// simulated are the GPUs of the preset gpu-sharing in a quickstart, for clusters without any.
const simulated = "simulatedGPUs.count=2,simulatedGPUs.memory=16"

// quickstart returns a file with everything of an installation in the default namespace, and pods
// that show what the preset does. The values are those of the image.
func quickstart(chart, preset string, values map[string]any, version string) (string, error) {
	set := "preset=" + preset
	if preset == "gpu-sharing" {
		set += "," + simulated
	}
	if err := strvals.ParseInto(set, values); err != nil {
		return "", err
	}
	files, err := render(chart, values, "outboard-system", version)
	if err != nil {
		return "", err
	}
	delete(files, "NOTES.txt")
	deploy := filepath.Dir(chart)
	for name, file := range map[string]string{"0": "namespace.yaml", "1": "chart/crds/ledgers.yaml", "~": "quickstart/" + preset + ".yaml"} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		if err != nil {
			return "", err
		}
		files[name] = string(text)
	}
	text := fmt.Sprintf(`# Outboard with the preset %[1]s, a second kube-scheduler %[2]s, and pods for it. For a cluster with
# another version, replace %[2]s. To remove all: kubectl delete --ignore-not-found -f this file.
`, preset, version)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text += "---\n" + files[name]
	}
	return text, nil
}

// manifests returns the generated files of deploy/ by name: those of the default preset,
// permissions that only other presets need, and the components.
func manifests(chart, version string) (map[string]string, error) {
	all, err := components(chart, version)
	if err != nil {
		return nil, err
	}
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

// components returns deploy/presets: for each preset except the default one, a component for
// overlays, with its configurations and permissions.
func components(chart, version string) (map[string]string, error) {
	base, err := render(chart, nil, "outboard-system", version)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(chart, "presets", "*-scheduler.yaml"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, path := range paths {
		preset := strings.TrimSuffix(filepath.Base(path), "-scheduler.yaml")
		files, err := render(chart, map[string]any{"preset": preset}, "outboard-system", version)
		if err != nil {
			return nil, err
		}
		if maps.Equal(files, base) {
			continue
		}
		folder := "presets/" + preset + "/"
		var resources []string
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if _, ok := base[name]; !ok {
				resources = append(resources, name)
				all[folder+name] = header + files[name]
			}
		}
		for _, name := range []string{"outboard", "outboard-scheduler"} {
			file := strings.TrimPrefix(name, "outboard-") + ".yaml"
			text, err := configuration(files[file], name, file)
			if err != nil {
				return nil, err
			}
			all[folder+file] = header + text
		}
		all[folder+"kustomization.yaml"] = fmt.Sprintf(`%sapiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [%s]
configMapGenerator:
- {name: outboard, namespace: outboard-system, behavior: replace, files: [outboard.yaml]}
- {name: outboard-scheduler, namespace: outboard-system, behavior: replace, files: [scheduler.yaml]}
- {name: outboard-scheduler-checksum, namespace: outboard-system, behavior: replace, files: [scheduler.yaml]}
`, header, strings.Join(resources, ", "))
	}
	return all, nil
}

// configuration returns a file in a ConfigMap of a manifest.
func configuration(manifest, configMap, file string) (string, error) {
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]string
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return "", err
		}
		if text, ok := o.Data[file]; ok && o.Kind == "ConfigMap" && o.Metadata.Name == configMap {
			return text, nil
		}
	}
	return "", fmt.Errorf("the chart renders no ConfigMap %s with %s", configMap, file)
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
