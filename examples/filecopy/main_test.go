package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
)

// The test binary is the program too.
func TestMain(m *testing.M) {
	if os.Getenv("FILECOPY_MAIN") != "" {
		main()
		os.Exit(0)
	}
	rdmatest.Main(m)
}

// testDevice returns a device that filecopy can use.
func testDevice(t *testing.T) string {
	t.Helper()
	device := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, device, rdmatest.Connections)
	return device
}

// program returns the program with arguments, as a process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FILECOPY_MAIN=1", "GORACE=atexit_sleep_ms=0") // no nap at its end
	return cmd
}

// wantFailure runs the program, which must fail with status 1 and one line.
func wantFailure(t *testing.T, cmd *exec.Cmd, words ...string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	checkFailure(t, err, stderr.String(), words...)
}

func checkFailure(t *testing.T, err error, stderr string, words ...string) {
	t.Helper()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	if n := strings.Count(stderr, "\n"); n != 1 {
		t.Errorf("said %d lines, want 1:\n%s", n, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stderr, w) {
			t.Errorf("does not say %q: %s", w, stderr)
		}
	}
}

// wantEmpty fails unless nothing is left in dir, not even under another name.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", e.Name())
	}
}

func randomFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := writeRandom(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// server is a process that serves a file.
type server struct {
	*exec.Cmd
	addr   string
	stderr bytes.Buffer
}

func startServer(t *testing.T, device, file, back string) *server {
	t.Helper()
	s := &server{Cmd: program(t, "serve", "-device", device, "-listen", "127.0.0.1:0", "-back", back, file)}
	s.Cmd.Stderr = &s.stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v %s", s.Wait(), s.stderr.String())
	}
	_, s.addr, _ = strings.Cut(strings.TrimSpace(line), " at ")
	return s
}

func TestFilesOfAllSizesComeBack(t *testing.T) {
	device := testDevice(t)
	for _, size := range []int64{0, 1, chunkSize, windowSize + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			file, back, dir := randomFile(t, size), filepath.Join(t.TempDir(), "back"), t.TempDir()
			s := startServer(t, device, file, back)
			copied := filepath.Join(dir, "copy")
			out, err := program(t, "get", "-device", device, "-from", s.addr, copied).CombinedOutput()
			if err != nil {
				t.Fatalf("get: %v\n%s", err, out)
			}
			if err := s.Wait(); err != nil {
				t.Fatalf("serve: %v\n%s", err, s.stderr.String())
			}
			if !strings.Contains(string(out), "sha256 ok") {
				t.Errorf("the client said %q", out)
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{copied, back} {
				if got, err := os.ReadFile(f); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, error %v, differs from the %d of the file", f, len(got), err, len(want))
				}
			}
		})
	}
}

func TestDemoCopies(t *testing.T) {
	testDevice(t)
	out, err := program(t, "demo", "-size", "1").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "sha256 ok\n") {
		t.Errorf("demo: %v\n%s", err, out)
	}
}

func TestWrongInputSaysOneLine(t *testing.T) {
	dir := t.TempDir()
	file := randomFile(t, 1)
	for name, c := range map[string]struct {
		args  []string
		words string
	}{
		"no file":          {[]string{"serve", "-listen", "127.0.0.1:0", "-back", dir + "/back", dir + "/none"}, "no such file"},
		"folder":           {[]string{"serve", "-listen", "127.0.0.1:0", "-back", dir + "/back", dir}, "not a regular file"},
		"no folder":        {[]string{"get", "-from", "127.0.0.1:1", dir + "/none/copy"}, "no such file"},
		"no server":        {[]string{"get", "-from", "127.0.0.1:1", dir + "/copy"}, "connection refused"},
		"address":          {[]string{"serve", "-listen", "nonsense", "-back", dir + "/back", file}, "nonsense"},
		"negative demo":    {[]string{"demo", "-size", "-1"}, "allowed is 0 to"},
		"overflowing demo": {[]string{"demo", "-size", "17592186044416"}, "allowed is 0 to"}, // 2⁴⁴, times 2²⁰ is 0
		"copy is a folder": {[]string{"get", "-from", "127.0.0.1:1", dir}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, c.args...)
			cmd.Stdout = io.Discard
			wantFailure(t, cmd, c.words)
			wantEmpty(t, dir)
		})
	}
}

func TestUsageIsShownForMissingArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"serve"}, {"get", "x"}, {"demo", "x"}, {"dance"}} {
		out, err := program(t, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "usage:") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestPortInUseIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	wantFailure(t, program(t, "serve", "-listen", l.Addr().String(), "-back", dir+"/back", randomFile(t, 1)), "address already in use")
	wantEmpty(t, dir)
}

func TestUnknownDeviceIsSaid(t *testing.T) {
	device := testDevice(t)
	dir := t.TempDir()
	s := startServer(t, device, randomFile(t, 1), filepath.Join(t.TempDir(), "back"))
	wantFailure(t, program(t, "get", "-device", "nonesuch_9", "-from", s.addr, dir+"/copy"), "nonesuch_9", device)
	wantEmpty(t, dir)
	if err := s.Wait(); err == nil {
		t.Error("the server ended well without a client")
	}
}

func TestForbiddenFolderIsSaid(t *testing.T) {
	// Nobody can create files in sysfs, root neither.
	wantFailure(t, program(t, "get", "-from", "127.0.0.1:1", "/sys/copy"), "permission denied")
}

// copyUntil runs a copy of a file that is too large to end soon, and calls
// midway once the client has begun to store it.
func copyUntil(t *testing.T, dir string, midway func(s *server, client *exec.Cmd)) (s *server, said string, clientErr error) {
	t.Helper()
	device := testDevice(t)
	s = startServer(t, device, randomFile(t, 64<<20), filepath.Join(t.TempDir(), "back"))
	client := program(t, "get", "-device", device, "-from", s.addr, filepath.Join(dir, "copy"))
	var stderr bytes.Buffer
	client.Stderr = &stderr
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- client.Wait() }()
	for begun := false; !begun; {
		select {
		case err := <-ended:
			t.Fatalf("the client ended early: %v %s", err, stderr.String())
		default:
			files, _ := filepath.Glob(filepath.Join(dir, ".copy.*"))
			for _, f := range files {
				st, err := os.Stat(f)
				begun = begun || err == nil && st.Size() > 0
			}
		}
	}
	midway(s, client)
	err := <-ended
	return s, stderr.String(), err
}

func TestServerKilledMidwayLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	s, said, err := copyUntil(t, dir, func(s *server, _ *exec.Cmd) { s.Process.Kill() })
	s.Wait()
	checkFailure(t, err, said, "the peer is gone")
	wantEmpty(t, dir)
}

func TestClientKilledMidwayEndsServer(t *testing.T) {
	s, _, _ := copyUntil(t, t.TempDir(), func(_ *server, client *exec.Cmd) { client.Process.Kill() })
	checkFailure(t, s.Wait(), s.stderr.String(), "the peer is gone")
}

func TestInterruptedClientLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	s, said, err := copyUntil(t, dir, func(_ *server, client *exec.Cmd) { client.Process.Signal(syscall.SIGINT) })
	s.Wait()
	checkFailure(t, err, said, "interrupted")
	wantEmpty(t, dir)
}

func TestServedFileThatShrinksIsSaidAtBothEnds(t *testing.T) {
	dir := t.TempDir()
	s, said, err := copyUntil(t, dir, func(s *server, _ *exec.Cmd) {
		os.Truncate(s.Args[len(s.Args)-1], 0)
	})
	checkFailure(t, err, said, "the peer failed", "changed while it was read")
	checkFailure(t, s.Wait(), s.stderr.String(), "changed while it was read")
	wantEmpty(t, dir)
}

func TestPendingFileIsSeenOnlyWhole(t *testing.T) {
	dir := t.TempDir()
	final := filepath.Join(dir, "file")
	f, err := newPendingFile(final)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("half"))
	f.discard()
	wantEmpty(t, dir)

	if f, err = newPendingFile(final); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("whole"))
	if err := f.commit(); err != nil {
		t.Fatal(err)
	}
	f.discard() // does nothing now
	if b, err := os.ReadFile(final); string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestProgressBarAtTheEnds(t *testing.T) {
	for _, c := range []struct{ done, total int64 }{{0, 0}, {0, 10}, {5, 10}, {10, 10}} {
		p := newProgress("read", c.total)
		p.done = c.done
		if bar := p.bar(); !strings.Contains(bar, "MiB of") || len(bar) < 40 {
			t.Errorf("%v: %q", c, bar)
		}
	}
}

// A client that speaks nonsense, or nothing, ends the server with one line.
func TestForeignClientEndsServer(t *testing.T) {
	device := testDevice(t)
	s := startServer(t, device, randomFile(t, 1), filepath.Join(t.TempDir(), "back"))
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
	defer conn.Close()
	checkFailure(t, s.Wait(), s.stderr.String(), "exchange")
}
