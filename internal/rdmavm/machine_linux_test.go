package rdmavm

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestMachine boots real guests. They share one built command and a cache of
// their own, in which the kernel is that of the user's.
func TestMachine(t *testing.T) {
	l := newLauncher(t)
	// The first run boots and saves the guest, the others restore it.
	t.Run("devices", l.testDevices)
	t.Run("exit status and streams", l.testExitStatus)
	t.Run("stdin and stdout byte by byte", l.testStreams)
	t.Run("stdin that nobody reads", l.testUnreadStdin)
	t.Run("stdout on a full disk", l.testFullDisk)
	t.Run("arguments, environment, folder", l.testEnvironment)
	t.Run("clock and random numbers", l.testRestoredState)
	t.Run("signals", l.testSignal)
	t.Run("processes left behind", l.testLeftBehind)
	t.Run("programs that cannot run", l.testNotRunnable)
	t.Run("host stays as it was", l.testHostUntouched)
	t.Run("time limit", l.testTimeout)
	t.Run("kernel panic", l.testPanic)
	t.Run("kernel warning", l.testWarning)
	t.Run("power off", l.testPowerOff)
	t.Run("silent guest", l.testSilentGuest)
	t.Run("no boot", l.testNoBoot)
	t.Run("launcher killed", l.testLauncherKilled)
	t.Run("damaged state", l.testDamagedState)
	t.Run("launchers at once", l.testConcurrent)
	t.Run("KVM that does not work", l.testBrokenKVM)
	t.Run("go test", l.testGoTest)
}

// A launcher is the built command.
type launcher struct {
	path  string
	cache string
	root  string // of the module
}

func newLauncher(t *testing.T) *launcher {
	t.Helper()
	if testing.Short() {
		rdmatest.Skip(t, "boots virtual machines, which -short leaves out")
	}
	if os.Getenv("RDMAVM_GUEST") != "" {
		rdmatest.Skip(t, "boots virtual machines, which are not nested: run this package on the host")
	}
	if err := needTools("this test", qemuTool); err != nil {
		rdmatest.Skip(t, err.Error())
	}
	users, err := openCache(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := users.cachedKernel(DefaultKernelPackage)
	if !ok {
		rdmatest.Skip(t, "needs a kernel for the guest: go run ./cmd/rdmavm -fetch-kernel")
	}
	dir := t.TempDir()
	l := &launcher{path: filepath.Join(dir, "rdmavm"), cache: filepath.Join(dir, "cache")}
	l.useKernel(t, k, l.cache)
	if l.root, err = filepath.Abs("../.."); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", l.path, "./cmd/rdmavm") // static, whatever CGO_ENABLED is
	build.Dir = l.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return l
}

// useKernel makes a cache folder that has the kernel.
func (l *launcher) useKernel(t *testing.T, k kernel, cache string) {
	t.Helper()
	packages := filepath.Join(cache, "rdmavm", "packages")
	if err := os.MkdirAll(packages, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(k.dir, filepath.Join(packages, DefaultKernelPackage)); err != nil {
		t.Fatal(err)
	}
}

// A result is how a run ended.
type result struct {
	status         int
	stdout, stderr string
}

// command is a run that is not started yet. Nothing of it should take minutes.
func (l *launcher) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, l.path, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+l.cache, "RDMAVM_FLAGS=-mode=vm")
	return cmd
}

func (l *launcher) run(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, l.command(t, args...))
}

// shell runs a script in a guest.
func (l *launcher) shell(t *testing.T, script string, flags ...string) result {
	t.Helper()
	return l.run(t, append(flags, "/bin/sh", "-c", script)...)
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want compares a result; stderr has to contain each of the given texts.
func (r result) want(t *testing.T, status int, stdout string, stderr ...string) {
	t.Helper()
	if r.status != status || r.stdout != stdout {
		t.Errorf("status %d, stdout %q; want %d, %q\nstderr:\n%s", r.status, r.stdout, status, stdout, r.stderr)
	}
	for _, s := range stderr {
		if !strings.Contains(r.stderr, s) {
			t.Errorf("stderr lacks %q:\n%s", s, r.stderr)
		}
	}
}

func (l *launcher) testDevices(t *testing.T) {
	script := `cd /sys/class/infiniband; for d in *; do echo $d $(cat $d/ports/1/state) $(cat $d/ports/1/gids/1); done; cd /dev/infiniband; ls -d rdma_cm umad* uverbs*`
	l.shell(t, script).want(t, 0, "rxe0 4: ACTIVE 0000:0000:0000:0000:0000:ffff:0a4d:0001\n"+
		"rxe1 4: ACTIVE 0000:0000:0000:0000:0000:ffff:0a4d:0002\n"+
		"rdma_cm\numad0\numad1\nuverbs0\nuverbs1\n")
}

func (l *launcher) testExitStatus(t *testing.T) {
	l.shell(t, "echo out; echo err >&2").want(t, 0, "out\n", "err\n")
	r := l.shell(t, "echo out; echo err >&2; exit 42")
	r.want(t, 42, "out\n")
	if r.stderr != "err\n" {
		t.Errorf("stderr %q", r.stderr)
	}
	l.shell(t, "echo out; kill -SEGV $$").want(t, 139, "out\n", "signal 11")
}

func (l *launcher) testStreams(t *testing.T) {
	data := make([]byte, 3_000_000)
	rand.Read(data)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	cmd := l.command(t, "/bin/sh", "-c", "sha256sum")
	cmd.Stdin = bytes.NewReader(data)
	finish(t, cmd).want(t, 0, sum+"  -\n")

	cmd = l.command(t, "/bin/cat")
	cmd.Stdin = bytes.NewReader(data)
	if r := finish(t, cmd); r.status != 0 || r.stdout != string(data) || r.stderr != "" {
		t.Errorf("cat: status %d, %d bytes of %d came back, or others; stderr %q", r.status, len(r.stdout), len(data), r.stderr)
	}
	// A reader of the output that comes late loses nothing.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd = l.command(t, "/bin/sh", "-c", "head -c 1000000 /dev/zero; echo done >&2")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	n, err := io.Copy(io.Discard, r)
	if waitErr := cmd.Wait(); n != 1_000_000 || err != nil || waitErr != nil {
		t.Errorf("%d bytes of 1000000, %v, %v\n%s", n, err, waitErr, stderr.String())
	}
}

func (l *launcher) testFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := l.command(t, "/bin/sh", "-c", "echo out; sleep 1000")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	result{cmd.ProcessState.ExitCode(), "", stderr.String()}.want(t, ExitFailure, "", "output is lost", "no space left")
}

func (l *launcher) testUnreadStdin(t *testing.T) {
	cmd := l.command(t, "/bin/sh", "-c", "exec <&-; exit 5")
	cmd.Stdin = bytes.NewReader(make([]byte, 3_000_000))
	finish(t, cmd).want(t, 5, "")
	// Open for ever, and empty.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd = l.command(t, "/bin/sh", "-c", "exit 6")
	cmd.Stdin = r
	finish(t, cmd).want(t, 6, "")
}

func (l *launcher) testEnvironment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder, with commas")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := l.command(t, "/bin/sh", "-c", `pwd; printf '%s|' "$@" "$ODD" "$RDMAVM_GUEST" "$RDMA_TEST_REQUIRE"; id -u`, "sh", "", "a b", "\xff\n")
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "ODD=\xc3(", "RDMA_TEST_REQUIRE=")
	finish(t, cmd).want(t, 0, dir+"\n|a b|\xff\n|\xc3(|1|1|0\n")

	cmd = l.command(t, "/bin/sh", "-c", "echo $RDMA_TEST_REQUIRE")
	cmd.Env = append(cmd.Env, "RDMA_TEST_REQUIRE=0")
	finish(t, cmd).want(t, 0, "0\n")
}

func (l *launcher) testRestoredState(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		before := time.Now().Unix()
		r := l.shell(t, "cat /proc/sys/kernel/random/uuid; date +%s")
		r.want(t, 0, r.stdout)
		uuid, date, _ := strings.Cut(strings.TrimSpace(r.stdout), "\n")
		if seen[uuid] {
			t.Errorf("two guests drew the same random number %s", uuid)
		}
		seen[uuid] = true
		now, err := strconv.ParseInt(date, 10, 64)
		if err != nil || now < before || now > time.Now().Unix()+1 {
			t.Errorf("the guest's clock is %s, the host's was %d before", date, before)
		}
	}
}

// lineReader waits for a line of a running command's stdout.
func lineReader(t *testing.T, cmd *exec.Cmd) (wait func(line string)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return func(line string) {
		t.Helper()
		b := make([]byte, len(line)+1)
		if _, err := io.ReadFull(out, b); err != nil || string(b) != line+"\n" {
			t.Fatalf("stdout %q, %v; want %q", b, err, line)
		}
	}
}

func (l *launcher) testSignal(t *testing.T) {
	cmd := l.command(t, "/bin/sh", "-c", `trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done`)
	wait := lineReader(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait("ready")
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait("caught")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("status %d, want 7", cmd.ProcessState.ExitCode())
	}
}

func (l *launcher) testLeftBehind(t *testing.T) {
	// The sleeper holds the streams open; it must not hold up the end.
	l.shell(t, "sleep 1000 & echo out; exit 3", "-timeout", "1m").want(t, 3, "out\n")
}

func (l *launcher) testNotRunnable(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"data": 0o644, "garbage": 0o755, "wrong": 0o755} {
		content := "\x7fELF, but not really"
		if name == "wrong" {
			content = "#!/no/such/interpreter\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	l.run(t, filepath.Join(dir, "missing")).want(t, ExitNotFound, "", "no such file")
	l.run(t, filepath.Join(dir, "data")).want(t, ExitNotRunnable, "", "permission denied")
	l.run(t, filepath.Join(dir, "garbage")).want(t, ExitNotRunnable, "", "exec format error")
	l.run(t, filepath.Join(dir, "wrong")).want(t, ExitNotFound, "", "no such file")
	l.run(t, "-mode=cloud", "/bin/true").want(t, ExitFailure, "", `mode "cloud"`)
	l.run(t, "-rw", filepath.Join(dir, "missing"), "/bin/true").want(t, ExitFailure, "", "writable folder")
	l.run(t).want(t, ExitFailure, "", "Usage")
	l.run(t, "-h").want(t, 0, "", "Usage", "-fetch-kernel")
}

func (l *launcher) testHostUntouched(t *testing.T) {
	dir := t.TempDir()
	shared := filepath.Join(dir, "shared")
	for _, d := range []string{shared, filepath.Join(dir, "kept")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(dir, "kept", "file")
	if err := os.WriteFile(kept, []byte("as it was"), 0o644); err != nil {
		t.Fatal(err)
	}
	names := []string{"/etc/rdmavm-test", "/tmp/rdmavm-test", "/rdmavm-test", "/dev/shm/rdmavm-test", "/run/rdmavm-test", "/usr/bin/rdmavm-test"}
	script := fmt.Sprintf(`
set -e
for f in %s; do echo new >$f; test "$(cat $f)" = new; done
cd %q
echo changed >kept/file; chmod 600 kept/file; test "$(cat kept/file)" = changed; rm kept/file; rmdir kept
echo new >file
mkdir -p shared/sub; echo through >shared/sub/file; mv shared/sub/file shared/sub/moved`, strings.Join(names, " "), dir)
	l.shell(t, script, "-rw", shared).want(t, 0, "")
	for _, name := range names {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s came through to the host: %v", name, err)
		}
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "as it was" {
		t.Errorf("a file was changed: %q, %v", b, err)
	}
	if diff := cmp.Diff([]string{"kept", "shared"}, list(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(filepath.Join(shared, "sub", "moved")); err != nil || string(b) != "through\n" {
		t.Errorf("what was written to a shared folder: %q, %v", b, err)
	}
}

func (l *launcher) testTimeout(t *testing.T) {
	l.shell(t, "echo out; sleep 1000", "-timeout", "2s").want(t, ExitTimeout, "out\n", "ran past its limit of 2s")
}

func (l *launcher) testPanic(t *testing.T) {
	l.shell(t, "echo out; echo c >/proc/sysrq-trigger; sleep 1000").
		want(t, ExitFailure, "out\n", "failed before the program ended", "Kernel panic - not syncing: sysrq triggered crash")
}

// kernelWarning makes the kernel's log say what it would say after a WARN_ON.
const kernelWarning = `echo '<4>WARNING: CPU: 0 PID: 1 at drivers/test.c:1 test+0x1/0x2' >/dev/kmsg; echo out; exit `

func (l *launcher) testWarning(t *testing.T) {
	l.shell(t, kernelWarning+"0").want(t, ExitFailure, "out\n", "WARNING: CPU: 0 PID: 1 at drivers/test.c:1", "voids the result")
	l.shell(t, kernelWarning+"3").want(t, 3, "out\n", "WARNING: CPU: 0 PID: 1 at drivers/test.c:1")
	l.shell(t, kernelWarning+"0", "-allow-warning", `drivers/test\.c:\d+ test`).want(t, 0, "out\n")
	l.shell(t, kernelWarning+"0", "-allow-warning", `drivers/other`).want(t, ExitFailure, "out\n")
}

func (l *launcher) testPowerOff(t *testing.T) {
	l.shell(t, "echo o >/proc/sysrq-trigger; sleep 1000").want(t, ExitFailure, "", "failed before the program ended: gone")
}

// qemuOf waits for the QEMU of a running launcher and returns its pid.
func qemuOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if children := strings.Fields(string(b)); len(children) > 0 {
			child, err := strconv.Atoi(children[0])
			if err != nil {
				t.Fatal(err)
			}
			return child
		}
	}
	t.Fatal("the launcher has no QEMU")
	return 0
}

func (l *launcher) testSilentGuest(t *testing.T) {
	cmd := l.command(t, "-stall", "2s", "/bin/sh", "-c", "echo ready; sleep 1000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	wait := lineReader(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait("ready")
	if err := unix.Kill(qemuOf(t, cmd.Process.Pid), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	result{cmd.ProcessState.ExitCode(), "", stderr.String()}.want(t, ExitFailure, "", "silent for 2s")
}

func (l *launcher) testNoBoot(t *testing.T) {
	l.shell(t, "echo out", "-cold", "-boot-timeout", "10ms").want(t, ExitFailure, "", "did not start")
}

func (l *launcher) testLauncherKilled(t *testing.T) {
	cmd := l.command(t, "/bin/sh", "-c", "echo ready; sleep 1000")
	wait := lineReader(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait("ready")
	qemu, err := unix.PidfdOpen(qemuOf(t, cmd.Process.Pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(qemu)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// A pidfd is readable once the process has ended.
	ended := []unix.PollFd{{Fd: int32(qemu), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(ended, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("QEMU outlives its launcher: %d, %v", n, err)
		}
		return
	}
}

func (l *launcher) testDamagedState(t *testing.T) {
	states, err := filepath.Glob(filepath.Join(l.cache, "rdmavm", "state-*"))
	if err != nil || len(states) != 1 {
		t.Fatalf("states %q, %v; want one, which fits whatever is shared", states, err)
	}
	for _, size := range []int64{0, 1_000_000} {
		if err := os.Truncate(states[0], size); err != nil {
			t.Fatal(err)
		}
		l.shell(t, "echo out", "-v").want(t, 0, "out\n", "starting afresh")
		if info, err := os.Stat(states[0]); err != nil || info.Size() <= size {
			t.Errorf("the state is not replaced: %v", err)
		}
	}
}

func (l *launcher) testConcurrent(t *testing.T) {
	k, ok := (&cache{dir: filepath.Join(l.cache, "rdmavm")}).cachedKernel(DefaultKernelPackage)
	if !ok {
		t.Fatal("no kernel")
	}
	fresh := *l
	fresh.cache = t.TempDir() // no initrd and no state yet
	fresh.useKernel(t, k, fresh.cache)
	var wg sync.WaitGroup
	results := make([]result, 3)
	for i := range results {
		cmd := fresh.command(t, "/bin/sh", "-c", "echo out; exit "+strconv.Itoa(i))
		wg.Go(func() { results[i] = finish(t, cmd) })
	}
	wg.Wait()
	for i, r := range results {
		r.want(t, i, "out\n")
	}
	left := list(t, filepath.Join(fresh.cache, "rdmavm"))
	left = slices.DeleteFunc(left, func(name string) bool {
		return !strings.HasPrefix(name, "initrd-") && !strings.HasPrefix(name, "state-") && !strings.HasPrefix(name, temporary)
	})
	if len(left) != 2 {
		t.Errorf("cache has %q, want an initrd and a state", left)
	}
}

func (l *launcher) testBrokenKVM(t *testing.T) {
	qemu, err := exec.LookPath(qemuTool.name)
	if err != nil {
		t.Fatal(err)
	}
	// A QEMU whose KVM guests print nothing, as they do under some hypervisors.
	dir := t.TempDir()
	fake := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *'-accel kvm'*) exec sleep 1000;; esac\nexec %s \"$@\"\n", qemu)
	if err := os.WriteFile(filepath.Join(dir, qemuTool.name), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &cache{dir: filepath.Join(l.cache, "rdmavm")}
	if err := c.judgeKVM(true); err != nil { // it did work, so it is tried whatever this host is
		t.Fatal(err)
	}
	for _, note := range []string{"KVM does not work here", "program starts"} {
		cmd := l.command(t, "-v", "-cold", "/bin/sh", "-c", "echo out; exit 4")
		cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
		r := finish(t, cmd)
		r.want(t, 4, "out\n", note)
		if c.kvmWorthTrying() {
			t.Error("KVM is to be tried again")
		}
	}
}

// testGoTest runs the real go test on a module of its own.
func (l *launcher) testGoTest(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"x.go":   "package example\n\nfunc Double(i int) int { return 2 * i }\n",
		"x_test.go": `package example

import (
	"os"
	"testing"
)

func TestDouble(t *testing.T) {
	if Double(2) != 4 {
		t.Fatal("wrong")
	}
	if err := os.WriteFile("written", nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRenameFolderOfHost(t *testing.T) {
	if err := os.Rename("/etc", "/etc2"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/etc2/passwd"); err != nil {
		t.Fatal(err)
	}
}

func TestGuest(t *testing.T) {
	if os.Getenv("RDMAVM_GUEST") == "" {
		t.Fatal("not in the guest")
	}
}

func TestFailing(t *testing.T) {
	if os.Getenv("FAIL") != "" {
		t.Fatal("asked to fail")
	}
}

func TestHanging(t *testing.T) {
	if os.Getenv("HANG") != "" {
		select {}
	}
}

func FuzzDouble(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, i int) {
		if Double(i) == 0 && i != 0 || i == 3 {
			t.Fatal("found")
		}
	})
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goTest := func(env string, args ...string) result {
		t.Helper()
		cmd := exec.Command("go", append([]string{"test", "-count=1", "-exec", l.path}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+l.cache, "RDMAVM_FLAGS=-mode=vm", "GOFLAGS=", "GOCACHE="+goCache(t), env)
		return finish(t, cmd)
	}
	r := goTest("OK=1", "-coverprofile=cover.out", "-cpuprofile=cpu.out", "-o", filepath.Join(t.TempDir(), "example.test"))
	if r.status != 0 || !strings.Contains(r.stdout, "coverage: 100.0%") {
		t.Errorf("passing tests: %+v", r)
	}
	for _, name := range []string{"cover.out", "cpu.out"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 20 {
			t.Errorf("%s is not on the host, or empty: %v", name, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cover.out")); err != nil || !strings.Contains(string(b), "x.go:3.") {
		t.Errorf("coverage %q, %v", b, err)
	}
	if err := os.Remove(filepath.Join(dir, "written")); err != nil {
		t.Errorf("-outputdir is this folder, so what is written there is kept: %v", err)
	}
	if diff := cmp.Diff([]string{"cover.out", "cpu.out", "go.mod", "x.go", "x_test.go"}, list(t, dir)); diff != "" {
		t.Errorf("without profiles nothing is written (-want +got):\n%s", diff)
	}
	t.Run("-race", func(t *testing.T) {
		needTool(t, "gcc")
		if r := goTest("OK=1", "-race", "-run=Double"); r.status != 0 {
			t.Errorf("%+v", r)
		}
	})
	if r := goTest("FAIL=1"); r.status != 1 || !strings.Contains(r.stdout, "asked to fail") {
		t.Errorf("a failing test: %+v", r)
	}
	if r := goTest("HANG=1", "-timeout=2s"); r.status != 1 || !strings.Contains(r.stdout+r.stderr, "panic: test timed out after 2s") {
		t.Errorf("a hanging test: %+v", r)
	}
	if r := goTest("OK=1", "-run=^$", "-fuzz=Double", "-fuzztime=1000000x", "-parallel=1"); r.status != 1 || !strings.Contains(r.stdout, "found") {
		t.Errorf("fuzzing: %+v", r)
	}
	if corpus, err := filepath.Glob(filepath.Join(dir, "testdata/fuzz/FuzzDouble/*")); err != nil || len(corpus) != 1 {
		t.Errorf("what fuzzing found is not on the host: %q, %v", corpus, err)
	}
}

func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestCommandIsStatic shows that the command links no C, even where cgo is on:
// it must start in a guest that has no libraries.
func TestCommandIsStatic(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "github.com/goverbs/goverbs/cmd/rdmavm")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		switch name := strings.TrimSpace(name); name {
		case "C", "net", "os/user", "runtime/cgo":
			t.Errorf("depends on %s", name)
		}
	}
}
