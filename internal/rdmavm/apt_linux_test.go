package rdmavm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDepends(t *testing.T) {
	const out = `linux-image-6.1.0-57-amd64
  Depends: kmod
  Depends: linux-base
 |Depends: initramfs-tools
  Depends: <linux-initramfs-tool>
    dracut
  Depends: linux-modules-6.1.0-57-amd64
  Recommends: firmware-linux-free
`
	want := []string{"kmod", "linux-base", "linux-modules-6.1.0-57-amd64"}
	if diff := cmp.Diff(want, parseDepends(out)); diff != "" {
		t.Errorf("depends (-want +got):\n%s", diff)
	}
}

func TestParseURIs(t *testing.T) {
	const out = `'http://deb.example/pool/l/linux-image-6.12_6.12.1%2b1_amd64.deb' linux-image-6.12+deb12-amd64_6.12.1-1_amd64.deb 70600000 SHA256:4bf7
'http://deb.example/pool/l/meta.deb' linux-image-amd64_6.1.192-3_amd64.deb 1476 SHA256:4bf7
Reading package lists...
`
	want := []deb{
		{"linux-image-6.12+deb12-amd64", "linux-image-6.12+deb12-amd64_6.12.1-1_amd64.deb"},
		{"linux-image-amd64", "linux-image-amd64_6.1.192-3_amd64.deb"},
	}
	if diff := cmp.Diff(want, parseURIs(out), cmp.AllowUnexported(deb{})); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestKernelParts(t *testing.T) {
	for name, want := range map[string]bool{
		"linux-image-6.1.0-57-amd64":           true,
		"linux-modules-6.8.0-31-generic":       true,
		"linux-modules-extra-6.8.0-31-generic": true,
		"linux-binary-6.17-amd64":              true,
		"linux-base":                           false,
		"linux-headers-6.8.0-31-generic":       false,
		"linux-firmware":                       false,
		"thermald":                             false,
		"not-linux-image-really":               false,
	} {
		if kernelPart.MatchString(name) != want {
			t.Errorf("%s is a part of a kernel: %v, want %v", name, !want, want)
		}
	}
}
