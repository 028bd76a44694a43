package ui

import (
	"embed"
	"io/fs"
	"net/http"
)

// Path is the path of the page.
const Path = "/ui/"

//go:embed static
var static embed.FS

// contentSecurityPolicy lets the page use only what its own address serves. Styles that scripts set
// on elements are not style attributes, so they need no exception.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the files of the page below Path, and redirects "/" there. It does not serve the
// data.
func Handler() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // static is part of the binary
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, http.StripPrefix(Path, http.FileServerFS(files)))
	mux.Handle("GET /{$}", http.RedirectHandler(Path, http.StatusFound))
	return Protect(mux)
}

// Protect sets headers with which browsers let no other page read, embed or script what h serves.
func Protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache") // the page and the data are those of the binary that runs
		h.ServeHTTP(w, r)
	})
}
