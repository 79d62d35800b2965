// Command imports prints which backends are registered, and what is mapped into
// its process.
package main

import (
	"os"

	_ "github.com/goverbs/goverbs/backends/efa"
	_ "github.com/goverbs/goverbs/backends/mlx5"
	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	for _, name := range rdma.Backends() {
		os.Stdout.WriteString(name + "\n")
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(maps)
}
