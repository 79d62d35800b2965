package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress draws a bar on a terminal, and nothing anywhere else.
type progress struct {
	out   io.Writer // nil: silent
	what  string
	total int64
	done  int64
	drawn time.Time
	start time.Time
}

func newProgress(what string, total int64) *progress {
	p := &progress{what: what, total: total, start: time.Now()}
	if st, err := os.Stderr.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		p.out = os.Stderr
	}
	return p
}

// add counts n more bytes. It draws at most ten times a second.
func (p *progress) add(n int) {
	p.done += int64(n)
	if p.out == nil || p.done < p.total && time.Since(p.drawn) < 100*time.Millisecond {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.out, "\r%s", p.bar())
	if p.done == p.total {
		fmt.Fprintln(p.out)
	}
}

// bar returns the line to draw: what, how much, how fast.
func (p *progress) bar() string {
	const width = 30
	full := width
	if p.total > 0 {
		full = int(p.done * width / p.total)
	}
	return fmt.Sprintf("%-5s [%s%s] %s of %s, %s",
		p.what, strings.Repeat("=", full), strings.Repeat(" ", width-full),
		mebibytes(p.done), mebibytes(p.total), rate(p.done, time.Since(p.start)))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func rate(n int64, d time.Duration) string {
	if d <= 0 {
		return "- GB/s"
	}
	return fmt.Sprintf("%.3f GB/s", float64(n)/1e9/d.Seconds())
}
