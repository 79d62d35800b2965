package rdmavm

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"
)

// bzImage makes an image with the payload at an offset from the protected-mode
// code, which follows the setup sectors.
func bzImage(sectors byte, offset uint32, payload []byte) []byte {
	setup := int(sectors)
	if setup == 0 {
		setup = 4
	}
	image := make([]byte, (setup+1)*512+int(offset))
	image[bzSetupSectors] = sectors
	copy(image[bzMagic:], "HdrS")
	binary.LittleEndian.PutUint16(image[bzVersion:], 0x20f)
	binary.LittleEndian.PutUint32(image[bzPayloadOffset:], offset)
	binary.LittleEndian.PutUint32(image[bzPayloadLength:], uint32(len(payload)))
	return append(append(image, payload...), "what follows"...)
}

func TestBzImagePayload(t *testing.T) {
	want := []byte("payload")
	for _, sectors := range []byte{0, 1, 39} {
		for _, offset := range []uint32{0, 13, 4096} {
			got, err := bzImagePayload(bzImage(sectors, offset, want))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d sectors, offset %d: %q, %v", sectors, offset, got, err)
			}
		}
	}
}

func TestBzImageRefused(t *testing.T) {
	good := bzImage(4, 64, []byte("payload"))
	change := func(f func(image []byte)) []byte {
		image := bytes.Clone(good)
		f(image)
		return image
	}
	for name, image := range map[string][]byte{
		"empty":            nil,
		"short":            good[:bzHeaderEnd-1],
		"no magic":         change(func(b []byte) { b[bzMagic] = 'X' }),
		"old protocol":     change(func(b []byte) { b[bzVersion], b[bzVersion+1] = 7, 2 }),
		"no payload":       change(func(b []byte) { clear(b[bzPayloadLength : bzPayloadLength+4]) }),
		"payload too long": change(func(b []byte) { b[bzPayloadLength+3] = 0xff }),
		"payload too far":  change(func(b []byte) { copy(b[bzPayloadOffset:], "\xff\xff\xff\xff") }),
		"cut short":        good[:len(good)-len("what follows")-1],
	} {
		if _, err := bzImagePayload(image); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestVmlinux(t *testing.T) {
	kernel := append([]byte("\x7fELF"), bytes.Repeat([]byte("kernel"), 1000)...)
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(kernel)))
	for _, c := range compressions {
		t.Run(c.tool.name, func(t *testing.T) {
			payload := compress(t, &c, kernel)
			if c.tool != gzipTool { // which has the size already
				payload = append(payload, size...)
			}
			got, err := vmlinux(bzImage(4, 64, payload))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, kernel) {
				t.Errorf("unpacked to %d bytes, want the %d of the kernel", len(got), len(kernel))
			}
			cut := bytes.Clone(payload)
			cut[len(cut)-4]++ // the size says one byte more
			if _, err := vmlinux(bzImage(4, 64, cut)); err == nil {
				t.Error("a kernel of the wrong size is accepted")
			}
		})
	}
	if got, err := vmlinux(kernel); err != nil || !bytes.Equal(got, kernel) {
		t.Errorf("an ELF kernel is not taken as it is: %v", err)
	}
	if _, err := vmlinux(bzImage(4, 64, []byte("LZO?"))); err == nil || !strings.Contains(err.Error(), "unknown format") {
		t.Errorf("payload in an unknown format: %v", err)
	}
}

// compress packs data with the tool that unpacks it.
func compress(t *testing.T, c *compression, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if c.tool == gzipTool {
		w := gzip.NewWriter(&out)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	needTool(t, c.tool.name)
	cmd := exec.Command(c.tool.name, "-c")
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpackByDpkg(t *testing.T) {
	needTool(t, "dpkg-deb")
	for _, want := range [][]byte{[]byte("odd"), bytes.Repeat([]byte("even"), 100_000)} {
		for _, c := range compressions {
			t.Run(c.tool.name, func(t *testing.T) {
				got, err := c.unpackAsDeb(compress(t, &c, want))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("unpacked to %d bytes of %d, %v", len(got), len(want), err)
				}
				if _, err := c.unpackAsDeb([]byte(c.magic + "damaged")); err == nil {
					t.Error("damaged data is unpacked")
				}
			})
		}
	}
}

func FuzzBzImagePayload(f *testing.F) {
	f.Add(bzImage(4, 64, []byte("payload")))
	f.Add(bzImage(0, 0, []byte{1})[:0x260])
	f.Fuzz(func(t *testing.T, image []byte) {
		payload, err := bzImagePayload(image)
		if err == nil && !bytes.Contains(image, payload) {
			t.Errorf("payload of %d bytes is not in the image", len(payload))
		}
	})
}
