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
