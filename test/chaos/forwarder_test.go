package chaos

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// forwarder forwards connections to one of its targets that accepts them, as a Service does, and
// simulates a slow and unreliable network.
type forwarder struct {
	listener net.Listener
	targets  func() []string
	way      sync.RWMutex // Hold locks it: the targets' data waits

	mu    sync.Mutex
	conns map[net.Conn]bool // both sides
}

func forward(t *testing.T, targets func() []string) *forwarder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: listener, targets: targets, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		listener.Close()
		f.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go f.connect(client)
		}
	}()
	return f
}

// Address is the address for clients.
func (f *forwarder) Address() string { return f.listener.Addr().String() }

// Hold delays the data of the targets: responses and watches.
func (f *forwarder) Hold(d time.Duration) {
	f.way.Lock()
	defer f.way.Unlock()
	time.Sleep(d)
}

// Cut ends all connections, and drops delayed data.
func (f *forwarder) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

// HoldAndCut delays the data of the targets, and then ends all connections, so that the data is
// lost.
func (f *forwarder) HoldAndCut(d time.Duration) {
	f.way.Lock()
	defer f.way.Unlock()
	time.Sleep(d)
	f.Cut()
}

func (f *forwarder) connect(client net.Conn) {
	defer client.Close()
	target := f.dial()
	if target == nil {
		return
	}
	defer target.Close()
	f.know(client, target)
	defer f.forget(client, target)
	go func() {
		io.Copy(target, client)
		target.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := target.Read(buffer)
		f.way.RLock()
		_, werr := client.Write(buffer[:n])
		f.way.RUnlock()
		if err != nil || werr != nil {
			return
		}
	}
}

func (f *forwarder) dial() net.Conn {
	targets := f.targets()
	for _, i := range rand.Perm(len(targets)) {
		if c, err := net.DialTimeout("tcp", targets[i], time.Second); err == nil {
			return c
		}
	}
	return nil
}

func (f *forwarder) know(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = true
	}
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
	}
}
