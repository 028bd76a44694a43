package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestDeadlines(t *testing.T) {
	const soon, never = deadlineInterval / 10, time.Hour
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for _, tc := range []struct {
		name   string
		set    func(c net.Conn, set func(time.Time) error) // one deadline
		passes bool
	}{
		{"none", func(net.Conn, func(time.Time) error) {}, false},
		{"far away", func(_ net.Conn, set func(time.Time) error) { set(at(never)) }, false},
		{"has passed", func(_ net.Conn, set func(time.Time) error) { set(at(-never)) }, true},
		{"passes", func(_ net.Conn, set func(time.Time) error) { set(at(soon)) }, true},
		{"taken back", func(_ net.Conn, set func(time.Time) error) { set(at(soon)); set(time.Time{}) }, false},
		{"later", func(_ net.Conn, set func(time.Time) error) { set(at(soon)); set(at(never)) }, false},
		{"earlier", func(_ net.Conn, set func(time.Time) error) { set(at(never)); set(at(soon)) }, true},
		{"has passed, taken back", func(_ net.Conn, set func(time.Time) error) { set(at(-never)); set(time.Time{}) }, false},
		{"has passed, later", func(_ net.Conn, set func(time.Time) error) { set(at(-never)); set(at(never)) }, false},
		{"has passed, passes again", func(_ net.Conn, set func(time.Time) error) { set(at(-never)); set(at(soon)) }, true},
		{"both", func(c net.Conn, _ func(time.Time) error) { c.SetDeadline(at(soon)) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := listen(t, 1)
			client, c := dialTo(t, l), accept(t, l)
			tc.set(c, c.SetReadDeadline)
			time.Sleep(2 * deadlineInterval)
			if !tc.passes {
				if _, err := client.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) != tc.passes {
				t.Errorf("Read: %v, and the deadline passes: %t", err, tc.passes)
			}
			tc.set(c, c.SetWriteDeadline)
			time.Sleep(2 * deadlineInterval)
			if _, err := c.Write([]byte{1}); errors.Is(err, os.ErrDeadlineExceeded) != tc.passes {
				t.Errorf("Write: %v, and the deadline passes: %t", err, tc.passes)
			}
		})
	}
}

// A read and a write that wait already end with the deadline.
func TestDeadlinesEndWhatWaits(t *testing.T) {
	l := listen(t, 1)
	dialTo(t, l)
	c := accept(t, l)
	for name, wait := range map[string]func() error{
		"Read": func() error {
			_ = c.SetReadDeadline(time.Now().Add(deadlineInterval))
			_, err := c.Read(make([]byte, 1))
			return err
		},
		"Write": func() error {
			_ = c.SetWriteDeadline(time.Now().Add(deadlineInterval))
			for part := make([]byte, 1<<20); ; { // until the client, which does not read, has no room
				if _, err := c.Write(part); err != nil {
					return err
				}
			}
		},
	} {
		if err := wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
