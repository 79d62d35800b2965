//go:build linux && cgo

package fakeverbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// A provider's own library is opened after libibverbs has looked for devices,
// and so has loaded the providers that it needs: where the provider is a copy
// of that library, the other order would load both.
func TestProvidersAreLoadedBeforeTheirLibraries(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		if ok, err := mlx5dv.IsSupported(nil); !ok || err != nil {
			t.Error("libmlx5 was opened before devices were listed:", err)
		}
		return
	}
	dir := t.TempDir()
	for name, source := range map[string]string{
		"libibverbs.so.1": `
			#include <errno.h>
			int listed;
			void *ibv_get_device_list(int *n) { listed = 1; errno = ENOSYS; return 0; }`,
		"libmlx5.so.1": `
			#include <dlfcn.h>
			static int after;
			__attribute__((constructor)) static void opened(void)
			{
				void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
				int *listed = verbs ? dlsym(verbs, "listed") : 0;
				after = listed && *listed;
			}
			_Bool mlx5dv_is_supported(void *device) { return after; }`,
	} {
		file := filepath.Join(dir, name+".c")
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		build(t, filepath.Join(dir, name), file)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"=1", "LD_LIBRARY_PATH="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
