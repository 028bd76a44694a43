// Package lmstat reads the features that FlexNet's license manager prints: the output of `lmutil
// lmstat -a`.
package lmstat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"outboard.dev/outboard/signal"
)

const (
	// maxLine bounds the part of a line that is read: many times the length of lmstat's lines.
	maxLine = 64 << 10
	// maxFeatures bounds the cost of a hostile document. A signal has at most 100000 values, and a
	// feature takes two.
	maxFeatures = 50_000
	// maxSeats is more than lmstat has digits for.
	maxSeats = 1_000_000_000
	// maxQuote bounds the part of a line in an error.
	maxQuote = 200
)

// Parse returns two samples for each counted feature: FEATURE/total, the seats that the server has,
// and FEATURE/used, those that are checked out or reserved. They are in order of key.
//
// Seats on hosts that match one of the patterns of ignoreHosts (as in path.Match, in any case) do
// not count as used. A seat counts unless it is certain that it is on such a host: so reservations
// count, and seats of users whose names contain a space.
//
// A feature of several servers or vendor daemons is summed up; a duplicate server counts once. A
// feature that its server does not offer has no seats, and uncounted features are left out. Text
// without any feature is an error, and so is a feature whose numbers cannot be read.
func Parse(r io.Reader, ignoreHosts []string) ([]signal.Sample, error) {
	p := parser{features: map[string]*feature{}, servers: map[string]bool{}}
	for _, pattern := range ignoreHosts {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%.100q is not a pattern", pattern)
		}
		p.ignored = append(p.ignored, strings.ToLower(pattern))
	}
	lines := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return p.samples()
		}
		if err != nil {
			return nil, err
		}
		if err := p.take(strings.TrimSpace(string(line))); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// readLine returns the next line, or its start, valid until the next call; io.EOF after the last
// one.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return line, err
}

// feature is the data of one feature.
type feature struct {
	uncounted   bool
	total, used int64
}

// usage is the use of a feature of one server or daemon.
type usage struct {
	used    int64 // as reported by the server
	ignored int64 // of the listed ones, seats on ignored hosts
	others  int64 // of the listed ones, all other seats
}

// left returns how many seats count as used. The server's number may be less than that of the
// listed seats, if users share one; then no listed seat of an ignored host is subtracted for
// another user.
func (u usage) left() int64 {
	return min(u.used, max(u.used-u.ignored, u.others))
}

type parser struct {
	ignored  []string
	features map[string]*feature
	servers  map[string]bool // as in "License server status"
	repeated bool            // this server occurred before
	current  *feature        // the feature whose users follow; nil: none
	listed   usage           // of current, so far
	trouble  string          // the first line with an error
}

// take parses one line.
func (p *parser) take(line string) error {
	if rest, ok := strings.CutPrefix(line, "License server status:"); ok {
		p.finish()
		server := strings.TrimSpace(rest)
		p.repeated = p.servers[server]
		p.servers[strings.Clone(server)] = true
		return nil
	}
	if rest, ok := strings.CutPrefix(line, "Users of "); ok {
		p.finish()
		return p.begin(rest)
	}
	if p.current != nil {
		p.user(line)
	} else if p.trouble == "" && (strings.Contains(line, "Cannot ") || strings.Contains(line, " down") || strings.HasPrefix(line, "Error ")) {
		p.trouble = quote(line)
	}
	return nil
}

// begin parses the line of a feature, without its first words.
func (p *parser) begin(line string) error {
	name, rest, ok := strings.Cut(line, ":")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsFunc(name, unusual) {
		return fmt.Errorf("no feature is named in %q", quote(line))
	}
	if p.repeated {
		return nil
	}
	f := p.features[name]
	if f == nil {
		if len(p.features) >= maxFeatures {
			return signal.ErrTooMany
		}
		f = &feature{}
		p.features[strings.Clone(name)] = f
	}
	switch rest = strings.TrimSpace(rest); {
	case strings.HasPrefix(rest, "(Total of "):
		issued, used, _ := strings.Cut(rest, ";")
		total, err := seatsIn(issued, "(Total of ")
		if err != nil {
			return err
		}
		if p.listed.used, err = seatsIn(used, "Total of "); err != nil {
			return err
		}
		f.total += total
		p.current = f
	case strings.HasPrefix(strings.ToLower(rest), "(uncounted"):
		f.uncounted = true
	case strings.HasPrefix(rest, "(Error") || strings.HasPrefix(rest, "Cannot "):
		// The server has the feature, but does not offer it.
	default:
		return fmt.Errorf("%q does not contain the seats of %q", quote(rest), name)
	}
	return nil
}

// user parses a line below a feature.
func (p *parser) user(line string) {
	// user host [display ...] (version) (server/port handle), start Fri 9/25 11:44[, 5 licenses][,
	// PID: 1][ (linger: 60)]
	at := strings.LastIndex(line, "), start ")
	if at < 0 {
		return // a reservation, a waiting user, or the kind of license
	}
	seats := int64(1)
	for part := range strings.SplitSeq(line[at:], ",") {
		if fields := strings.Fields(part); len(fields) > 1 && strings.HasPrefix(fields[1], "license") {
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil && n > 0 && n <= maxSeats {
				seats = n
			}
		}
	}
	if fields := strings.Fields(line[:at]); len(fields) > 1 && p.ignores(fields[1]) {
		p.listed.ignored += seats
	} else {
		p.listed.others += seats
	}
}

func (p *parser) ignores(host string) bool {
	host = strings.ToLower(host)
	return slices.ContainsFunc(p.ignored, func(pattern string) bool {
		ok, err := path.Match(pattern, host)
		return err == nil && ok
	})
}

// finish adds up the feature after its users.
func (p *parser) finish() {
	if p.current != nil {
		p.current.used += p.listed.left()
	}
	p.current, p.listed = nil, usage{}
}

func (p *parser) samples() ([]signal.Sample, error) {
	p.finish()
	if len(p.features) == 0 && p.trouble != "" {
		return nil, fmt.Errorf("it says: %s", p.trouble)
	}
	if len(p.features) == 0 {
		return nil, errors.New("not the output of lmstat -a: it has no feature")
	}
	var samples []signal.Sample
	for _, name := range slices.Sorted(maps.Keys(p.features)) {
		f := p.features[name]
		if f.uncounted {
			continue
		}
		samples = append(samples,
			signal.Sample{Key: name + "/total", Number: float64(f.total)},
			signal.Sample{Key: name + "/used", Number: float64(f.used)})
	}
	return samples, nil
}

// seatsIn returns the number after the words before.
func seatsIn(text, before string) (int64, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), before)
	digits, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || n > maxSeats {
		return 0, fmt.Errorf("no number of seats in %q", quote(text))
	}
	return n, nil
}

func unusual(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// quote returns the part of a line for an error.
func quote(line string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line[:min(len(line), maxQuote)])
}
