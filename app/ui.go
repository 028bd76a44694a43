package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/ui"
)

func uiCommand() *cobra.Command {
	var from serviceFlags
	port := 0
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page that shows waiting pods, GPUs, allocations, and the health of all replicas",
		Long: `Serve a page on a loopback address until Ctrl-C, and print its URL. The page shows why pods
wait and what would let them run, how full each GPU is, who holds what, how a pod was or would
be placed, how old signals are, and whether all replicas are well. The page changes nothing.

The command reads from all replicas through the API server, as kubectl port-forward does, or
from one service with --admin. The service has the same page at its admin address.`,
		Example: `  outboard ui
  outboard ui --admin 127.0.0.1:8081`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := pageData(cmd, &from)
			if err != nil {
				return err
			}
			return serveUI(cmd, data, port)
		},
	}
	from.register(cmd)
	cmd.Flags().Var(number{&port, 0, 65535}, "port", "the port of the page (default 8082 or, if that is in use, any free port)")
	return cmd
}

// usualPort is the port of the page unless another program has it, so that bookmarks and open pages
// remain right.
const usualPort = 8082

// serveUI serves the page and its data until the command is interrupted.
func serveUI(cmd *cobra.Command, data http.Handler, port int) error {
	listen := func(port int) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	listener, err := listen(cmp.Or(port, usualPort))
	if err != nil && port == 0 {
		listener, err = listen(0)
	}
	if err != nil {
		return err
	}
	address := "http://" + listener.Addr().String() + ui.Path
	fmt.Fprintf(cmd.OutOrStdout(), "The page is at %s until Ctrl-C.\n", address)
	srv := &http.Server{Handler: pageHandler(data), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() { srv.Close() })
	defer stop()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pageHandler serves the page, and the data that it reads, to browsers on this host.
func pageHandler(data http.Handler) http.Handler {
	page := ui.Handler()
	mux := http.NewServeMux()
	mux.Handle("GET "+ui.Path, page)
	mux.Handle("GET /{$}", page)
	for _, path := range []string{ui.OverviewPath, ui.UnitsPath, ui.WaitingPath, ui.HeldPath, ui.NodePath, ui.FindPath, ui.SignalsPath, ui.HistoryPath, explain.Path} {
		mux.Handle("GET "+path, ui.Protect(data))
	}
	mux.Handle("POST "+explain.TryPath, ui.Protect(data))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !server.NamesThisHost(r.Host) {
			http.Error(w, "no Host "+strconv.Quote(r.Host)+" here: use localhost or an IP address in the URL", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// pageData returns the handler of what the page reads: from one admin address, or merged from all
// replicas.
func pageData(cmd *cobra.Command, from *serviceFlags) (http.Handler, error) {
	if from.admin != "" {
		admin, err := url.Parse(from.admin.url())
		if err != nil {
			return nil, fmt.Errorf("--admin: %w", err)
		}
		return &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(admin) },
			Transport: adminClient().Transport,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, from.admin.failure(&url.Error{Op: "Get", URL: admin.String(), Err: err}).Error(), http.StatusBadGateway)
			},
		}, nil
	}
	client, err := clientConfig(from.cluster.ClientConnection)
	if err != nil {
		return nil, fmt.Errorf("%w (set --kubeconfig, or --admin for one service)", err)
	}
	find := func(ctx context.Context) ([]replicas.Replica, error) {
		return replicas.Find(ctx, client, from.namespace)
	}
	m := &merger{find: find, context: contextName(from)}
	if _, err := m.replicas(cmd.Context()); err != nil {
		return nil, fmt.Errorf("%w: --outboard-namespace names the namespace of Outboard, and --admin one service", err)
	}
	return m, nil
}

// contextName returns the name of the context in the kubeconfig; "" if there is none.
func contextName(from *serviceFlags) string {
	raw, err := kubeconfigOf(from.cluster.ClientConnection).RawConfig()
	if err != nil {
		return ""
	}
	return cmp.Or(from.cluster.Context, raw.CurrentContext)
}

// findEvery is how long the list of replicas counts.
const findEvery = 10 * time.Second

// mergeTimeout bounds what the page waits for a replica: the page asks again soon.
const mergeTimeout = 3 * time.Second

// merger reads from all replicas what the page asks for.
type merger struct {
	find    func(context.Context) ([]replicas.Replica, error)
	context string

	mu       sync.Mutex // one request of the page at a time reads from the replicas
	found    []replicas.Replica
	at       time.Time
	overview *ui.Overview // the latest one
}

// replicas returns the replicas, those that are ready first.
func (m *merger) replicas(ctx context.Context) ([]replicas.Replica, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) > findEvery {
		found, err := m.find(ctx)
		if err != nil {
			return nil, err
		}
		m.found, m.at = found, time.Now()
	}
	return replicas.Ready(m.found, m.overview), nil
}

// ServeHTTP implements http.Handler.
func (m *merger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, err := m.replicas(r.Context())
	if err != nil {
		noData(w, err.Error())
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), mergeTimeout, fmt.Errorf("no response after %s", mergeTimeout))
	defer cancel()
	query := r.URL.Query()
	switch r.URL.Path {
	case ui.OverviewPath:
		responses := replicas.FetchAll(ctx, all, replicas.FetchJSON[*ui.Overview](ui.OverviewPath))
		merged := replicas.Overview(responses, m.context)
		m.mu.Lock()
		m.overview = merged
		m.mu.Unlock()
		respond.JSON(w, r, merged, merged.Unstamped())
	case ui.WaitingPath:
		good, failed := replicas.Split(replicas.FetchAll(ctx, all, replicas.FetchJSON[[]*ui.WaitingRow](ui.WaitingPodsPath)))
		if len(good) == 0 {
			noData(w, "replica "+failed[0].Replica+": "+replicas.Reason(failed[0].Err))
			return
		}
		respond.JSON(w, r, replicas.Waiting(good, ui.QueryOf(query)), nil)
	case explain.Path:
		good, failed := replicas.Split(replicas.FetchAll(ctx, all, func(ctx context.Context, client *http.Client, admin string) (*explain.Document, error) {
			return explain.Fetch(ctx, client, admin, query)
		}))
		if len(good) == 0 {
			noData(w, "replica "+failed[0].Replica+": "+replicas.Reason(failed[0].Err))
			return
		}
		decisions, err := strconv.Atoi(query.Get("decisions"))
		if err != nil {
			decisions = explain.DefaultDecisions
		}
		doc := replicas.Explanation(good, decisions)
		respond.JSON(w, r, doc, nil)
	default:
		m.forward(w, r, &all[0])
	}
}

// noData responds with why there is no data, and what somebody can do about that. The page ends the
// sentence.
func noData(w http.ResponseWriter, why string) {
	if advice := ui.Advice(why); advice != "" {
		why += ". " + strings.TrimSuffix(advice, ".")
	}
	http.Error(w, why, http.StatusBadGateway)
}

// forward responds with what one replica responds.
func (m *merger) forward(w http.ResponseWriter, r *http.Request, to *replicas.Replica) {
	ctx, cancel := context.WithTimeout(r.Context(), replicas.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.RequestURI(), r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, name := range []string{"Content-Type", "If-None-Match", "Accept-Encoding", "Sec-Fetch-Site"} {
		if value := r.Header.Get(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	req.ContentLength = r.ContentLength
	res, err := to.RoundTrip(req)
	if err != nil {
		noData(w, "replica "+to.Name+": "+replicas.Reason(err))
		return
	}
	defer res.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Encoding", "ETag", "Vary"} {
		if value := res.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body) // the browser is gone if this fails
}
