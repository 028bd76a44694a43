package node

import (
	"fmt"
	"strings"
)

const (
	containerdConfig = "/run/node/containerd.toml"
	kubeletConfig    = "/run/node/kubelet.yaml"
	corefile         = "/run/node/Corefile"
)

// files are the files that the programs of the node read, by path.
func (n *Node) files() map[string]string {
	return map[string]string{
		containerdConfig: `version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + pause + `'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true # a machine may forbid to lower it
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/usr/lib/cni']
  conf_dir = '/run/node/cni'
`,
		"/run/node/cni/pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`,
		// With cgroups of version 1, too.
		kubeletConfig: `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
clusterDNS: [` + Address + `]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
`,
		corefile: `cluster.local:53 {
  bind ` + Address + `
  errors
  kubernetes cluster.local {
    kubeconfig ` + n.cp.Kubeconfig() + `
  }
}
`,
		"/run/cdi/nvidia.yaml": devices(n.gpus()),
	}
}

// Injected begins the name of a variable that a container has for each of its GPUs.
const Injected = "MADE_UP_GPU_"

// devices is what nvidia-ctk cdi generate writes for GPUs: here, each is /dev/null by another name.
func devices(count int) string {
	var b strings.Builder
	b.WriteString("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n")
	for i := range count {
		fmt.Fprintf(&b, `- name: "%[1]d"
  containerEdits:
    env: [%[2]s%[1]d=injected]
    deviceNodes: [{path: /dev/nvidia%[1]d, hostPath: /dev/null, type: c, major: 1, minor: 3}]
`, i, Injected)
	}
	return b.String()
}
