package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// AdminServer serves the admin listener alone, for a process that nobody calls.
type AdminServer struct{ server *Server }

// ListenAdmin opens the admin listener. Of the options, Admin, Logger and the timeouts are used. After ListenAdmin, call Run, even
// with a context that has ended.
func ListenAdmin(opts Options) (*AdminServer, error) {
	opts.Handler, opts.TLS, opts.Registerer = http.NotFoundHandler(), nil, nil
	s, err := New(opts)
	if err != nil {
		return nil, err
	}
	admin, err := listenAdmin(s.opts.Admin)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.adminListener = newListener(admin, adminConnections, nil)
	s.running.Store(true)
	return &AdminServer{s}, nil
}

// Addr returns the address of the listener.
func (a *AdminServer) Addr() net.Addr { return a.server.adminListener.Addr() }

// Run serves until ctx ends. It returns nil then, and an error if the listener failed.
func (a *AdminServer) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.server.admin.Close() })
	defer stop()
	if err := a.server.admin.Serve(a.server.adminListener); ctx.Err() == nil {
		return fmt.Errorf("server: admin listener: %w", err)
	}
	return nil
}
