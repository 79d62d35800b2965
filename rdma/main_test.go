package rdma

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }
