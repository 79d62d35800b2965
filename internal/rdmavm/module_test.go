package rdmavm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// moduleFile makes a relocatable ELF file with nothing but a .modinfo section.
func moduleFile(t *testing.T, info string) []byte {
	t.Helper()
	const names = "\x00.modinfo\x00.shstrtab\x00"
	size := binary.Size(elf.Header64{})
	section := func(name uint32, kind elf.SectionType, offset, length int) elf.Section64 {
		return elf.Section64{Name: name, Type: uint32(kind), Off: uint64(offset), Size: uint64(length), Addralign: 1}
	}
	header := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(size + len(info) + len(names)), Ehsize: uint16(size),
		Shentsize: uint16(binary.Size(elf.Section64{})), Shnum: 3, Shstrndx: 2,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var b bytes.Buffer
	for _, part := range []any{
		header, []byte(info), []byte(names), elf.Section64{},
		section(1, elf.SHT_PROGBITS, size, len(info)),
		section(10, elf.SHT_STRTAB, size+len(info), len(names)),
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// moduleFolder makes a lib/modules/RELEASE folder of modules that depend on others.
func moduleFolder(t *testing.T, builtin string, depends map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte(builtin), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, list := range depends {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		data := moduleFile(t, "license=GPL\x00depends="+list+"\x00name=x\x00")
		if strings.HasSuffix(path, ".xz") {
			data = compress(t, &compressions[0], data)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestModulesComeAfterTheirDependencies(t *testing.T) {
	needTool(t, "xz")
	dir := moduleFolder(t, "kernel/drivers/virtio/virtio.ko\nkernel/lib/crc-16.ko\n", map[string]string{
		"kernel/a/rdma-core.ko":  "ib-core,crc-16",
		"kernel/b/ib_core.ko.xz": "virtio",
		"kernel/c/rxe.ko":        "ib_core,rdma-core,udp",
		"updates/udp.ko":         "",
		"kernel/c/unrelated.ko":  "rxe",
		"kernel/c/notes.ko.txt":  "",
	})
	tree, err := openModuleTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := tree.closure([]string{"?gone", "virtio", "?udp", "rxe", "rdma_core"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range modules {
		got = append(got, m.name)
		if !bytes.HasPrefix(m.data, elfMagic) {
			t.Errorf("%s is not unpacked", m.name)
		}
	}
	if diff := cmp.Diff([]string{"udp", "ib_core", "rdma_core", "rxe"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestModuleMissing(t *testing.T) {
	dir := moduleFolder(t, "", map[string]string{"rxe.ko": "udp"})
	tree, err := openModuleTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	for wanted, message := range map[string]string{
		"rxe":  "no module udp, which rxe needs",
		"9p":   "no module 9p",
		"?rxe": "no module udp", // optional itself, not so what it needs
	} {
		if _, err := tree.closure([]string{wanted}); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %q", wanted, err, message)
		}
	}
}

func TestModuleDamaged(t *testing.T) {
	good := moduleFile(t, "depends=a,b\x00")
	if got, err := moduleDependencies(good); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("dependencies %q, %v", got, err)
	}
	for n := range len(good) - 1 {
		if got, err := moduleDependencies(good[:n]); err == nil {
			t.Fatalf("a module cut to %d bytes of %d has dependencies %q", n, len(good), got)
		}
	}
}

func TestGuestModulesOfTheWholeListAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range guestModules {
		name := strings.TrimPrefix(m, "?")
		if seen[name] || strings.Contains(name, "-") {
			t.Errorf("%s: twice, or with a dash, which no module's name has", m)
		}
		seen[name] = true
	}
}
