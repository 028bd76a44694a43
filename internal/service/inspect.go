package service

import (
	"encoding/json"
	"net/http"
	"strings"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/policy"
)

// InspectPath is the path at the admin address for each [policy.Inspector] of all profiles.
const InspectPath = "/inspect"

// Inspect writes the response of the [policy.Inspector] of a profile, if the request is for a path
// below that of the profile. Tools of gpushare expect it there. It returns false, and writes
// nothing, if no policy has the path.
func (s *Service) Inspect(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	c := s.current.Load().Config
	for i := range c.Profiles {
		if path, ok := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(c.Profiles[i].Path, "/")+"/"); ok && s.show(w, &c.Profiles[i], path) {
			return true
		}
	}
	return false
}

// InspectAny writes the response of the first [policy.Inspector] that has the path below
// InspectPath.
func (s *Service) InspectAny(w http.ResponseWriter, r *http.Request) {
	c := s.current.Load().Config
	for i := range c.Profiles {
		if s.show(w, &c.Profiles[i], strings.TrimPrefix(r.URL.Path, InspectPath+"/")) {
			return
		}
	}
	http.Error(w, "no policy of the configuration shows anything here", http.StatusNotFound)
}

func (s *Service) show(w http.ResponseWriter, profile *config.Profile, path string) bool {
	if s.Cluster == nil {
		return false
	}
	for _, m := range profile.Policies {
		inspector, ok := m.Policy.(policy.Inspector)
		if !ok {
			continue
		}
		shown, found := inspector.Inspect(s.Cluster.View(), path)
		if !found {
			continue
		}
		encoded, err := json.Marshal(shown)
		if err != nil {
			s.logger.Error("cannot encode what a policy shows", "policy", m.Name, "path", path, "error", err)
			http.Error(w, "internal error", http.StatusInternalServerError)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encoded) // the connection is gone if this fails
		return true
	}
	return false
}
