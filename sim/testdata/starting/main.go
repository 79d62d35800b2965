// Starting starts and ends, as a program that uses package rdma.
package main

import (
	_ "github.com/goverbs/goverbs/backends/verbs"
	_ "github.com/goverbs/goverbs/rdma"
)

func main() {}
