// Package measure reads the processor time and the metrics of processes.
package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Main runs a measuring program until it returns or is interrupted. It ends the process with status 1 after an error.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Used returns how long this process has used a processor, in µs.
func Used() float64 {
	used, err := ProcessorTime(os.Getpid())
	if err != nil {
		panic(err)
	}
	return float64(used.Nanoseconds()) / 1e3
}

// ProcessorTime returns how long the process has used a processor since it began, with the resolution of the kernel's scheduler.
func ProcessorTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: see clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
