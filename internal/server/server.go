package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"outboard.dev/outboard/internal/exemplar"
	"outboard.dev/outboard/internal/filewatch"
)

// A Server serves one handler. Create it with New, then Run it once.
type Server struct {
	opts      Options
	metrics   *metrics
	budget    *budget
	adminTurn *room
	identity  *identifier        // nil without TLS
	watcher   *filewatch.Watcher // nil without TLS
	serving   *http.Server
	admin     *http.Server

	listener      *listener // nil until Listen
	adminListener *listener

	inFlight      atomic.Int64
	running       atomic.Bool
	stopping      atomic.Bool
	shutdownDelay <-chan time.Time // closed when the delay is over; nil: a timer
}

// New validates the options, reads the TLS files and registers the metrics. It opens nothing that needs closing. The
// error contains all errors of the options.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{opts: opts, metrics: newMetrics(), adminTurn: newRoom("requests to the admin address", 1)}
	s.adminTurn.slow = slow
	s.budget = newBudget(opts, s.metrics.reservedBytes)
	adminHandler, err := s.adminHandler()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.serving = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: opts.ReadHeaderTimeout,
		WriteTimeout:      opts.WriteTimeout,
		IdleTimeout:       opts.IdleTimeout,
		MaxHeaderBytes:    opts.MaxHeaderBytes,
		ErrorLog:          log.New(&netLog{logger: opts.Logger, server: s}, "", 0),
		Protocols:         new(http.Protocols),
		ConnContext:       withSession,
		ConnState:         func(c net.Conn, state http.ConnState) { s.listener.observe(c, state) },
	}
	// All calls over one HTTP/2 connection would go to one replica, and fail together when its host does.
	s.serving.Protocols.SetHTTP1(true)
	s.admin = &http.Server{
		Handler:           adminHandler,
		ReadHeaderTimeout: opts.ReadHeaderTimeout,
		ReadTimeout:       opts.BodyTimeout,
		WriteTimeout:      opts.WriteTimeout,
		IdleTimeout:       opts.IdleTimeout,
		MaxHeaderBytes:    opts.MaxHeaderBytes,
		ErrorLog:          log.New(&netLog{logger: opts.Logger}, "", 0),
		ConnContext:       withSession,
		ConnState:         func(c net.Conn, state http.ConnState) { s.adminListener.observe(c, state) },
	}
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
	credential := s.identity.current.Load()
	s.endIdle(credential)
	exemplar.Count(s.metrics.reloads.WithLabelValues(reloadOK), credential.leaf.NotAfter.Format(time.RFC3339)) // for the time
	s.opts.Logger.Info("reloaded the TLS files", "notAfter", credential.leaf.NotAfter)
}

// endIdle closes connections that wait for a request and whose certificate is no longer valid. The next call would be
// rejected. The client only notices when the connection closes, and then connects with its current certificate.
func (s *Server) endIdle(by *credential) {
	if by.clients == nil {
		return
	}
	for c, tlsConn := range s.listener.idleTLS() {
		if by.check(tlsConn.ConnectionState().PeerCertificates, nil).refused != "" {
			_ = c.Close()
		}
	}
}

func (s *Server) reloadFailed(err error) {
	if errors.Is(err, filewatch.ErrNoNotifications) {
		s.opts.Logger.Warn("cannot watch the TLS files", "error", err)
		return
	}
	s.metrics.reloads.WithLabelValues(reloadError).Inc()
	s.opts.Logger.Error("cannot reload the TLS files; the previous ones stay in use", "error", err)
}

// Listen opens both listeners, so that their addresses are known. Run accepts connections. After Listen, call Run, even
// with a context that has ended. Run calls Listen if necessary.
func (s *Server) Listen() error {
	if s.listener != nil {
		return nil
	}
	addr, err := net.ResolveTCPAddr("tcp", s.opts.Address)
	if err != nil {
		return fmt.Errorf("server: serving address: %w", err)
	}
	serving, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return fmt.Errorf("server: serving address: %w", err)
	}
	admin, err := listenAdmin(s.opts.Admin)
	if err != nil {
		return errors.Join(fmt.Errorf("server: %w", err), serving.Close())
	}
	s.listener = newListener(serving, s.opts.MaxConnections, s.metrics)
	if s.identity != nil {
		s.listener.turns, s.listener.turnTimeout = newTurns(runtime.GOMAXPROCS(0)), s.opts.ReadHeaderTimeout
	}
	s.adminListener = newListener(admin, adminConnections, nil)
	return nil
}

// adminConnections bounds the open connections of the admin listener.
const adminConnections = 128

// Addr returns the address of the serving listener, after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// AdminAddr returns the address of the admin listener, after Listen.
func (s *Server) AdminAddr() net.Addr { return s.adminListener.Addr() }

// ready is the server's own readiness check.
func (s *Server) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("stopping")
	case !s.running.Load():
		return errors.New("starting")
	}
	return nil
}

// Run serves until ctx ends, then stops in two phases: for [Options.ShutdownDelay] it reports that it is not ready,
// asks callers to close the connection with every response, and serves all callers; then it accepts no more connections
// and lets requests complete, for at most [Options.DrainTimeout]. The admin listener serves until the end.
//
// Run returns nil if every request got its response, and an error if a listener failed or requests were cut off. Call
// it once.
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
	background.Go(func() { servingEnded <- s.serve() })
	defer s.serving.Close()

	s.running.Store(true)
	s.opts.Logger.Info("serving", "address", s.Addr().String(), "tls", s.opts.TLS != nil, "admin", s.AdminAddr().String())
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

// drain stops in two phases, see Run. It does not use http.Server.Shutdown, which closes connections whose request has
// arrived but has not been parsed, so that their callers would see a reset.
func (s *Server) drain(servingEnded <-chan error) error {
	s.stopping.Store(true)
	s.opts.Logger.Info("stopping: not ready, still serving", "for", max(s.opts.ShutdownDelay, 0))
	shutdownDelay := s.shutdownDelay
	if shutdownDelay == nil {
		shutdownDelay = time.After(s.opts.ShutdownDelay)
	}
	select {
	case <-shutdownDelay:
	case err := <-servingEnded:
		return fmt.Errorf("server: serving listener: %w", err)
	}
	s.listener.finish()
	<-servingEnded
	s.opts.Logger.Info("stopping: closed the listener, waiting for requests", "inFlight", s.inFlight.Load(), "atMost", s.opts.DrainTimeout)
	timeout := time.NewTimer(s.opts.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-s.listener.hurry():
		s.opts.Logger.Info("stopped")
		return nil
	case <-timeout.C:
	}
	if n := s.inFlight.Load(); n > 0 {
		return fmt.Errorf("server: %d requests cut off, unfinished %s after the listener closed", n, s.opts.DrainTimeout)
	}
	return nil
}
