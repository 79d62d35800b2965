//go:build linux

package foreign

import "testing"

// forking opens a device, has children of both kinds close all that they
// inherited, and goes on with the device.
const forking = `
import ctypes, os, subprocess

verbs, libc, count = ctypes.CDLL("libibverbs.so.1"), ctypes.CDLL(None), ctypes.c_int()
pointers = "ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd"
for name in pointers + ("ibv_dealloc_pd", "ibv_close_device"):
    function = getattr(verbs, name)
    function.argtypes = [ctypes.c_void_p]
    if name in pointers:
        function.restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(ctypes.addressof(count)), ctypes.POINTER(ctypes.c_void_p))
context = verbs.ibv_open_device(devices[0])

child = os.fork()
if child == 0:
    for fd in range(3, 256):
        libc.close(fd)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
subprocess.run(["true"], close_fds=True, check=True)

domain = verbs.ibv_alloc_pd(context)
assert domain and verbs.ibv_dealloc_pd(domain) == 0 and verbs.ibv_close_device(context) == 0
`

func TestDevicesOutliveForks(t *testing.T) {
	if out, err := start(t, limit, "", "/usr/bin/python3", "-c", forking).wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
