//go:build linux

package foreign

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// conversation is what a program says to another run of itself, on the second
// device, over the sockets of this machine.
type conversation struct {
	program string
	args    string
	device  []string // the server's, the client's
	// What it can't do it complains of, for a cause, by which it is skipped. Unless
	// version is empty only that version of the program does.
	complaint, cause, version string
}

// The default devices.
var (
	mlx5 = []string{"sim_mlx5_0", "sim_mlx5_1"}
	efa  = []string{"sim_efa_0", "sim_efa_0"}
)

const iterations = 100

// talk runs the program on both sides. It skips the test where the program says
// that it can't.
func (c *conversation) talk(t *testing.T, args ...string) (server, client string) {
	t.Helper()
	port := freePort(t)
	args = append(args, "-p", strconv.Itoa(port))
	s := start(t, limit, "", c.program, append(args, "-d", c.device[0])...)
	if !s.listens(port) && c.complaint == "" {
		out, err := s.wait()
		t.Fatalf("%s does not listen: %v\n%s", s, err, out)
	}
	p := start(t, limit, "", c.program, append(args, "-d", c.device[1], "127.0.0.1")...)
	client, err := p.wait()
	if err != nil {
		s.stop() // it may wait for ever
	}
	server, serverErr := s.wait()
	if c.complaint == "" {
		for _, side := range []struct {
			*program
			err error
			out string
		}{{s, serverErr, server}, {p, err, client}} {
			if side.err != nil {
				t.Errorf("%s: %v\n%s", side, side.err, side.out)
			}
		}
	} else if !strings.Contains(server+client, c.complaint) {
		t.Errorf("%s: %v, and no word of %q\nserver:\n%s\nclient:\n%s", p, err, c.complaint, server, client)
	} else {
		rdmatest.Skip(t, c.cause)
	}
	return server, client
}

func (c *conversation) name() string {
	return strings.ReplaceAll(strings.TrimSpace(c.program+" "+c.args), " ", "_")
}

// rdma-core's examples, with the RoCE v2 address of the devices.
var pingpongs = []conversation{
	{program: "ibv_rc_pingpong"},
	{program: "ibv_rc_pingpong", args: "-e"},
	{program: "ibv_rc_pingpong", args: "-s 65536 -m 1024"},
	{program: "ibv_rc_pingpong", args: "-t"},
	{program: "ibv_uc_pingpong"},
	{program: "ibv_uc_pingpong", args: "-e"},
	{program: "ibv_ud_pingpong"},
	{program: "ibv_ud_pingpong", args: "-e"},
	{program: "ibv_srq_pingpong"},
	{program: "ibv_srq_pingpong", args: "-e"},
	{program: "ibv_xsrq_pingpong"},
}

func TestPingPong(t *testing.T) {
	took := regexp.MustCompile(`(\d+) bytes in [\d.]+ seconds = [\d.]+ Mbit/sec\n(\d+) iters in`)
	for _, c := range pingpongs {
		c.device = mlx5
		t.Run(c.name(), func(t *testing.T) {
			args := append(strings.Fields(c.args), "-g", "3", "-n", strconv.Itoa(iterations))
			server, client := c.talk(t, args...)
			for side, out := range map[string]string{"server": server, "client": client} {
				if strings.HasSuffix(out, "success\n") { // ibv_xsrq_pingpong says no more
					continue
				}
				m := took.FindStringSubmatch(out)
				if m == nil || m[1] == "0" || m[2] == "0" {
					t.Errorf("the %s does not say how long it took:\n%s", side, out)
				}
			}
		})
	}
}

// perftest's programs. What is measured is not asserted.
var perftests = []conversation{
	{program: "ib_send_bw", device: mlx5},
	{program: "ib_send_lat", device: mlx5},
	{program: "ib_write_bw", device: mlx5},
	{program: "ib_write_lat", device: mlx5},
	{program: "ib_read_bw", device: mlx5},
	{program: "ib_read_lat", device: mlx5},
	{program: "ib_atomic_bw", device: mlx5},
	{program: "ib_atomic_lat", device: mlx5},
	{program: "ib_atomic_bw", args: "-A CMP_AND_SWAP", device: mlx5},

	{program: "ib_send_bw", args: "-s 1", device: mlx5},
	{program: "ib_write_bw", args: "-s 1048576", device: mlx5},
	{program: "ib_read_bw", args: "-s 1048576", device: mlx5},
	{program: "ib_write_bw", args: "-b", device: mlx5},
	{program: "ib_send_bw", args: "-e", device: mlx5},
	{program: "ib_send_lat", args: "-e", device: mlx5},
	{program: "ib_send_bw", args: "-q 4", device: mlx5},
	{program: "ib_write_bw", args: "-q 4", device: mlx5},
	{program: "ib_read_bw", args: "-q 4", device: mlx5},
	{program: "ib_send_bw", args: "--use-srq", device: mlx5},
	{program: "ib_send_bw", args: "--use-srq -q 4", device: mlx5},
	{program: "ib_send_lat", args: "--use-srq", device: mlx5},

	{program: "ib_send_bw", args: "-c UC", device: mlx5},
	{program: "ib_send_lat", args: "-c UC", device: mlx5},
	{program: "ib_write_bw", args: "-c UC", device: mlx5},
	{program: "ib_write_lat", args: "-c UC", device: mlx5},
	{program: "ib_send_bw", args: "-c UD", device: mlx5},
	{program: "ib_send_lat", args: "-c UD", device: mlx5},
	{program: "ib_send_bw", args: "-c DC", device: mlx5},
	{program: "ib_send_bw", args: "-c XRC", device: mlx5},
	{program: "ib_write_bw", args: "-c XRC", device: mlx5},

	{program: "ib_send_bw", args: "-c SRD", device: efa},
	{program: "ib_send_bw", args: "-c SRD -q 4", device: efa},
	{program: "ib_send_lat", args: "-c SRD", device: efa},
	{program: "ib_send_bw", args: "-c UD -Q 1", device: efa},
	{program: "ib_send_lat", args: "-c UD", device: efa},
	{program: "ib_read_bw", args: "-c SRD", device: efa, complaint: "Couldn't post send", cause: "perftest reads by ibv_post_send, which libefa does not take", version: "6.06"},
	{program: "ib_read_lat", args: "-c SRD", device: efa, complaint: "Couldn't post send", cause: "perftest reads by ibv_post_send, which libefa does not take", version: "6.06"},
	// What fits perftest writes inline, which EFA does not.
	{program: "ib_write_lat", args: "-c SRD -s 64", device: efa, complaint: "SRD connection only possible in SEND/READ verbs", cause: "perftest does not write by SRD", version: "6.06"},
	{program: "ib_write_bw", args: "-c SRD", device: efa, complaint: "SRD connection only possible in SEND/READ verbs", cause: "perftest does not write by SRD", version: "6.06"},
	{program: "ib_send_bw", args: "-c SRD -e", device: efa, complaint: "SRD does not support events", cause: "perftest does not wait for events of SRD", version: "6.06"},
	{program: "ib_write_bw", args: "-R", device: mlx5, complaint: "rdma_create_event_channel failed", cause: "/dev/infiniband/rdma_cm is not emulated"},
}

func TestPerftest(t *testing.T) {
	version, _ := start(t, limit, "", "ib_send_bw", "--version").wait()
	// The row of results: bytes, iterations, then figures.
	row := regexp.MustCompile(`(?m)^ *(\d+) +(\d+) +[\d.]+ +[\d.]+`)
	for _, c := range perftests {
		t.Run(c.name(), func(t *testing.T) {
			if c.version != "" && !strings.Contains(version, c.version) {
				c.complaint = ""
			}
			gid := "3"
			if c.device[0] == efa[0] {
				gid = "0"
			}
			args := append(strings.Fields(c.args), "-F", "-n", strconv.Itoa(iterations), "-x", gid)
			_, client := c.talk(t, args...)
			if strings.Contains(client, "Correlation coefficient") {
				return // perftest keeps its figures to itself where the clock is unsteady
			}
			rows := row.FindAllStringSubmatch(client, -1)
			if len(rows) != 1 || rows[0][1] == "0" || rows[0][2] == "0" {
				t.Errorf("odd results %q of\n%s", rows, client)
			}
		})
	}
}

func TestDeviceList(t *testing.T) {
	out, err := start(t, limit, "", "ibv_devices").wait()
	if err != nil {
		t.Fatal(err, out)
	}
	for _, line := range []string{
		`sim_mlx5_0\s+00514dfffe000000`, `sim_mlx5_1\s+00514dfffe000100`, `sim_efa_0\s+00514dfffe000200`,
	} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("no %s in\n%s", line, out)
		}
	}
}

func TestDeviceInfo(t *testing.T) {
	out, err := start(t, limit, "", "ibv_devinfo", "-v").wait()
	if err != nil {
		t.Fatal(err, out)
	}
	devices := strings.Split(out, "hca_id:\t")[1:]
	if len(devices) != 3 {
		t.Fatalf("%d devices, want 3:\n%s", len(devices), out)
	}
	for _, d := range devices {
		name, _, _ := strings.Cut(d, "\n")
		want := []string{`fw_ver:\s+28\.`, `vendor_id:\s+0x02c9`, `link_layer:\s+Ethernet`, `atomic_cap:\s+ATOMIC_HCA`, `GID\[\s*3\]:\s+::ffff:10\.77\.0\.`, `active_speed:\s+100`}
		if name == efa[0] {
			want = []string{`vendor_id:\s+0x1d0f`, `link_layer:\s+Unspecified`, `GID\[\s*0\]:\s+fe80:`}
		}
		for _, w := range append(want, `state:\s+PORT_ACTIVE \(4\)`, `phys_port_cnt:\s+1\n`) {
			if !regexp.MustCompile(w).MatchString(d) {
				t.Errorf("no %s in\n%s", w, d)
			}
		}
	}
}

func TestIsListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:4E21 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2
`
	for port, want := range map[int]bool{20000: true, 20001: false, 40000: false} {
		if got := isListening(table, port); got != want {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
}
