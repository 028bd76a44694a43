package helm

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// services is the network of Services: an HTTP proxy that connects NAME.NAMESPACE.svc:PORT to the process of a pod that the Service
// selects, as cluster DNS and kube-proxy do.
type services struct{ kubelet *kubelet }

func (s services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, err := s.resolve(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	pod, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer pod.Close()
	caller, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer caller.Close()
	fmt.Fprint(caller, "HTTP/1.1 200 Connected\r\n\r\n")
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{pod, caller}, {caller, pod}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // the other side sees the end of the connection
			ended <- struct{}{}
		}()
	}
	<-ended
}

// resolve returns the address of a pod of the Service.
func (s services) resolve(host string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return "", err
	}
	parts := strings.Split(name, ".")
	if len(parts) < 3 || parts[2] != "svc" {
		return "", fmt.Errorf("%s is no Service", host)
	}
	k := s.kubelet
	service, err := k.client.CoreV1().Services(parts[1]).Get(k.ctx, parts[0], metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, p := range service.Spec.Ports {
		if fmt.Sprint(p.Port) == port {
			return s.endpoint(service, p)
		}
	}
	return "", fmt.Errorf("the Service %s has no port %s", name, port)
}

// endpoint returns the address of a pod for a port of its Service.
func (s services) endpoint(service *corev1.Service, port corev1.ServicePort) (string, error) {
	p := s.kubelet.selected(service.Namespace, service.Spec.Selector)
	if p == nil {
		return "", fmt.Errorf("no pod of the Service %s runs", service.Name)
	}
	address, ok := p.address(port.TargetPort.StrVal)
	if !ok {
		return "", fmt.Errorf("the pod of the Service %s does not serve %s", service.Name, port.TargetPort.String())
	}
	return address, nil
}
