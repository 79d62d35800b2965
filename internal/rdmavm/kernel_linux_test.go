package rdmavm

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unpackedKernel makes what a kernel package unpacks to, with tiny files.
func unpackedKernel(t *testing.T, root, release string) {
	t.Helper()
	needTool(t, "xz")
	elf := []byte("\x7fELF kernel " + release)
	payload := binary.LittleEndian.AppendUint32(compress(t, &compressions[0], elf), uint32(len(elf)))
	files := map[string][]byte{
		"boot/vmlinuz-" + release:                        bzImage(4, 64, payload),
		"lib/modules/" + release + "/modules.builtin":    []byte("kernel/virtio_pci.ko\n"),
		"lib/modules/" + release + "/kernel/unwanted.ko": moduleFile(t, "depends=\x00"),
	}
	for _, m := range guestModules {
		name := strings.TrimPrefix(m, "?")
		path := "kernel/" + name + ".ko"
		depends := ""
		if name == "rdma_rxe" {
			path, depends = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko", "ib_uverbs,udp_tunnel"
		}
		files["lib/modules/"+release+"/"+path] = moduleFile(t, "depends="+depends+"\x00")
	}
	files["lib/modules/"+release+"/kernel/udp_tunnel.ko"] = moduleFile(t, "depends=\x00")
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportedKernelIsReadyToBoot(t *testing.T) {
	c := testCache(t)
	root := t.TempDir()
	unpackedKernel(t, root, "6.1.0-9-amd64")
	unpackedKernel(t, root, "6.1.0-10-amd64")
	// Newer, but of no use: it has no Soft-RoCE.
	if err := os.WriteFile(filepath.Join(root, "boot", "vmlinuz-7.0-cloud"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.importKernel(root, "linux_1", "linux-image-amd64"); err != nil {
		t.Fatal(err)
	}
	k, ok := c.cachedKernel("linux-image-amd64")
	if !ok || k.name() != "linux_1" {
		t.Fatalf("kernel %q, %v", k.dir, ok)
	}
	image, err := os.ReadFile(k.image())
	if err != nil || string(image) != "\x7fELF kernel 6.1.0-10-amd64" {
		t.Errorf("image %q, %v", image, err)
	}
	want := []string{
		"00-virtio_console.ko", "01-9pnet_virtio.ko", "02-9p.ko", "03-overlay.ko", "04-veth.ko", "05-crc32_generic.ko",
		"06-ib_uverbs.ko", "07-rdma_ucm.ko", "08-ib_umad.ko", "09-udp_tunnel.ko", "10-rdma_rxe.ko", "image",
	}
	if diff := cmp.Diff(want, list(t, k.dir)); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"linux_1"}, list(t, c.path("kernels"))); diff != "" {
		t.Errorf("kernels (-want +got):\n%s", diff)
	}
	// Again: replaced, and other names may stand for it.
	if err := c.importKernel(root, "linux_1", "linux-image-6.1.0-10-amd64"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"linux-image-6.1.0-10-amd64", "linux-image-amd64"}, list(t, c.path("packages"))); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestKernelImportFailsWhole(t *testing.T) {
	c := testCache(t)
	root := t.TempDir()
	if err := c.importKernel(root, "linux_1", "p"); err == nil || !strings.Contains(err.Error(), "no kernel with Soft-RoCE") {
		t.Errorf("empty folder: %v", err)
	}
	unpackedKernel(t, root, "6.1")
	if err := os.Remove(filepath.Join(root, "lib/modules/6.1/kernel/9p.ko")); err != nil {
		t.Fatal(err)
	}
	if err := c.importKernel(root, "linux_1", "p"); err == nil || !strings.Contains(err.Error(), "no module 9p") {
		t.Errorf("module missing: %v", err)
	}
	if left := append(list(t, c.path("kernels")), list(t, c.path("packages"))...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
