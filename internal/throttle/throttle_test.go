package throttle_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outboard.dev/outboard/internal/throttle"
)

// book is a text for concurrent writers.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *book) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

// The handler writes a few records of each kind in a period, and then the number of dropped ones,
// even if no record follows.
func TestRecordsAreLeftOutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out book
		logger := slog.New(slog.NewTextHandler(&out, nil))
		lines := func(with string) int {
			n := 0
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, with) {
					n++
				}
			}
			return n
		}
		var log throttle.Log
		for i := range 1000 {
			log.Log(logger, slog.LevelWarn, "many", "too much", "i", i)
			log.Log(logger, slog.LevelDebug, "many", "not of this level")
		}
		log.Log(logger, slog.LevelWarn, "one", "another cause", "of", "it")
		if lines(`msg="too much" i=`) != throttle.Burst || lines("another cause") != 1 || lines("suppressed") != 0 {
			t.Errorf("at once:\n%s", &out)
		}
		time.Sleep(throttle.Period)
		synctest.Wait()
		if lines(`msg="too much" suppressed=990`) != 1 || lines("suppressed") != 1 {
			t.Errorf("after a period:\n%s", &out)
		}
		out.Reset()
		log.Log(logger, slog.LevelWarn, "many", "too much", "i", 1000)
		time.Sleep(time.Hour)
		synctest.Wait()
		if lines("i=1000") != 1 || lines("") != 1 {
			t.Errorf("in the next period:\n%s", &out)
		}

		// The number of lines and the memory are bounded for any number of kinds.
		out.Reset()
		for i := range 10_000 {
			log.Log(logger, slog.LevelWarn, fmt.Sprint("kind ", i), "of many kinds")
		}
		if n := lines("of many kinds"); n < 50 || n > 200 {
			t.Errorf("%d lines of 10,000 kinds", n)
		}
		time.Sleep(2 * throttle.Period)
		synctest.Wait()
		out.Reset()
		for i := range 50 {
			log.Log(logger, slog.LevelWarn, fmt.Sprint("new kind ", i), "of a few kinds")
		}
		if n := lines("of a few kinds"); n != 50 {
			t.Errorf("%d lines of 50 kinds after the others", n)
		}
	})
}
