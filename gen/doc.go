// Gen writes goverbs' raw bindings from rdma-core's C headers.
package main
