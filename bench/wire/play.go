package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"outboard.dev/outboard/bench/trials"
	"outboard.dev/outboard/test/measure"
)

const (
	outboardArm = "outboard"
	tutorialArm = "tutorial"
	idealArm    = "ideal"

	changePath = "/change"
)

// armNames are the arms, of which the first is the one that the others are compared with.
var armNames = []string{tutorialArm, idealArm, outboardArm}

// arm is one of the servers compared.
type arm struct {
	name string
	*trials.Server
	client *http.Client
	answer bytes.Buffer

	spent  spent   // in this round
	rounds []spent // per pair of calls
	sizes  [2]int  // of the latest answers, in bytes
}

// spent is processor time, in nanoseconds.
type spent struct{ filter, prioritize float64 }

func (s spent) pair() float64 { return s.filter + s.prioritize }

func startArm(ctx context.Context, name, recording string) (*arm, error) {
	server, err := trials.StartServer(ctx, os.Args[0], serveArgument, name, recording)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &arm{name: name, Server: server, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}, nil
}

// used is the processor time that the arm's process has used so far, in nanoseconds.
func (a *arm) used() (float64, error) {
	t, err := measure.ProcessorTime(a.PID())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", a.name, err)
	}
	return float64(t.Nanoseconds()), nil
}

// usedAtRest is the processor time that the arm has used when it has stopped using any.
func (a *arm) usedAtRest() (float64, error) {
	const quiet, pause = 2000, 100 * time.Microsecond // in nanoseconds; waiting is not counted
	last, err := a.used()
	for err == nil {
		time.Sleep(pause)
		var now float64
		if now, err = a.used(); now-last < quiet {
			return now, err
		}
		last = now
	}
	return 0, err
}

func (a *arm) post(path string, body []byte) error {
	res, err := a.client.Post(a.URL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	defer res.Body.Close()
	a.answer.Reset()
	if _, err := a.answer.ReadFrom(res.Body); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %.200s", a.name, res.Status, &a.answer)
	}
	return nil
}

// player plays calls to arms.
type player struct {
	calls []call
	cold  []byte // is touched before each call
}

// turnLength is how many pods an arm gets in a row.
const turnLength = 5

// playRound plays every call to every arm, in turns. The first quarter of an arm's first round warms it up.
func (p *player) playRound(ctx context.Context, arms []*arm) error {
	counted := 0
	for first := 0; first < len(p.calls); first += turnLength {
		turn := p.calls[first:min(first+turnLength, len(p.calls))]
		counts := len(arms[0].rounds) > 0 || first >= len(p.calls)/4
		for _, a := range trials.Turn(arms, first/turnLength) {
			for _, c := range turn {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := p.playPair(a, c, counts); err != nil {
					return err
				}
			}
		}
		if counts {
			counted += len(turn)
		}
	}
	for _, a := range arms {
		n := float64(counted)
		a.rounds = append(a.rounds, spent{a.spent.filter / n, a.spent.prioritize / n})
		a.spent = spent{}
	}
	return nil
}

// playPair plays a filter call, the prioritize call that follows from the answer, and the change of the cluster that a binding
// would be, which is not counted.
func (p *player) playPair(a *arm, c call, counts bool) error {
	filter, err := p.playCall(a, "/filter", c.body)
	if err != nil {
		return err
	}
	a.sizes[0] = a.answer.Len()
	body, err := prioritizeBody(c.body, a.answer.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	prioritize, err := p.playCall(a, "/prioritize", body)
	if err != nil {
		return err
	}
	a.sizes[1] = a.answer.Len()
	if counts {
		a.spent.filter += filter
		a.spent.prioritize += prioritize
	}
	if a.name != outboardArm {
		return nil
	}
	if err := a.post(changePath, nil); err != nil {
		return err
	}
	_, err = a.usedAtRest()
	return err
}

// playCall returns the processor time that the call takes.
func (p *player) playCall(a *arm, path string, body []byte) (float64, error) {
	const line = 64 // bytes of a line of the processor's caches
	for i := 0; i < len(p.cold); i += line {
		p.cold[i]++
	}
	before, err := a.used()
	if err != nil {
		return 0, err
	}
	if err := a.post(path, body); err != nil {
		return 0, err
	}
	after, err := a.usedAtRest()
	return after - before, err
}
