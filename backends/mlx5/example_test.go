package mlx5_test

import (
	"log"

	"github.com/goverbs/goverbs/backends/mlx5"
)

// Lists this machine's ConnectX and BlueField devices, and what each can do and
// what not.
func Example() {
	devices, err := mlx5.Devices()
	if err != nil {
		log.Print(err) // rdma-core is not installed, for example
	}
	for _, d := range devices {
		dev, err := mlx5.Open(d.Name, nil)
		if err != nil {
			log.Print(err)
			continue
		}
		report, err := dev.Report()
		if err != nil {
			log.Print(err)
		}
		for _, c := range report {
			log.Printf("%s: %v", d.Name, c)
		}
		if err := dev.Close(); err != nil {
			log.Print(err)
		}
	}
	// Output:
}
