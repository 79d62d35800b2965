package efa_test

import (
	"log"

	"github.com/goverbs/goverbs/backends/efa"
)

// Lists this machine's EFA devices, and what each can do and what not.
func Example() {
	devices, err := efa.Devices()
	if err != nil {
		log.Print(err) // rdma-core is not installed, for example
	}
	for _, d := range devices {
		dev, err := efa.Open(d.Name, nil)
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
