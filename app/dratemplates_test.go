package app

import (
	"strings"
	"testing"
)

func TestDRATemplates(t *testing.T) {
	pods := file(t, "{kind: Pod, apiVersion: v1, metadata: {name: p, annotations: {example.com/models: A10}}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 6}}}]}}")
	mib := file(t, header+"profiles:\n- policies: [{type: GPUMemory, config: {unit: MiB, modelAnnotation: example.com/models}}]\n")
	other := file(t, header+"profiles:\n- policies: [{type: ImageLocality}]\n")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"default    gpu-6gi   1 with 6Gi of its memory", `device.driver == "gpu.nvidia.com"`}},
		{[]string{"--unit", "MiB"}, []string{"gpu-6mi"}},
		{[]string{"--config", mib}, []string{"gpu-6mi", "allows only the GPU models A10"}},
		{[]string{"-o", "yaml", "--driver", "hami-core-gpu.project-hami.io", "--device-class", "hami"}, []string{"kind: ResourceClaimTemplate", "memory: 6Gi", "deviceClassName: hami", `device.driver == "hami-core-gpu.project-hami.io"`}},
		{[]string{"-o", "json"}, []string{`"templates": [`, `"name": "gpu-6gi"`}},
	} {
		out, err := execute(t, append([]string{"dra-templates", "--pods", pods}, tt.args...)...)
		for _, want := range tt.want {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%v: %s (%v)\nwant %s", tt.args, out, err, want)
			}
		}
	}
	for want, args := range map[string][]string{
		"no profile has the policy GPUMemory": {"--config", other}, "--unit=GB": {"--unit", "GB"}, "none of the others can be": {"--config", mib, "--unit", "MiB"},
		"--pods does not go with": {"--context", "c"}, "--output": {"-o", "csv"},
	} {
		if out, err := execute(t, append([]string{"dra-templates", "--pods", pods}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s (%v), want %s", args, out, err, want)
		}
	}
}

// A file that has nothing to move is most likely another one than was meant.
func TestDRATemplatesWithoutPods(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	none := file(t, "{kind: Node, apiVersion: v1, metadata: {name: node}}")
	const pod = "{kind: Pod, apiVersion: v1, metadata: {name: p}, spec: {containers: [{name: main, resources: {limits: {%s}}}]}}"
	other, indivisible := file(t, strings.Replace(pod, "%s", "cpu: 1", 1)), file(t, strings.Replace(pod, "%s", "aliyun.com/gpu-mem: 5, aliyun.com/gpu-count: 2", 1))
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{none, statusFailed, "outboard: " + none + ": there are no pods\n"},
		{other, statusFindings, "no pod requests aliyun.com/gpu-mem or aliyun.com/gpu-count (pods that have not ended: 1)\n"},
		{other + " -o yaml", statusFindings, "# no pod requests"},
		{other + " -o json", statusFindings, `"pods": 1`},
		{indivisible, statusFindings, "5 of memory cannot be divided by 2 GPUs"},
		{other + "," + file(t, strings.Replace(pod, "%s", "aliyun.com/gpu-mem: 5", 1)), statusGood, "gpu-5gi"},
	} {
		if status, out := statusOf(t, "dra-templates --pods "+tt.args); status != tt.status || !strings.Contains(out, tt.want) {
			t.Errorf("%s: status %d, want %d with %q\n%s", tt.args, status, tt.status, tt.want, out)
		}
	}
}
