// Command device-plugin gives containers the FPGAs 0, 1 and 2, which do not exist: a container has the variable FPGAS. It prefers high
// numbers.
package main

import (
	"context"
	"log"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "fpgas.sock"

func main() {
	listener, err := net.Listen("unix", plugins.DevicePluginPath+socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	plugins.RegisterDevicePluginServer(server, &plugin{})
	go register()
	log.Fatal(server.Serve(listener))
}

// register tells the kubelet, which then connects.
func register() {
	conn, err := grpc.NewClient("unix://"+plugins.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := plugins.NewRegistrationClient(conn).Register(context.Background(), &plugins.RegisterRequest{
		Version: plugins.Version, Endpoint: socket, ResourceName: "example.com/fpga",
		Options: &plugins.DevicePluginOptions{GetPreferredAllocationAvailable: true},
	}); err != nil {
		log.Fatal(err)
	}
}

type plugin struct {
	plugins.UnimplementedDevicePluginServer
}

func (*plugin) GetDevicePluginOptions(context.Context, *plugins.Empty) (*plugins.DevicePluginOptions, error) {
	return &plugins.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (*plugin) ListAndWatch(_ *plugins.Empty, stream plugins.DevicePlugin_ListAndWatchServer) error {
	list := &plugins.ListAndWatchResponse{}
	for _, id := range []string{"0", "1", "2"} {
		list.Devices = append(list.Devices, &plugins.Device{ID: id, Health: plugins.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (*plugin) GetPreferredAllocation(_ context.Context, r *plugins.PreferredAllocationRequest) (*plugins.PreferredAllocationResponse, error) {
	response := &plugins.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		slices.Sort(c.AvailableDeviceIDs)
		response.ContainerResponses = append(response.ContainerResponses, &plugins.ContainerPreferredAllocationResponse{
			DeviceIDs: c.AvailableDeviceIDs[len(c.AvailableDeviceIDs)-int(c.AllocationSize):],
		})
	}
	return response, nil
}

func (*plugin) Allocate(_ context.Context, r *plugins.AllocateRequest) (*plugins.AllocateResponse, error) {
	response := &plugins.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		slices.Sort(c.DevicesIds)
		response.ContainerResponses = append(response.ContainerResponses, &plugins.ContainerAllocateResponse{
			Envs: map[string]string{"FPGAS": strings.Join(c.DevicesIds, ",")},
		})
	}
	return response, nil
}
