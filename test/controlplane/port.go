package controlplane

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopback is the address all servers listen on.
const loopback = "127.0.0.1"

// port is a free TCP port on the loopback address, held so that no other process is given it, neither as the port of a listener nor as
// that of its own end of a connection. One server at a time can listen on it, also again after a restart.
type port struct {
	fd     int
	number int
}

// holdPort binds a socket that never listens. With SO_REUSEADDR, which Go sets on each listener, a server may bind the port too. Linux
// gives nobody a bound port who asks for any port.
func holdPort() (*port, error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("hold a port: %w", err)
	}
	p := &port{fd: fd}
	if err := p.bind(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("hold a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.number = address.(*unix.SockaddrInet4).Port
	return nil
}

// release lets others have the port.
func (p *port) release() { unix.Close(p.fd) }

// url returns the https address of the server on the port.
func (p *port) url() string { return fmt.Sprintf("https://%s:%d", loopback, p.number) }
