package app

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"outboard.dev/outboard/internal/replicas"
)

// adminVariable is the environment variable with the default of --admin.
const adminVariable = "OUTBOARD_ADMIN"

const defaultAdmin = "http://127.0.0.1:8081"

// adminTimeout bounds a request to a running service.
const adminTimeout = 10 * time.Second

// adminAddress is the admin address of a running service: a URL, or an address without a scheme.
type adminAddress string

// url returns the address as a URL that does not end in a slash.
func (a *adminAddress) url() string {
	address := strings.TrimRight(string(*a), "/")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return address
}

// failure returns the error of a request to the address, without the query. It says what to do if
// nothing listens there.
func (a *adminAddress) failure(err error) error {
	request := (*url.Error)(nil)
	if !errors.As(err, &request) || request.Op == "parse" {
		return err
	}
	err = fmt.Errorf("calling the service at %s: %w", a.url(), request.Err)
	if dial := (*net.OpError)(nil); errors.As(request.Err, &dial) && dial.Op == "dial" {
		err = fmt.Errorf("%w: %w: --admin must be the admin address of a running outboard serve; to reach one in a pod, use kubectl exec or kubectl port-forward", replicas.ErrNoResponse, err)
	}
	return err
}

func adminClient() *http.Client {
	// No proxy: the admin address is on this host or forwarded to it.
	return &http.Client{Timeout: adminTimeout, Transport: &http.Transport{}}
}
