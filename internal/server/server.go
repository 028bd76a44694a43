package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/internal/filewatch"
	"outboard.dev/outboard/internal/lastevent"
)

const (
	// maxHeaderBytes bounds one request's header.
	maxHeaderBytes = 16 << 10

	// writeTimeout bounds one request from the end of its header to the end of its response.
	writeTimeout = 2 * time.Minute

	// idleTimeout is how long an unused connection is kept. It exceeds the timeout of clients (90 s
	// in kube-scheduler): if the client closes first, no call uses a connection that the server has
	// just closed.
	idleTimeout = 2 * time.Minute

	// adminConnections bounds the open connections of the admin listener.
	adminConnections = 1024
)

// A Server serves one handler. Create it with New, then Run it once.
type Server struct {
	opts     Options
	metrics  *metrics
	memory   *memory
	identity *identifier        // nil without TLS
	watcher  *filewatch.Watcher // nil without TLS
	serving  *http.Server
	admin    *http.Server

	listener      net.Listener // nil until Listen, and without a handler
	adminListener net.Listener // nil until Listen
	connections   *connections

	inFlight      atomic.Int64
	stopping      atomic.Bool
	shutdownDelay <-chan time.Time // closed when the delay is over; nil: a timer
}

// New reads the TLS files and registers the metrics. It opens nothing that needs closing.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	s := &Server{opts: opts, metrics: newMetrics()}
	s.memory = newMemory(opts.MaxInFlightBytes, opts.BusyTimeout, s.metrics.reservedBytes)
	s.serving = s.httpServer(http.HandlerFunc(s.serveHTTP), &netLog{logger: opts.Logger, server: s})
	s.connections = newConnections(opts.MaxConnections, true, s.metrics)
	s.serving.ConnState = s.connections.observe
	s.admin = s.httpServer(s.adminHandler(), &netLog{logger: opts.Logger})
	// A probe comes on a new connection, so idle ones are not kept for it.
	s.admin.ConnState = newConnections(adminConnections, false, newMetrics()).observe
	s.admin.ReadTimeout = opts.BodyTimeout
	if err := s.loadTLS(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(s.metrics); err != nil {
			return nil, fmt.Errorf("server: metrics: %w", err)
		}
	}
	return s, nil
}

func (s *Server) httpServer(handler http.Handler, errorLog *netLog) *http.Server {
	h := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.opts.ReadHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(errorLog, "", 0),
		Protocols:         new(http.Protocols),
		ConnContext:       withSession,
	}
	// All calls over one HTTP/2 connection would go to one replica, and fail together when its host
	// does.
	h.Protocols.SetHTTP1(true)
	return h
}

func (s *Server) loadTLS() (err error) {
	if s.opts.TLS == nil {
		return nil
	}
	s.identity = &identifier{opts: *s.opts.TLS, logger: s.opts.Logger, metrics: s.metrics}
	s.watcher, err = filewatch.New(filewatch.Options{
		Paths:    s.opts.TLS.files(),
		Interval: s.opts.TLS.ReloadInterval,
		OnChange: s.reload,
		OnError:  s.reloadFailed,
	})
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if err := s.identity.load(s.watcher.Contents()); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.serving.TLSConfig = s.identity.serverConfig()
	return nil
}

func (s *Server) reload(files map[string][]byte) {
	if err := s.identity.load(files); err != nil {
		s.reloadFailed(err)
		if early := (*unusable)(nil); errors.As(err, &early) && time.Now().Before(early.from) {
			time.AfterFunc(time.Until(early.from), func() { s.reload(s.watcher.Contents()) })
		}
		return
	}
	until := s.identity.current.Load().Leaf.NotAfter
	lastevent.Count(s.metrics.reloads.WithLabelValues(reloadOK), until.Format(time.RFC3339)) // for the time
	s.opts.Logger.Info("reloaded the TLS files", "notAfter", until)
}

func (s *Server) reloadFailed(err error) {
	s.metrics.reloads.WithLabelValues(reloadError).Inc()
	s.opts.Logger.Error("cannot reload the TLS files; the previous ones stay in use", "error", err)
}

// Listen opens the listeners, so that their addresses are known. Run accepts connections. After
// Listen, call Run, even with a context that has ended. Run calls Listen if necessary.
func (s *Server) Listen() error {
	if s.adminListener != nil {
		return nil
	}
	admin, err := listenAdmin(s.opts.Admin)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if s.opts.Handler != nil {
		if s.listener, err = net.Listen("tcp", s.opts.Address); err != nil {
			return errors.Join(fmt.Errorf("server: serving address: %w", err), admin.Close())
		}
	}
	s.adminListener = admin
	return nil
}

// Addr returns the address of the serving listener, after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// AdminAddr returns the address of the admin listener, after Listen.
func (s *Server) AdminAddr() net.Addr { return s.adminListener.Addr() }

// Run serves until ctx ends, then stops in two phases: for [Options.ShutdownDelay] it reports that
// it is not ready, asks callers to close the connection with every response, and serves all
// callers; then it accepts no more connections and lets requests complete, for at most
// [Options.DrainTimeout]. The admin listener serves until the end. Without a handler, there are no
// such phases.
//
// Run returns nil if every request got its response, and an error if a listener failed or requests
// were cut off. Call it once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if s.watcher != nil {
		background.Go(func() { s.watcher.Run(running) })
	}
	adminFailed := make(chan error, 1)
	background.Go(func() { adminFailed <- s.admin.Serve(s.adminListener) })
	defer s.admin.Close()
	servingEnded := make(chan error, 1)
	if s.listener != nil {
		background.Go(func() { servingEnded <- s.serve() })
		defer s.serving.Close()
		s.opts.Logger.Info("serving", "address", s.Addr().String(), "tls", s.opts.TLS != nil,
			"admin", s.AdminAddr().String())
	}
	select {
	case <-ctx.Done():
		return s.drain(servingEnded)
	case err := <-servingEnded:
		return fmt.Errorf("server: serving listener: %w", err)
	case err := <-adminFailed:
		return fmt.Errorf("server: admin listener: %w", err)
	}
}

func (s *Server) serve() error {
	if s.identity == nil {
		return s.serving.Serve(s.listener)
	}
	return s.serving.ServeTLS(s.listener, "", "")
}

// drain stops in two phases, see Run. It does not use http.Server.Shutdown, which closes
// connections whose request has arrived but has not been parsed, so that their callers would see a
// reset.
func (s *Server) drain(servingEnded <-chan error) error {
	s.stopping.Store(true)
	if s.listener == nil {
		return nil
	}
	logger, timeout := s.opts.Logger, s.opts.DrainTimeout
	logger.Info("stopping: not ready, still serving", "for", max(s.opts.ShutdownDelay, 0))
	shutdownDelay := s.shutdownDelay
	if shutdownDelay == nil {
		shutdownDelay = time.After(s.opts.ShutdownDelay)
	}
	select {
	case <-shutdownDelay:
	case err := <-servingEnded:
		return fmt.Errorf("server: serving listener: %w", err)
	}
	time.Sleep(acceptGrace)
	_ = s.listener.Close()
	<-servingEnded
	logger.Info("stopping: closed the listener, waiting for requests", "inFlight", s.inFlight.Load(),
		"atMost", timeout)
	for closed := time.Now(); time.Since(closed) < timeout; time.Sleep(hurryInterval) {
		if s.connections.hurry(closed) {
			logger.Info("stopped")
			return nil
		}
	}
	if n := s.inFlight.Load(); n > 0 {
		return fmt.Errorf("server: %d requests cut off, unfinished %s after the listener closed", n, timeout)
	}
	return nil
}
