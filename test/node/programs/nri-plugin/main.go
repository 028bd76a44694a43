// Command nri-plugin gives containers GPUs. It runs the NRI plugin of NVIDIA's container toolkit, without the toolkit's own command, which
// also configures the runtime, and needs cgo and a driver. Beside it, it imitates what does not run without a driver, or is no module.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"strings"
	"syscall"

	"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/resource"
)

const socket = "/run/nri/nri.sock"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	theirs := nri.NewPlugin(ctx, logrus.New(), nil)
	imitated, err := stub.New(imitation{}, stub.WithPluginName("imitation"), stub.WithPluginIdx("20"), stub.WithSocketPath(socket))
	if err := errors.Join(err, theirs.Start(ctx, socket, "10")); err != nil {
		log.Fatal(err)
	}
	if err := imitated.Start(ctx); err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
}

// imitation does what kai-gpu-fractioning and the gpushare device plugin do with annotations, and NVIDIA's runtime with the variable
// NVIDIA_VISIBLE_DEVICES.
type imitation struct{}

func (imitation) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	visible := ""
	for _, variable := range c.Env {
		if value, ok := strings.CutPrefix(variable, "NVIDIA_VISIBLE_DEVICES="); ok {
			visible = value
		}
	}
	if index, ok := pod.Annotations["ALIYUN_COM_GPU_MEM_IDX"]; ok && visible == "" {
		visible = index
		adjust.AddEnv("NVIDIA_VISIBLE_DEVICES", index)
	}
	prefix := "nvidia.com/container." + c.Name + "."
	var request, limit string
	if devices, ok := pod.Annotations[prefix+"gpus.devices"]; ok {
		visible = devices
		adjust.AddEnv("NVIDIA_VISIBLE_DEVICES", devices)
		request, limit = pod.Annotations[prefix+"gpu-memory.request"], pod.Annotations[prefix+"gpu-memory.limit"]
	}
	if request == "" {
		request = limit
	}
	if limit == "" {
		limit = request
	}
	for name, amount := range map[string]string{"REQUEST": request, "LIMIT": limit} {
		if amount == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", amount, err)
		}
		adjust.AddEnv("NVIDIA_GPU_MEMORY_"+name, fmt.Sprint((quantity.Value()+1<<20-1)>>20)) // MiB, rounded up
	}
	for device := range strings.SplitSeq(visible, ",") {
		if device != "" && device != "all" && device != "none" && device != "void" {
			adjust.AddCDIDevice(&api.CDIDevice{Name: "nvidia.com/gpu=" + device})
		}
	}
	return adjust, nil, nil
}
